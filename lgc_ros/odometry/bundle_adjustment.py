"""Bundle adjustment: views and the points they see, refined together.

Poses, steps, units and the loss are those of pose_optimization.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lgc_ros.odometry.pose_optimization import (
    CAUCHY_SIGMAS,
    MIN_DEPTH,
    in_view,
    pose_derivative,
    refine_pose,
    rotation_from_vector,
    whitened,
)
from lgc_ros.runtime.jit import compiled

INITIAL_DAMPING = 1e-4
MIN_DAMPING, MAX_DAMPING = 1e-9, 1e3
# Damping that makes the scale, which nothing determines, no obstacle.
SHIFT_DAMPING = 1e-7
# Converged when a step lowers the cost by less than this part of it.
CONVERGED_GAIN = 1e-4
# Largest part of its depth by which a point comes nearer in one step.
MAX_APPROACH = 0.5


@dataclass(frozen=True, eq=False)
class Bundle:
    """Views, points and observations: observation i is of point[i] in view[i].

    Attributes:
        R_cw, t_cw: (K, 3, 3), (K, 3) poses of the views.
        fixed: (K,) bool, views that are not moved.
        points: (M, 3).
        view, point: (O,) int; each pair at most once.
        observed: (O, 2) normalized.
        whitening: (K, 2, 2) maps offsets in a view to multiples of their standard deviations.
    """

    R_cw: np.ndarray
    t_cw: np.ndarray
    fixed: np.ndarray
    points: np.ndarray
    view: np.ndarray
    point: np.ndarray
    observed: np.ndarray
    whitening: np.ndarray


def bundle_distances(bundle: Bundle) -> np.ndarray:
    """(O,) reprojection errors in standard deviations; infinite behind a camera."""
    b = bundle
    return _distances(b.R_cw, b.t_cw, b.points, b.view, b.point, b.observed, b.whitening)


def warm_up() -> None:
    """Compile the solvers by running them on a minimal problem, so that no frame waits for it."""
    points = np.array([[0.0, 0.0, 1.0]])
    nowhere, here = np.zeros(1, np.int64), np.zeros((1, 3))
    seen, unit = np.zeros((1, 2)), np.eye(2)
    fixed = np.zeros(1, bool)
    bundle = Bundle(np.eye(3)[None], here, fixed, points, nowhere, nowhere, seen, unit[None])
    adjust_bundle(bundle, 1)
    bundle_distances(bundle)
    shared_shift(bundle, seen)
    refine_pose(np.eye(3), here[0], points, seen, unit)


def observed_noise(distances: np.ndarray, point: np.ndarray) -> float:
    """Standard deviation of the observations, relative to the one assumed.

    A point seen in n views has 2 n - 3 degrees of freedom, and the sum of its squared distances
    follows that chi-squared distribution. The median over the points, against the median of the
    distribution (Wilson and Hilferty), is robust against outliers.
    """
    freedom = 2 * np.bincount(point) - 3
    expected = freedom * (1 - 2 / (9 * freedom)) ** 3
    return float(np.sqrt(np.median(np.bincount(point, np.square(distances)) / expected)))


def adjust_bundle(
    bundle: Bundle, max_iterations: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Minimize the robust reprojection cost over free views and all points.

    Levenberg-Marquardt; the points are eliminated first (Schur complement), which leaves six
    unknowns per free view.

    Returns:
        R_cw, t_cw, points, and the (M, 3, 3) covariances of the points given the views.
    """
    b = bundle
    view, point, observed, ends, slot, free = _by_point(b, b.observed)

    def linearized(R_cw, t_cw, points):
        return _linearize(R_cw, t_cw, points, view, point, observed, b.whitening, slot, len(free))

    R_cw, t_cw, points = b.R_cw, b.t_cw, b.points
    cost, system = linearized(R_cw, t_cw, points)
    damping = INITIAL_DAMPING
    for _ in range(max_iterations):
        _, _, H_points, g_points, cross = system
        inverses = _inverses(H_points, damping)
        step_views = np.linalg.solve(*_reduce(*system, inverses, slot, ends, damping))
        step_views = step_views.reshape(-1, 6)
        R_new, t_new = R_cw.copy(), t_cw.copy()
        for k, step in zip(free, step_views, strict=True):
            turn = rotation_from_vector(step[:3])
            R_new[k], t_new[k] = turn @ R_cw[k], turn @ t_cw[k] + step[3:]
        step_points = _substitute(g_points, cross, inverses, slot, ends, step_views)
        points_new = points + _limited(step_points, R_cw, t_cw, points, view, point)
        new_cost, new_system = linearized(R_new, t_new, points_new)
        if new_cost < cost:
            gain = cost - new_cost
            R_cw, t_cw, points = R_new, t_new, points_new
            cost, system, damping = new_cost, new_system, max(damping / 10, MIN_DAMPING)
            if gain < CONVERGED_GAIN * cost:
                break
        else:
            damping *= 10
            if damping > MAX_DAMPING:
                break
    _, _, H_points, _, _ = system
    return R_cw, t_cw, points, _inverses(H_points, 0.0)


def shared_shift(bundle: Bundle, direction: np.ndarray) -> tuple[float, float]:
    """How far all observations are shifted along given directions, with views and points free.

    One Gauss-Newton step for this unknown that all observations share, after the others have
    been eliminated; the bundle must be adjusted.

    Args:
        direction: (O, 2) change of each observation with the unknown.

    Returns:
        The unknown by which `direction` must be multiplied and added to the observations to make
        them fit best, and its standard deviation; infinite if they do not determine it.
    """
    b = bundle
    view, point, observed, ends, slot, free = _by_point(b, b.observed)
    direction = _by_point(b, direction)[2]
    poses = b.R_cw, b.t_cw, b.points
    _, system = _linearize(*poses, view, point, observed, b.whitening, slot, len(free))
    H_views, g_views, H_points, g_points, cross = system
    h, g, s_views, s_points = _linearize_shift(
        *poses, view, point, observed, direction, b.whitening, slot, len(free)
    )
    inverses = _inverses(H_points, SHIFT_DAMPING)
    blocks = cross, inverses, slot, ends, SHIFT_DAMPING
    S, g_reduced = _reduce(H_views, g_views, H_points, g_points, *blocks)
    _, s_reduced = _reduce(H_views, s_views, H_points, s_points, *blocks)
    steps = np.linalg.solve(S, np.column_stack([g_reduced, s_reduced]))
    of_points = np.einsum("mij,mj->mi", inverses, s_points)
    h -= np.sum(of_points * s_points) + s_reduced @ steps[:, 1]
    g -= np.sum(of_points * g_points) + s_reduced @ steps[:, 0]
    return (-g / h, 1 / np.sqrt(h)) if h > 0 else (0.0, np.inf)


def _by_point(bundle: Bundle, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Views, points and values (O, 2) of the observations, in the order of the points.

    Then the end of each point's observations, the slot of each observation's view among the free
    ones (-1 for a fixed one), and the free views.
    """
    b = bundle
    order = np.argsort(b.point * len(b.R_cw) + b.view)
    view, point = b.view[order], b.point[order]
    ends = np.searchsorted(point, np.arange(len(b.points) + 1))
    free = np.flatnonzero(~b.fixed)
    slot = np.full(len(b.R_cw), -1)
    slot[free] = np.arange(len(free))
    return view, point, values[order], ends, slot[view], free


@compiled
def _limited(steps, R_cw, t_cw, points, view, point):
    """Steps (M, 3) of the points, shortened where one would come much nearer to a camera.

    The depth of a point far away is so uncertain that a step may pass the camera, which would
    spoil the step of all others.
    """
    share = np.ones(len(points))
    for o in range(len(view)):
        k, p = view[o], point[o]
        _, _, Z = in_view(R_cw[k], t_cw[k], points[p])
        ahead = R_cw[k, 2, 0] * steps[p, 0] + R_cw[k, 2, 1] * steps[p, 1]
        ahead += R_cw[k, 2, 2] * steps[p, 2]
        if Z > MIN_DEPTH and ahead < -MAX_APPROACH * Z:
            share[p] = min(share[p], -MAX_APPROACH * Z / ahead)
    return share.reshape(-1, 1) * steps


@compiled
def _distances(R_cw, t_cw, points, view, point, observed, whitening):
    distance = np.full(len(view), np.inf)
    for o in range(len(view)):
        X, Y, Z = in_view(R_cw[view[o]], t_cw[view[o]], points[point[o]])
        if Z > MIN_DEPTH:
            distance[o] = np.hypot(
                *whitened(whitening[view[o]], X / Z - observed[o, 0], Y / Z - observed[o, 1])
            )
    return distance


@compiled
def _linearize(R_cw, t_cw, points, view, point, observed, whitening, slot, views):
    """Robust cost and normal equations.

    Blocks of free views (views, 6, 6), (views, 6), of points (M, 3, 3), (M, 3), and between the
    point and the view of each observation (O, 3, 6).
    """
    H_views, g_views = np.zeros((views, 6, 6)), np.zeros((views, 6))
    H_points, g_points = np.zeros((len(points), 3, 3)), np.zeros((len(points), 3))
    cross = np.zeros((len(view), 3, 6))
    J, J_point, residual = np.empty((2, 6)), np.empty((2, 3)), np.empty(2)
    cost = 0.0
    for o in range(len(view)):
        k, p, free = view[o], point[o], slot[o]
        X, Y, Z = in_view(R_cw[k], t_cw[k], points[p])
        z = max(Z, MIN_DEPTH)
        x, y = X / z, Y / z
        u, v = whitened(whitening[k], observed[o, 0] - x, observed[o, 1] - y)
        squared = (u**2 + v**2) / CAUCHY_SIGMAS**2
        cost += np.log1p(squared)
        if Z <= MIN_DEPTH:
            continue
        root = 1 / np.sqrt(1 + squared)
        residual[0], residual[1] = root * u, root * v
        for r in range(2):
            a, b = root / z * whitening[k, r, 0], root / z * whitening[k, r, 1]
            pose_derivative(J[r], a, b, -a * x - b * y, X, Y, Z)
            for i in range(3):
                J_point[r, i] = 0.0
                for c in range(3):
                    J_point[r, i] += J[r, 3 + c] * R_cw[k, c, i]
        for i in range(3):
            g_points[p, i] += J_point[0, i] * residual[0] + J_point[1, i] * residual[1]
            for j in range(3):
                H_points[p, i, j] += J_point[0, i] * J_point[0, j] + J_point[1, i] * J_point[1, j]
        if free < 0:
            continue
        for i in range(6):
            g_views[free, i] += J[0, i] * residual[0] + J[1, i] * residual[1]
            for j in range(6):
                H_views[free, i, j] += J[0, i] * J[0, j] + J[1, i] * J[1, j]
        for i in range(3):
            for j in range(6):
                cross[o, i, j] = J_point[0, i] * J[0, j] + J_point[1, i] * J[1, j]
    for p in range(len(points)):
        least = 1e-9 * (H_points[p, 0, 0] + H_points[p, 1, 1] + H_points[p, 2, 2]) + 1e-12
        for i in range(3):
            H_points[p, i, i] += least
    return cost, (H_views, g_views, H_points, g_points, cross)


@compiled
def _linearize_shift(R_cw, t_cw, points, view, point, observed, direction, whitening, slot, views):
    """Normal equations of one unknown that shifts each observation along its direction.

    Its own second and first derivative, and the mixed ones with views (views, 6) and points
    (M, 3), with the signs of `_linearize`, where g is the negative gradient.
    """
    h, g, s_views, s_points = 0.0, 0.0, np.zeros((views, 6)), np.zeros((len(points), 3))
    J, shift = np.empty(6), np.empty(2)
    for o in range(len(view)):
        k, p, free = view[o], point[o], slot[o]
        X, Y, Z = in_view(R_cw[k], t_cw[k], points[p])
        if Z <= MIN_DEPTH:
            continue
        x, y = X / Z, Y / Z
        u, v = whitened(whitening[k], observed[o, 0] - x, observed[o, 1] - y)
        weight = 1 / (1 + (u**2 + v**2) / CAUCHY_SIGMAS**2)
        shift[0], shift[1] = whitened(whitening[k], direction[o, 0], direction[o, 1])
        h += weight * (shift[0] ** 2 + shift[1] ** 2)
        g += weight * (shift[0] * u + shift[1] * v)
        for r in range(2):
            a, b = whitening[k, r, 0] / Z, whitening[k, r, 1] / Z
            pose_derivative(J, a, b, -a * x - b * y, X, Y, Z)
            for i in range(3):
                for c in range(3):
                    s_points[p, i] += weight * shift[r] * J[3 + c] * R_cw[k, c, i]
            if free >= 0:
                for i in range(6):
                    s_views[free, i] += weight * shift[r] * J[i]
    return h, g, s_views, s_points


@compiled
def _inverses(H_points, damping):
    """Inverses of the damped (3, 3) blocks, by cofactors."""
    inverses = np.empty_like(H_points)
    for p in range(len(H_points)):
        a, d, f = H_points[p, 0, 0], H_points[p, 1, 1], H_points[p, 2, 2]
        b, c, e = H_points[p, 0, 1], H_points[p, 0, 2], H_points[p, 1, 2]
        a, d, f = (1 + damping) * a, (1 + damping) * d, (1 + damping) * f
        A, B, C = d * f - e**2, c * e - b * f, b * e - c * d
        D, E, F = a * f - c**2, b * c - a * e, a * d - b**2
        scale = 1 / (a * A + b * B + c * C)
        inverses[p, 0, 0], inverses[p, 1, 1], inverses[p, 2, 2] = scale * A, scale * D, scale * F
        inverses[p, 0, 1] = inverses[p, 1, 0] = scale * B
        inverses[p, 0, 2] = inverses[p, 2, 0] = scale * C
        inverses[p, 1, 2] = inverses[p, 2, 1] = scale * E
    return inverses


@compiled
def _reduce(H_views, g_views, H_points, g_points, cross, inverses, slot, ends, damping):
    """Reduced system of the free views after eliminating the points (Schur complement)."""
    size = 6 * len(H_views)
    S, g = np.zeros((size, size)), np.empty(size)
    for k in range(len(H_views)):
        for i in range(6):
            g[6 * k + i] = g_views[k, i]
            for j in range(6):
                S[6 * k + i, 6 * k + j] = H_views[k, i, j]
            S[6 * k + i, 6 * k + i] *= 1 + damping
    reduced = np.empty((3, 6))
    for p in range(len(g_points)):
        for o in range(ends[p], ends[p + 1]):
            row = 6 * slot[o]
            if row < 0:
                continue
            for i in range(3):
                for j in range(6):
                    reduced[i, j] = 0.0
                    for k in range(3):
                        reduced[i, j] += inverses[p, i, k] * cross[o, k, j]
            for i in range(6):
                for k in range(3):
                    g[row + i] -= reduced[k, i] * g_points[p, k]
            # Views of a point ascend: this is the lower triangle.
            for other in range(ends[p], o + 1):
                column = 6 * slot[other]
                if column < 0:
                    continue
                for i in range(6):
                    for j in range(6):
                        for k in range(3):
                            S[row + i, column + j] -= reduced[k, i] * cross[other, k, j]
    trace = 0.0
    for i in range(size):
        trace += S[i, i]
        for j in range(i):
            S[j, i] = S[i, j]
    for i in range(size):
        S[i, i] += 1e-12 * trace / size
    return S, g


@compiled
def _substitute(g_points, cross, inverses, slot, ends, step_views):
    """Steps of the points (M, 3) by back-substitution of those of the views (views, 6)."""
    steps = np.empty_like(g_points)
    left = np.empty(3)
    for p in range(len(g_points)):
        for i in range(3):
            left[i] = g_points[p, i]
        for o in range(ends[p], ends[p + 1]):
            if slot[o] >= 0:
                for i in range(3):
                    for j in range(6):
                        left[i] -= cross[o, i, j] * step_views[slot[o], j]
        for i in range(3):
            steps[p, i] = 0.0
            for j in range(3):
                steps[p, i] += inverses[p, i, j] * left[j]
    return steps
