"""Non-linear least squares on reprojection errors: one pose, a rotation, or a window of views.

Poses are world to camera, `X_c = R_cw X_w + t_cw`; a step `(omega, v)` changes them on the left,
`X_c' = exp(omega) X_c + v`. Observations are normalized; `sigma` is the standard deviation of one
coordinate in the same unit. Wrong observations are tamed by Cauchy's loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lgc_ros.geometry import homogeneous, skew

POSE_ITERATIONS = 10
# A step this small, in standard deviations of the pose, is the last one.
CONVERGED_SIGMAS = 1e-2
# Cauchy's loss loses 5 % of the efficiency of least squares at 2.385 standard deviations.
CAUCHY_SIGMAS = 2.385
MIN_DEPTH = 1e-6
# Medians of the squares of one and of two Gaussian residuals, in variances.
MEDIAN_OF_ONE = 0.4549
MEDIAN_OF_TWO = 2 * np.log(2)


@dataclass(frozen=True, eq=False)
class RefinedPose:
    """A pose at the least cost.

    Attributes:
        covariance: (6, 6) of the step (omega, v) at the solution, scaled by the residuals.
        distance: (N,) residuals in standard deviations of their observations.
    """

    R_cw: np.ndarray
    t_cw: np.ndarray
    covariance: np.ndarray
    distance: np.ndarray


def rotation_from_vector(omega: np.ndarray) -> np.ndarray:
    """The rotation about `omega` by its length in radians."""
    angle = np.linalg.norm(omega)
    K = skew(omega)
    if angle < 1e-8:
        return np.eye(3) + K + K @ K / 2
    return np.eye(3) + np.sin(angle) / angle * K + (1 - np.cos(angle)) / angle**2 * (K @ K)


def project(points_cam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normalized coordinates (N, 2) of points in the camera and their Jacobian (N, 2, 3)."""
    z = np.maximum(points_cam[:, 2], MIN_DEPTH)
    x = points_cam[:, :2] / z[:, None]
    J = np.zeros((len(z), 2, 3))
    J[:, 0, 0] = J[:, 1, 1] = 1 / z
    J[:, :, 2] = -x / z[:, None]
    return x, J


def _pose_jacobian(J_point: np.ndarray, points_cam: np.ndarray) -> np.ndarray:
    """Derivative (N, 2, 6) of the projection by the step (omega, v): d X_c = omega x X_c + v."""
    a, b, c = J_point[:, :, 0], J_point[:, :, 1], J_point[:, :, 2]
    x, y, z = (points_cam[:, i, None] for i in range(3))
    return np.stack([c * y - b * z, a * z - c * x, b * x - a * y, a, b, c], axis=2)


def _cauchy(squared: np.ndarray) -> np.ndarray:
    """Weights of squared distances in standard deviations."""
    return 1 / (1 + squared / CAUCHY_SIGMAS**2)


def refine_pose(
    R_cw: np.ndarray,
    t_cw: np.ndarray,
    points: np.ndarray,
    observed: np.ndarray,
    sigma: float,
    point_covariances: np.ndarray | None = None,
    hold_centre: bool = False,
) -> RefinedPose:
    """The pose of a camera that sees `points` (N, 3) of the world at `observed` (N, 2).

    With `point_covariances` (N, 3, 3) a point of uncertain depth counts only across its ray: it
    still tells the rotation. `hold_centre` lets the camera turn about its centre only.
    """
    free = slice(0, 3) if hold_centre else slice(0, 6)
    centre = -R_cw.T @ t_cw
    noise = sigma**2 * np.eye(2)
    for _ in range(POSE_ITERATIONS):
        points_cam = points @ R_cw.T + t_cw
        x, J_point = project(points_cam)
        variance = np.broadcast_to(noise, (len(x), 2, 2))
        if point_covariances is not None:
            J_world = J_point @ R_cw
            variance = noise + J_world @ point_covariances @ J_world.transpose(0, 2, 1)
        information = _information(variance)
        residual = observed - x
        squared = (residual * (information @ residual[:, :, None])[:, :, 0]).sum(axis=1)
        weight = _cauchy(squared) * (points_cam[:, 2] > MIN_DEPTH)
        J = _pose_jacobian(J_point, points_cam)
        if hold_centre:
            # Turning about the centre moves no point's distance from it: v = 0 in its frame.
            J = J[:, :, :3]
        columns = J.shape[2]
        JtW = (information * weight[:, None, None] @ J).reshape(-1, columns).T
        H = JtW @ J.reshape(-1, columns)
        H += 1e-9 * np.trace(H) / len(H) * np.eye(len(H)) + 1e-12 * np.eye(len(H))
        step = np.linalg.solve(H, JtW @ residual.ravel())
        turn = rotation_from_vector(step[:3])
        R_cw = turn @ R_cw
        t_cw = -R_cw @ centre if hold_centre else turn @ t_cw + step[3:]
        if step @ H @ step < CONVERGED_SIGMAS**2:
            break
    excess = residual_scale(squared, MEDIAN_OF_TWO)
    covariance = np.zeros((6, 6))
    covariance[free, free] = excess * np.linalg.inv(H)
    return RefinedPose(R_cw, t_cw, covariance, np.sqrt(squared))


def _information(variance: np.ndarray) -> np.ndarray:
    """Inverses of (N, 2, 2) covariances; nothing where one is not known to be a covariance.

    A point that a step has brought next to the camera, or behind it, projects with a derivative
    so large that rounding leaves nothing to invert.
    """
    (a, b), (_, d) = variance.transpose(1, 2, 0)
    determinant = a * d - b**2
    sound = determinant > 1e-12 * a * d
    adjugate = np.array([[d, -b], [-b, a]]).transpose(2, 0, 1)
    information = np.zeros(variance.shape)
    information[sound] = adjugate[sound] / determinant[sound, None, None]
    return information


def residual_scale(squared: np.ndarray, expected: float) -> float:
    """How many times larger than assumed the variance of residuals is, at least 1.

    From the median of their squares, which outliers hardly move, and the one `expected` of
    Gaussian residuals: MEDIAN_OF_ONE, or MEDIAN_OF_TWO for both coordinates of a point.
    """
    return max(1.0, float(np.median(squared)) / expected) if len(squared) else 1.0


def fit_rotation(
    x0: np.ndarray, x1: np.ndarray, sigma: float, iterations: int = 15
) -> tuple[np.ndarray, np.ndarray]:
    """The rotation R_10 that best turns the rays of camera 0 into those of camera 1.

    Returns:
        R_10 and (N,) angles in radians left between the rays: parallax and noise.
    """
    a, b = (h / np.linalg.norm(h, axis=1, keepdims=True) for h in map(homogeneous, (x0, x1)))
    weight = np.ones(len(a))
    for _ in range(iterations):
        U, _, Vt = np.linalg.svd((b * weight[:, None]).T @ a)
        R_10 = U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
        angle = np.linalg.norm(np.cross(a @ R_10.T, b), axis=1)
        # Start from a loss as wide as the residuals are and end at the noise.
        scale = max(sigma, float(np.median(angle)))
        weight = _cauchy((angle / scale) ** 2)
    return R_10, np.arcsin(np.minimum(angle, 1.0))


@dataclass(frozen=True, eq=False)
class Bundle:
    """Views and points tied by observations: observation i is of point[i] in view[i].

    Attributes:
        R_cw, t_cw: (K, 3, 3), (K, 3) poses of the views.
        fixed: (K,) bool, views that stay where they are.
        points: (M, 3).
        view, point: (O,) int, by ascending view; each pair at most once, and no view without an
            observation.
        observed: (O, 2) normalized.
        sigma: (O,) standard deviation of an observed coordinate.
    """

    R_cw: np.ndarray
    t_cw: np.ndarray
    fixed: np.ndarray
    points: np.ndarray
    view: np.ndarray
    point: np.ndarray
    observed: np.ndarray
    sigma: np.ndarray


def bundle_distances(bundle: Bundle) -> np.ndarray:
    """(O,) reprojection errors in standard deviations; infinite behind a camera."""
    points_cam = _points_in_views(bundle.R_cw, bundle.t_cw, bundle.points, bundle)
    x, _ = project(points_cam)
    distance = np.linalg.norm(x - bundle.observed, axis=1) / bundle.sigma
    return np.where(points_cam[:, 2] > MIN_DEPTH, distance, np.inf)


def _points_in_views(R_cw, t_cw, points, bundle: Bundle) -> np.ndarray:
    return np.einsum("oij,oj->oi", R_cw[bundle.view], points[bundle.point]) + t_cw[bundle.view]


def adjust_bundle(
    bundle: Bundle, max_iterations: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Move free views and all points to the least cost (Levenberg-Marquardt).

    The points are eliminated first (Schur complement): what is left to solve has six unknowns per
    free view.

    Returns:
        R_cw, t_cw, points, and the (M, 3, 3) covariances of the points given the views.
    """
    R_cw, t_cw, points = bundle.R_cw.copy(), bundle.t_cw.copy(), bundle.points.copy()
    free = np.flatnonzero(~bundle.fixed)
    slot = np.full(len(R_cw), -1)
    slot[free] = np.arange(len(free))
    damping = 1e-4
    cost, system = _linearize(R_cw, t_cw, points, bundle, slot)
    for _ in range(max_iterations):
        step_views, step_points = _solve(*system, damping)
        turned = np.array([rotation_from_vector(step[:3]) for step in step_views])
        R_new, t_new = R_cw.copy(), t_cw.copy()
        if len(free):
            R_new[free] = turned @ R_cw[free]
            t_new[free] = np.einsum("kij,kj->ki", turned, t_cw[free]) + step_views[:, 3:]
        new_cost, new_system = _linearize(R_new, t_new, points + step_points, bundle, slot)
        if new_cost < cost:
            gain = cost - new_cost
            R_cw, t_cw, points = R_new, t_new, points + step_points
            cost, system, damping = new_cost, new_system, max(damping / 10, 1e-9)
            if gain < 1e-4 * cost:
                break
        else:
            damping *= 10
            if damping > 1e3:
                break
    _, _, H_points, _, _ = system
    return R_cw, t_cw, points, np.moveaxis(_inverses(H_points), 2, 0)


def _linearize(R_cw, t_cw, points, bundle: Bundle, slot: np.ndarray):
    """Robust cost and normal equations: blocks of views, of points, and between them.

    Observations, points and views come last in all arrays, as numpy is fast along long rows:
    H_views (6, 6, views), g_views (6, views), H_points (3, 3, points), g_points (3, points) and
    cross (3, 6, views, points).
    """
    X, Y, Z = _points_in_views(R_cw, t_cw, points, bundle).T
    z = np.maximum(Z, MIN_DEPTH)
    x, y = X / z, Y / z
    residual = (bundle.observed.T - (x, y)) / bundle.sigma
    squared = (residual**2).sum(axis=0)
    root = np.sqrt(_cauchy(squared) * (Z > MIN_DEPTH))
    cost = float(np.log1p(squared / CAUCHY_SIGMAS**2).sum())
    residual *= root
    scale = root / (bundle.sigma * z)
    one, zero = np.ones_like(x), np.zeros_like(x)
    by_view = scale * np.array(
        [[-x * Y, Z + x * X, -Y, one, zero, -x], [-y * Y - Z, y * X, X, zero, one, -y]]
    )
    R = np.moveaxis(R_cw[bundle.view], 0, 2)
    by_point = scale * np.array([R[0] - x * R[2], R[1] - y * R[2]])

    def sums(rows: np.ndarray) -> np.ndarray:
        """Sums over the observations of each point."""
        flat = rows.reshape(-1, rows.shape[-1])
        added = [np.bincount(bundle.point, row, minlength=len(points)) for row in flat]
        return np.reshape(added, (*rows.shape[:-1], len(points)))

    H_points = sums((by_point[:, :, None] * by_point[:, None]).sum(axis=0))
    g_points = sums((by_point * residual[:, None]).sum(axis=0))
    trace = np.einsum("iim->m", H_points)
    H_points += (1e-9 * trace + 1e-12) * np.eye(3)[:, :, None]

    views = int(slot.max(initial=-1)) + 1
    H_views, g_views = np.zeros((6, 6, views)), np.zeros((6, views))
    cross = np.zeros((3, 6, views, len(points)))
    ends = np.searchsorted(bundle.view, np.arange(len(slot) + 1))
    for view in np.flatnonzero(slot >= 0):
        mine = slice(ends[view], ends[view + 1])
        J, J_point = by_view[:, :, mine], by_point[:, :, mine]
        rows = np.hstack([*J])
        H_views[:, :, slot[view]] = rows @ rows.T
        g_views[:, slot[view]] = rows @ residual[:, mine].ravel()
        # A view sees a point once, so that nothing is overwritten.
        product = (J_point[:, :, None] * J[:, None]).sum(axis=0)
        cross[:, :, slot[view], bundle.point[mine]] = product
    return cost, (H_views, g_views, H_points, g_points, cross)


def _solve(H_views, g_views, H_points, g_points, cross, damping):
    """Steps of the views (views, 6) and of the points (points, 3)."""
    views = g_views.shape[1]
    eye3, eye6 = np.eye(3)[:, :, None], np.eye(6)[:, :, None]
    inverses = _inverses(H_points * (1 + damping * eye3))
    step_views = np.empty(0)
    if views:
        cross = cross.reshape(3, 6 * views, -1)
        reduced = [(cross * inverses[i, :, None]).sum(axis=0) for i in range(3)]
        S = np.zeros((6, views, 6, views))
        k = np.arange(views)
        S[:, k, :, k] = np.moveaxis(H_views * (1 + damping * eye6), 2, 0)
        S = S.reshape(6 * views, -1) - sum(a @ b.T for a, b in zip(reduced, cross, strict=True))
        S += 1e-12 * np.trace(S) / len(S) * np.eye(len(S))
        g = g_views.ravel() - sum(a @ b for a, b in zip(reduced, g_points, strict=True))
        step_views = np.linalg.solve(S, g)
        g_points = g_points - step_views @ cross
    return step_views.reshape(6, views).T, (inverses * g_points).sum(axis=1).T


def _inverses(symmetric: np.ndarray) -> np.ndarray:
    """Of (3, 3, N) matrices, by cofactors."""
    (a, b, c), (_, d, e), (_, _, f) = symmetric
    A, B, C = d * f - e**2, c * e - b * f, b * e - c * d
    D, E, F = a * f - c**2, b * c - a * e, a * d - b**2
    return np.array([[A, B, C], [B, D, E], [C, E, F]]) / (a * A + b * B + c * C)
