"""Points from matches of two views whose motion is known.

Where parallax is small, as when a camera turns on the spot, depths are imprecise, and infinity may
be within the noise. To accept only those that seem precise would select the points that noise has
brought nearer, and a map that goes through a turn on them shrinks. Such points are therefore
placed by their inverse depth, whose noise is Gaussian even so, and keep a covariance that says how
little is known about them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lgc_ros.geometry.epipolar import homogeneous, triangulate_angular
from lgc_ros.odometry.pose_optimization import project

# Largest relative standard deviation of a depth that is known.
MAX_DEPTH_SIGMA = 0.3
# Reprojection errors beyond this many standard deviations are outliers. The threshold is generous:
# rolling shutter and imperfect calibration shift true matches, too, whole regions together.
OUTLIER_SIGMAS = 8.0
# The same for points of little parallax, whose depth errors as large would change at will, and for
# patches, whose noise is measured in every frame.
STRICT_OUTLIER_SIGMAS = 4.0
# If a smaller share of the matches can be triangulated, the parallax of the views is too small.
# Otherwise, those that cannot be are outliers for the most part.
MIN_PRECISE_SHARE = 0.4
# Points that may be at infinity are placed where their inverse depth is this part of its standard
# deviation.
FARTHEST_SIGMAS = 0.5


@dataclass(frozen=True, eq=False)
class TwoViews:
    """Matches of two views.

    Attributes:
        R_10, t_10: motion from camera 0 to camera 1, in map units.
        x0, x1: (N, 2) matched keypoints, normalized.
        whitening0, whitening1: (2, 2) map offsets to multiples of their standard deviations.
    """

    R_10: np.ndarray
    t_10: np.ndarray
    x0: np.ndarray
    x1: np.ndarray
    whitening0: np.ndarray
    whitening1: np.ndarray

    def covariances(self, points0: np.ndarray, prior: np.ndarray | float = 0.0) -> np.ndarray:
        """(N, 3, 3) covariances of points in camera 0.

        Args:
            prior: (N,) what is known about their depths otherwise, inverse variances.
        """
        _, J0 = project(points0)
        _, J1 = project(points0 @ self.R_10.T + self.t_10)
        information = _square(self.whitening0 @ J0) + _square(self.whitening1 @ J1 @ self.R_10)
        information += 1e-12 * np.eye(3) * np.trace(information, axis1=1, axis2=2)[:, None, None]
        information[:, 2, 2] += prior
        return np.linalg.inv(information)


def triangulate_precise(views: TwoViews) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triangulate matches.

    Returns:
        Mask (N,) of the good points (in front of both cameras, close to both rays, of known
        depth), points (N, 3) in camera 0, and their covariances (N, 3, 3).
    """
    v, n = views, len(views.x0)
    baseline = np.linalg.norm(v.t_10)
    if baseline == 0 or n == 0:
        return np.zeros(n, bool), np.zeros((n, 3)), np.zeros((n, 3, 3))
    points0 = baseline * triangulate_angular(v.R_10, v.t_10 / baseline, v.x0, v.x1)
    good = np.isfinite(points0).all(axis=1)
    points0[~good] = 1.0
    points1 = points0 @ v.R_10.T + v.t_10
    good &= (points0[:, 2] > 0) & (points1[:, 2] > 0)
    for points, x, whitening in ((points0, v.x0, v.whitening0), (points1, v.x1, v.whitening1)):
        offset = (project(points)[0] - x) @ whitening.T
        good &= np.linalg.norm(offset, axis=1) < OUTLIER_SIGMAS
    covariances0 = v.covariances(points0)
    good &= np.sqrt(covariances0[:, 2, 2]) < MAX_DEPTH_SIGMA * points0[:, 2]
    return good, points0, covariances0


def place_points(views: TwoViews, scene_depth: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place points whose parallax is too small to triangulate them.

    Args:
        scene_depth: typical depth in view 0. The inverse depth of a point is expected to be the
            inverse of it, with a standard deviation as large, so that infinity is likely, too.

    Returns:
        As `triangulate_precise`; good are points that agree with the prior and lie close to their
        epipolar lines.
    """
    v, prior = views, 1 / scene_depth
    at_infinity, J = project(homogeneous(v.x0) @ v.R_10.T)
    along, offset = J @ v.t_10, v.x1 - at_infinity
    noise = sum(np.linalg.inv(_square(w[None])[0]) for w in (v.whitening0, v.whitening1))
    information = np.linalg.inv(noise)
    weighted = along @ information
    # The posterior of the inverse depth, and the distance of the match from it.
    variance = 1 / (np.einsum("ni,ni->n", weighted, along) + 1 / prior**2)
    inverse = variance * (np.einsum("ni,ni->n", weighted, offset) + 1 / prior)
    left = offset - inverse[:, None] * along
    squared = np.einsum("ni,ij,nj->n", left, information, left) + (inverse / prior - 1) ** 2
    inverse = np.maximum(inverse, FARTHEST_SIGMAS * np.sqrt(variance))
    points0 = homogeneous(v.x0) / inverse[:, None]
    ahead = (points0 @ v.R_10.T + v.t_10)[:, 2] > 0
    good = ahead & (squared < STRICT_OUTLIER_SIGMAS**2)
    return good, points0, v.covariances(points0, (inverse**2 / prior) ** 2)


def _square(J: np.ndarray) -> np.ndarray:
    return J.transpose(0, 2, 1) @ J
