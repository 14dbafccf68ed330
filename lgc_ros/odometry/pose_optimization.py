"""Robust least squares on reprojection errors: one pose, or a rotation.

Poses are world to camera, `X_c = R_cw X_w + t_cw`; a step `(omega, v)` changes them on the left,
`X_c' = exp(omega) X_c + v`. Observations are normalized; `whitening` (2, 2) maps offsets from
them to multiples of their standard deviations. A Cauchy loss limits the influence of outliers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lgc_ros.geometry.epipolar import homogeneous
from lgc_ros.runtime.jit import compiled

POSE_ITERATIONS = 10
# Converged when a step is this small, in standard deviations of the pose.
CONVERGED_SIGMAS = 1e-2
# With this scale the Cauchy loss has 95 % of the efficiency of least squares on Gaussian noise.
CAUCHY_SIGMAS = 2.385
MIN_DEPTH = 1e-6
# Refinements of a pose that is far off, each with a narrower loss.
NARROWINGS = 3
# Largest standard deviation of a pose, in radians and in depths of its points. Real and rendered
# sequences stay ten times below, even with 16 landmarks.
MAX_POSE_SIGMA = 0.1
# Two matches of this many samples give a rotation each. If half of the matches agree on one, two
# that do are among them with a probability of 1 - 0.75**50.
ROTATION_SAMPLES = 50
# Medians of the squares of one and of two Gaussian residuals, in variances.
MEDIAN_OF_ONE = 0.4549
MEDIAN_OF_TWO = 2 * np.log(2)


@dataclass(frozen=True, eq=False)
class RefinedPose:
    """A pose at the minimum of the cost.

    Attributes:
        covariance: (6, 6) of the step (omega, v) at the solution, scaled by the residuals.
        distance: (N,) residuals in standard deviations of their observations; infinite for points
            that are not in front of the camera, which cannot be seen from there.
    """

    R_cw: np.ndarray
    t_cw: np.ndarray
    covariance: np.ndarray
    distance: np.ndarray


@compiled
def rotation_from_vector(omega: np.ndarray) -> np.ndarray:
    """The rotation about `omega` by its length in radians."""
    x, y, z = omega[0], omega[1], omega[2]
    angle = np.sqrt(x**2 + y**2 + z**2)
    if angle < 1e-8:
        along, across = 1.0, 0.5
    else:
        along, across = np.sin(angle) / angle, (1 - np.cos(angle)) / angle**2
    R = np.empty((3, 3))
    R[0, 0] = 1 - across * (y**2 + z**2)
    R[1, 1] = 1 - across * (x**2 + z**2)
    R[2, 2] = 1 - across * (x**2 + y**2)
    R[0, 1], R[1, 0] = across * x * y - along * z, across * x * y + along * z
    R[0, 2], R[2, 0] = across * x * z + along * y, across * x * z - along * y
    R[1, 2], R[2, 1] = across * y * z - along * x, across * y * z + along * x
    return R


def project(points_cam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normalized coordinates (N, 2) of points in the camera and their Jacobian (N, 2, 3)."""
    z = np.maximum(points_cam[:, 2], MIN_DEPTH)
    x = points_cam[:, :2] / z[:, None]
    J = np.zeros((len(z), 2, 3))
    J[:, 0, 0] = J[:, 1, 1] = 1 / z
    J[:, :, 2] = -x / z[:, None]
    return x, J


@compiled
def in_view(R_cw, t_cw, point):
    """Coordinates of a point in a camera."""
    x, y, z = point[0], point[1], point[2]
    return (
        R_cw[0, 0] * x + R_cw[0, 1] * y + R_cw[0, 2] * z + t_cw[0],
        R_cw[1, 0] * x + R_cw[1, 1] * y + R_cw[1, 2] * z + t_cw[1],
        R_cw[2, 0] * x + R_cw[2, 1] * y + R_cw[2, 2] * z + t_cw[2],
    )


@compiled
def whitened(whitening, u, v):
    """An offset in a view, in standard deviations."""
    return (
        whitening[0, 0] * u + whitening[0, 1] * v,
        whitening[1, 0] * u + whitening[1, 1] * v,
    )


@compiled
def pose_derivative(row, a, b, c, X, Y, Z):
    """Fill `row` (6,): the change with the step of what changes by (a, b, c) with the point.

    The step (omega, v) moves the point (X, Y, Z) in the camera by omega x (X, Y, Z) + v.
    """
    row[0], row[1], row[2] = c * Y - b * Z, a * Z - c * X, b * X - a * Y
    row[3], row[4], row[5] = a, b, c


def _cauchy(squared: np.ndarray) -> np.ndarray:
    """Weights of squared distances in standard deviations."""
    return 1 / (1 + squared / CAUCHY_SIGMAS**2)


def refine_pose(
    R_cw: np.ndarray,
    t_cw: np.ndarray,
    points: np.ndarray,
    observed: np.ndarray,
    whitening: np.ndarray,
    point_covariances: np.ndarray | None = None,
    hold_center: bool = False,
) -> RefinedPose:
    """The pose of a camera that sees `points` (N, 3) of the world at `observed` (N, 2).

    With `point_covariances` (N, 3, 3) a point of uncertain depth counts only across its ray, where
    it still constrains the rotation. `hold_center` lets the camera only rotate about its center.
    """
    # Rotating about the center is a step with v = 0 in the camera frame.
    free = slice(0, 3) if hold_center else slice(0, 6)
    # Row-major for the compiled loops; PoseLib's arrays are column-major.
    R_cw, t_cw = np.array(R_cw, order="C"), np.array(t_cw)
    center = -R_cw.T @ t_cw
    if point_covariances is None:
        point_covariances = np.zeros((len(points), 3, 3))
    noise = np.linalg.inv(whitening.T @ whitening)
    for _ in range(POSE_ITERATIONS):
        H, g, squared = _normal_equations(R_cw, t_cw, points, point_covariances, observed, noise)
        H, g = H[free, free], g[free]
        H += (1e-9 * np.trace(H) / len(H) + 1e-12) * np.eye(len(H))
        step = np.linalg.solve(H, g)
        turn = rotation_from_vector(step)
        R_cw = turn @ R_cw
        t_cw = -R_cw @ center if hold_center else turn @ t_cw + step[3:]
        if step @ H @ step < CONVERGED_SIGMAS**2:
            break
    # The last step may have moved the camera past points.
    squared[points @ R_cw[2] + t_cw[2] <= MIN_DEPTH] = np.inf
    excess = residual_scale(squared[np.isfinite(squared)], MEDIAN_OF_TWO)
    covariance = np.zeros((6, 6))
    covariance[free, free] = excess * np.linalg.inv(H)
    return RefinedPose(R_cw, t_cw, covariance, np.sqrt(squared))


def refine_far_pose(
    R_cw: np.ndarray,
    t_cw: np.ndarray,
    points: np.ndarray,
    observed: np.ndarray,
    whitening: np.ndarray,
    point_covariances: np.ndarray,
) -> RefinedPose:
    """As `refine_pose`, from a pose whose residuals may be far larger than the noise.

    The loss narrows from the size of the residuals to that of the noise. A narrow loss alone
    would keep the guess, if only a few observations support it: patches that are searched for
    around it are often mistaken for others there.
    """
    for _ in range(NARROWINGS):
        offsets = (project(points @ R_cw.T + t_cw)[0] - observed) @ whitening.T
        spread = residual_scale(np.square(offsets).sum(axis=1), MEDIAN_OF_TWO)
        wide = refine_pose(
            R_cw, t_cw, points, observed, whitening / np.sqrt(spread), point_covariances
        )
        R_cw, t_cw = wide.R_cw, wide.t_cw
    return refine_pose(R_cw, t_cw, points, observed, whitening, point_covariances)


def is_determined(pose: RefinedPose, points: np.ndarray) -> bool:
    """Whether a pose is precise enough, relative to the depth of the points it rests on."""
    depth = np.median(points @ pose.R_cw[2] + pose.t_cw[2])
    variances = np.diag(pose.covariance) / np.repeat([1.0, depth], 3) ** 2
    return bool(max(variances[:3].sum(), variances[3:].sum()) <= MAX_POSE_SIGMA**2)


@compiled
def _normal_equations(R_cw, t_cw, points, point_covariances, observed, noise):
    """Of one step (6, 6), (6,), and the (N,) squared residuals in variances.

    Points that are not in front of the camera say nothing, and their residuals are infinite.
    """
    H, g, squared = np.zeros((6, 6)), np.zeros(6), np.zeros(len(points))
    J, J_point, JW = np.empty((2, 6)), np.empty((2, 3)), np.empty((2, 6))
    for n in range(len(points)):
        X, Y, Z = in_view(R_cw, t_cw, points[n])
        if Z <= MIN_DEPTH:
            squared[n] = np.inf
            continue
        x, y = X / Z, Y / Z
        pose_derivative(J[0], 1 / Z, 0.0, -x / Z, X, Y, Z)
        pose_derivative(J[1], 0.0, 1 / Z, -y / Z, X, Y, Z)
        for i in range(2):
            for j in range(3):
                J_point[i, j] = 0.0
                for k in range(3):
                    J_point[i, j] += J[i, 3 + k] * R_cw[k, j]
        a, b, d = noise[0, 0], noise[0, 1], noise[1, 1]
        for i in range(3):
            for j in range(3):
                a += J_point[0, i] * point_covariances[n, i, j] * J_point[0, j]
                b += J_point[0, i] * point_covariances[n, i, j] * J_point[1, j]
                d += J_point[1, i] * point_covariances[n, i, j] * J_point[1, j]
        determinant = a * d - b**2
        # A point that a step has brought next to the camera projects with a derivative so large
        # that rounding leaves nothing to invert.
        if not determinant > 1e-12 * a * d:
            squared[n] = np.inf
            continue
        u, v = observed[n, 0] - x, observed[n, 1] - y
        squared[n] = (d * u**2 - 2 * b * u * v + a * v**2) / determinant
        weight = 1 / (determinant * (1 + squared[n] / CAUCHY_SIGMAS**2))
        for i in range(6):
            JW[0, i] = weight * (d * J[0, i] - b * J[1, i])
            JW[1, i] = weight * (a * J[1, i] - b * J[0, i])
        for i in range(6):
            g[i] += JW[0, i] * u + JW[1, i] * v
            for j in range(6):
                H[i, j] += JW[0, i] * J[0, j] + JW[1, i] * J[1, j]
    return H, g, squared


def residual_scale(squared: np.ndarray, expected: float) -> float:
    """Variance of the residuals relative to the assumed one, at least 1.

    Robust: the median of their squares over the one `expected` for Gaussian residuals,
    MEDIAN_OF_ONE or, for both coordinates of a point, MEDIAN_OF_TWO.
    """
    return max(1.0, float(np.median(squared)) / expected) if len(squared) else 1.0


def fit_rotation(
    x0: np.ndarray, x1: np.ndarray, sigma: float, iterations: int = 15
) -> tuple[np.ndarray, np.ndarray]:
    """The rotation R_10 that aligns more than half of the rays of camera 0 with those of camera 1.

    The fit begins with the rotation of two matches that leaves the least median angle. One of all
    matches would begin between the true rotation and that of outliers that agree with each other,
    as those of a repeated texture do, and stay there.

    Returns:
        R_10 and (N,) angles in radians left between the rays: parallax and noise.
    """
    a, b = (h / np.linalg.norm(h, axis=1, keepdims=True) for h in map(homogeneous, (x0, x1)))
    pairs = np.random.default_rng(0).integers(len(a), size=(ROTATION_SAMPLES, 2))
    samples = _aligning(b[pairs].transpose(0, 2, 1) @ a[pairs])
    angle = min((_sines(R_10, a, b) for R_10 in samples), key=np.median)
    for _ in range(iterations):
        # Graduated: the loss narrows from the size of the residuals to that of the noise.
        scale = max(sigma, float(np.median(angle)))
        weight = _cauchy((angle / scale) ** 2)
        R_10 = _aligning((b * weight[:, None]).T @ a)
        angle = _sines(R_10, a, b)
    return R_10, np.arcsin(np.minimum(angle, 1.0))


def _aligning(moments: np.ndarray) -> np.ndarray:
    """(..., 3, 3) rotations of rays a into rays b, from the sums of their products b aᵀ."""
    U, _, Vt = np.linalg.svd(moments)
    U[..., 2] *= np.linalg.det(U @ Vt)[..., None]
    return np.asarray(U @ Vt)


@compiled
def _sines(R_10, a, b):
    """(N,) sines of the angles between rays b and the turned rays a, all of unit length."""
    sines, nowhere = np.empty(len(a)), np.zeros(3)
    for n in range(len(a)):
        x, y, z = in_view(R_10, nowhere, a[n])
        X, Y, Z = b[n, 0], b[n, 1], b[n, 2]
        sines[n] = np.sqrt((y * Z - z * Y) ** 2 + (z * X - x * Z) ** 2 + (x * Y - y * X) ** 2)
    return sines
