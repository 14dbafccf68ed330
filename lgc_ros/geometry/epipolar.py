"""Two-view geometry of calibrated cameras.

Points are normalized (undistorted, ``x/z, y/z``) unless a name says ``px``. The relative pose
``R_10, t_10`` maps camera 0 into camera 1, ``X1 = R_10 X0 + t_10``, and the essential matrix
``E = [t_10]x R_10`` satisfies ``x1ᵀ E x0 = 0``.
"""

from __future__ import annotations

import numpy as np

# Minimum number of matches of the solvers.
FIVE_POINT_MINIMUM = 5
EIGHT_POINT_MINIMUM = 8


def homogeneous(points: np.ndarray) -> np.ndarray:
    """Homogeneous coordinates of points: (..., 2) to (..., 3)."""
    return np.concatenate([points, np.ones_like(points[..., :1])], axis=-1)


def skew(v: np.ndarray) -> np.ndarray:
    """The matrix [v]x with ``[v]x a = v x a``."""
    x, y, z = v
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def essential_from_pose(R_10: np.ndarray, t_10: np.ndarray) -> np.ndarray:
    """E = [t]x R of a relative pose, with t normalized to unit length."""
    t = np.asarray(t_10, dtype=np.float64).reshape(3)
    return skew(t / np.linalg.norm(t)) @ R_10


def relative_pose(
    R0_cw: np.ndarray, t0_cw: np.ndarray, R1_cw: np.ndarray, t1_cw: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """R_10, t_10 between two cameras from their world-to-camera poses, in the world's unit."""
    R_10 = R1_cw @ R0_cw.T
    return R_10, np.reshape(t1_cw, 3) - R_10 @ np.reshape(t0_cw, 3)


def epipolar_rows(x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
    """Rows of the 8-point system: ``row @ E.ravel() == x1ᵀ E x0`` (matrix X of section 3.3)."""
    return (homogeneous(x1)[:, :, None] * homogeneous(x0)[:, None, :]).reshape(-1, 9)


def weighted_eight_point(
    x0: np.ndarray,
    x1: np.ndarray,
    weights: np.ndarray | None = None,
    conditioned: bool = False,
) -> np.ndarray:
    """Section 3.3: the unit-norm E that minimizes ``Vec(E)ᵀ Xᵀ diag(w) X Vec(E)``.

    Matches of weight zero are left out, so that they have no influence even if their coordinates
    are not finite. E is not projected to rank 2.

    Args:
        conditioned: normalize the points first (Hartley), which is more accurate for narrow fields
            of view than the paper's plain form.

    Raises:
        ValueError: fewer than eight matches have a positive weight.
    """
    if weights is not None:
        used = weights > 0
        x0, x1, weights = x0[used], x1[used], weights[used]
    weights = np.ones(len(x0)) if weights is None else weights
    return eight_point_solutions(x0, x1, weights, 1, conditioned)[0]


def eight_point_solutions(
    x0: np.ndarray,
    x1: np.ndarray,
    weights: np.ndarray,
    count: int,
    conditioned: bool = True,
) -> np.ndarray:
    """(count, 3, 3) unit-norm solutions of the 8-point system, best first.

    They are orthogonal to each other in the coordinates in which the system is solved. All weights
    must be positive; see :func:`weighted_eight_point` for the rest.
    """
    if len(x0) < EIGHT_POINT_MINIMUM:
        raise ValueError(f"the 8-point algorithm needs 8 correspondences, got {len(x0)}")
    if conditioned:
        (x0, T0), (x1, T1) = _condition(x0, weights), _condition(x1, weights)
    X = epipolar_rows(x0, x1)
    _, vectors = np.linalg.eigh((X * weights[:, None]).T @ X)
    E = vectors[:, :count].T.reshape(-1, 3, 3)
    if conditioned:
        E = T1.T @ E @ T0
        E /= np.linalg.norm(E, axis=(1, 2), keepdims=True)
    return E


def _condition(x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points with weighted mean 0 and mean square √2², and the 3x3 transform to them."""
    mean = weights @ x / weights.sum()
    spread = np.sqrt(weights @ ((x - mean) ** 2).sum(1) / weights.sum())
    scale = np.sqrt(2.0) / max(spread, np.finfo(np.float64).tiny)
    T = np.array([[scale, 0.0, -scale * mean[0]], [0.0, scale, -scale * mean[1]], [0, 0, 1.0]])
    return (x - mean) * scale, T


def project_to_essential(E: np.ndarray) -> np.ndarray:
    """The nearest essential matrix: singular values (1, 1, 0), up to scale (Frobenius)."""
    U, _, Vt = np.linalg.svd(E)
    return U @ np.diag([1.0, 1.0, 0.0]) @ Vt


def decompose_essential(E: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two possible rotations and the unit translation, up to sign, of E."""
    U, _, Vt = np.linalg.svd(E)
    U = U * np.sign(np.linalg.det(U))
    Vt = Vt * np.sign(np.linalg.det(Vt))
    W = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    return U @ W @ Vt, U @ W.T @ Vt, U[:, 2]


def ray_depths(
    R_10: np.ndarray, t_10: np.ndarray, x0: np.ndarray, x1: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Depths (z) in camera 0 and 1 of the closest points of the two rays of each match.

    In the unit of ``t_10``. Parallel rays give infinite or arbitrary depths.
    """
    a = homogeneous(x0) @ R_10.T
    b = homogeneous(x1)
    normal = np.cross(a, b)
    squared = np.maximum(np.einsum("ij,ij->i", normal, normal), np.finfo(np.float64).tiny)
    depth0 = np.einsum("ij,ij->i", normal, np.cross(b, t_10)) / squared
    depth1 = np.einsum("ij,ij->i", normal, np.cross(a, t_10)) / squared
    return depth0, depth1


def recover_pose(
    E: np.ndarray, x0: np.ndarray, x1: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The decomposition of E with most points (or most weight) in front of both cameras.

    Returns:
        R_10, unit t_10, and the mask of points in front of both cameras.
    """
    R_a, R_b, t = decompose_essential(E)
    weights = np.ones(len(x0)) if weights is None else weights
    candidates = []
    for R in (R_a, R_b):
        depth0, depth1 = ray_depths(R, t, x0, x1)
        for sign in (1.0, -1.0):
            in_front = (sign * depth0 > 0) & (sign * depth1 > 0)
            vote = float(weights[in_front].sum())
            candidates.append((vote, R, sign * t, in_front))
    _, R_10, t_10, in_front = max(candidates, key=lambda candidate: candidate[0])
    return R_10, t_10, in_front


def symmetric_epipolar_distance(E: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
    """Squared distance to the epipolar line (equation 8), summed over both images.

    With undistorted pixels and a fundamental matrix it is in px².
    """
    residual, line1, line0 = _epipolar_terms(E, x0, x1)
    return residual**2 * (1.0 / _positive(line1) + 1.0 / _positive(line0))


def sampson_distance(E: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
    """Squared Sampson distance: first-order approximation of the squared reprojection error."""
    residual, line1, line0 = _epipolar_terms(E, x0, x1)
    return residual**2 / _positive(line1 + line0)


def _epipolar_terms(E, x0, x1):
    """``x1ᵀ E x0`` and the squared normals of the epipolar lines in image 1 and image 0."""
    h0, h1 = homogeneous(x0), homogeneous(x1)
    lines1 = h0 @ E.T
    lines0 = h1 @ E
    residual = np.einsum("ij,ij->i", h1, lines1)
    return residual, (lines1[:, :2] ** 2).sum(1), (lines0[:, :2] ** 2).sum(1)


def _positive(values):
    return np.maximum(values, np.finfo(np.float64).tiny)


def triangulate_angular(
    R_10: np.ndarray, t_10: np.ndarray, x0: np.ndarray, x1: np.ndarray
) -> np.ndarray:
    """Triangulation with the smallest squared angular error: (N, 3) points in camera 0.

    Both rays are rotated by the smallest angles (sum of squared sines) that make them intersect,
    after Lee and Civera, "Closed-Form Optimal Two-View Triangulation Based on Angular Errors"
    (2019). Unlike linear triangulation it does not depend on depth or choice of coordinates.
    """
    t = np.asarray(t_10, dtype=np.float64).reshape(3)
    a = _unit(homogeneous(x0) @ R_10.T)
    b = _unit(homogeneous(x1))
    # The corrected epipolar plane contains t, so its normal is perpendicular to t.
    _, _, basis = np.linalg.svd(t[None])
    across = basis[1:]
    a2, b2 = a @ across.T, b @ across.T
    scatter = a2[:, :, None] * a2[:, None, :] + b2[:, :, None] * b2[:, None, :]
    _, vectors = np.linalg.eigh(scatter)
    normal = vectors[:, :, 0] @ across
    a = a - np.einsum("ij,ij->i", a, normal)[:, None] * normal
    b = b - np.einsum("ij,ij->i", b, normal)[:, None] * normal
    cross = np.cross(a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.einsum("ij,ij->i", cross, np.cross(b, t)) / np.einsum("ij,ij->i", cross, cross)
        return (length[:, None] * a) @ R_10


def _unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def rotation_error_deg(R: np.ndarray, R_gt: np.ndarray) -> float:
    """Angle in degrees between two rotations, accurate for small angles."""
    half_chord = np.linalg.norm(np.asarray(R) - R_gt) / (2.0 * np.sqrt(2.0))
    return float(np.degrees(2.0 * np.arcsin(min(half_chord, 1.0))))


def translation_error_deg(t: np.ndarray, t_gt: np.ndarray, signed: bool = False) -> float:
    """Angle in degrees between two directions, up to sign unless ``signed``."""
    t, t_gt = np.reshape(t, 3), np.reshape(t_gt, 3)
    along = float(t @ t_gt)
    across = float(np.linalg.norm(np.cross(t, t_gt)))
    return float(np.degrees(np.arctan2(across, along if signed else abs(along))))


def parallax_deg(R_10: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
    """Angle in degrees between the two viewing rays of each match, without the rotation."""
    a = _unit(homogeneous(x0) @ R_10.T)
    b = _unit(homogeneous(x1))
    across = np.linalg.norm(np.cross(a, b), axis=1)
    return np.degrees(np.arctan2(across, np.einsum("ij,ij->i", a, b)))
