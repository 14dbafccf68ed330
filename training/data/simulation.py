"""Endless simulated two-view geometry: matches without images.

A pair is generated in six steps: cameras, motion, keypoints of image 0 on surfaces, their
projections, the choice of true matches, and the outliers. Lengths are in units of the scene's mean
depth; coordinates are normalized.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry import epipolar as geometry
from training.data.dump import LabeledPair
from training.data.keypoint_frames import rotation_change

ASPECTS = (0.75, 0.75, 2 / 3, 9 / 16, 0.3, 4 / 3, 1.5)
MIN_VISIBLE = 0.15
MAX_TRIES = 50


@dataclass(frozen=True)
class SimulatedCamera:
    """A pinhole camera as the half extents of its image plane and its focal length in pixels."""

    half_width: float
    half_height: float
    focal_px: float

    def contains(self, x: np.ndarray) -> np.ndarray:
        return (np.abs(x[:, 0]) < self.half_width) & (np.abs(x[:, 1]) < self.half_height)

    @property
    def K(self) -> np.ndarray:
        cx, cy = self.half_width * self.focal_px, self.half_height * self.focal_px
        return np.array([[self.focal_px, 0, cx], [0, self.focal_px, cy], [0, 0, 1]], np.float32)


def simulate_pair(rng: np.random.Generator, matches: int) -> LabeledPair:
    """One labeled pair of ``matches`` putative matches, 2 to 70 % of them true."""
    for _ in range(MAX_TRIES):
        view0 = random_camera(rng)
        view1 = view0 if rng.random() < 0.6 else random_camera(rng)
        x0 = random_keypoints(rng, view0, matches)
        X0 = geometry.homogeneous(x0) / random_inverse_depths(rng, x0)[:, None]
        R_10, t_10 = random_motion(rng)
        X1 = X0 @ R_10.T + t_10
        x1 = X1[:, :2] / np.maximum(X1[:, 2:], 1e-6)
        visible = (X1[:, 2] > 0.05) & view1.contains(x1)
        if visible.mean() > MIN_VISIBLE:
            break
    inlier_ratio = np.exp(rng.uniform(np.log(0.02), np.log(0.7)))
    true = choose_true_matches(rng, x0, visible, inlier_ratio)
    noise0 = random_noise(rng, matches) / view0.focal_px
    noise1 = random_noise(rng, matches) / view1.focal_px
    wrong, copied = outliers(rng, view1, X0, X1, x1, visible, R_10, t_10)
    x1 = np.where(true[:, None], x1 + noise1, wrong)
    ratio, mutual, descriptor_distance = random_distinctiveness(rng, true)
    zoom, roll = random_frames(rng, true, true | copied)
    zoom = np.where(true | copied, zoom + np.log2(X0[:, 2] / np.maximum(X1[:, 2], 0.05)), zoom)
    roll = roll + rotation_change(R_10, x0)[1]
    x0 = x0 + noise0
    E = geometry.essential_from_pose(R_10, t_10)
    return LabeledPair(
        xs=np.hstack([x0, x1]).astype(np.float32),
        ys=geometry.symmetric_epipolar_distance(E, x0, x1).astype(np.float32),
        R_10=R_10.astype(np.float32),
        t_10=(t_10 / np.linalg.norm(t_10)).astype(np.float32),
        ratio=ratio,
        mutual=mutual,
        zoom=zoom.astype(np.float32),
        roll=roll.astype(np.float32),
        descriptor_distance=descriptor_distance,
        K0=view0.K,
        K1=view1.K,
    )


def random_camera(rng: np.random.Generator) -> SimulatedCamera:
    """Horizontal field of view 28 to 95 degrees, 600 to 1300 px wide, common aspect ratios."""
    half_width = np.tan(np.radians(np.exp(rng.uniform(np.log(28), np.log(95)))) / 2)
    return SimulatedCamera(
        half_width, half_width * rng.choice(ASPECTS), rng.uniform(300, 650) / half_width
    )


def random_keypoints(rng: np.random.Generator, view: SimulatedCamera, count: int) -> np.ndarray:
    """Keypoints in clusters of different density, and some uniformly distributed ones."""
    half = np.array([view.half_width, view.half_height])
    clusters = rng.integers(3, 25)
    centers = rng.uniform(-1, 1, (clusters, 2))
    spreads = np.exp(rng.uniform(np.log(0.03), np.log(0.5), clusters))
    member = rng.choice(clusters, count, p=rng.dirichlet(np.full(clusters, 0.7)))
    points = centers[member] + spreads[member, None] * rng.standard_normal((count, 2))
    uniform = rng.random(count) < rng.uniform(0.05, 0.6)
    points[uniform] = rng.uniform(-1, 1, (uniform.sum(), 2))
    outside = np.abs(points).max(axis=1) > 1
    points[outside] = rng.uniform(-1, 1, (outside.sum(), 2))
    # Detectors fire more than once on a strong corner, with several orientations.
    repeated = rng.random(count) < 0.1
    points[repeated] = points[rng.integers(0, count, repeated.sum())]
    return points * half


def random_inverse_depths(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Inverse depth of each keypoint: planes and boxes by image region, or isolated points.

    A plane has an inverse depth that is affine in the image, whatever its pose.
    """
    surfaces = rng.integers(1, 9)
    extent = np.abs(x).max()
    seeds = rng.uniform(-extent, extent, (surfaces, 2))
    region = ((x[:, None] - seeds) ** 2).sum(-1).argmin(1)
    relief = rng.uniform(0.05, 1.2)
    offset = np.exp(relief * rng.standard_normal(surfaces))
    slope = offset[:, None] * rng.normal(0, rng.uniform(0, 0.8), (surfaces, 2)) / extent
    inverse = offset[region] + ((x - seeds[region]) * slope[region]).sum(1)
    loose = rng.random(len(x)) < rng.choice([0.0, 0.1, 0.5, 1.0], p=[0.4, 0.3, 0.2, 0.1])
    inverse[loose] = np.exp(relief * rng.standard_normal(loose.sum()))
    inverse = np.clip(inverse, 0.05, 20)
    return inverse / np.median(inverse)


def random_motion(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """R_10, t_10 of an orbiting, forward, sideways, free or nearly rotating camera."""
    kind = rng.choice(["orbit", "forward", "sideways", "free", "rotation"])
    wobble = axangle2mat(rng.standard_normal(3), np.radians(rng.normal(0, 4)))
    if kind == "orbit":
        # Around a point in front, as one walks around an object or past a facade.
        axis = np.array([0.0, 1.0, 0.0]) + 0.3 * rng.standard_normal(3)
        turn = axangle2mat(axis, np.radians(rng.choice([-1, 1]) * rng.uniform(3, 60)))
        target = np.array([0, 0, rng.uniform(0.7, 1.3)])
        zoom = np.exp(rng.normal(0, 0.3))
        R, t = turn, zoom * target - turn @ target
    elif kind == "forward":
        center = rng.choice([-1, 1]) * rng.uniform(0.03, 0.6) * _direction(rng, [0, 0, 1], 0.15)
        R = axangle2mat([0, 1, 0], np.radians(rng.normal(0, 6)))
        t = -R @ center
    elif kind == "sideways":
        center = rng.uniform(0.03, 0.8) * _direction(rng, [rng.choice([-1, 1]), 0, 0], 0.3)
        # Turning back toward the scene keeps it in view.
        R = axangle2mat([0, 1, 0], np.radians(rng.uniform(-0.3, 1.1) * 45) * center[0])
        t = -R @ center
    elif kind == "free":
        R = axangle2mat(rng.standard_normal(3), np.radians(rng.normal(0, 20)))
        t = -R @ (rng.uniform(0.05, 0.7) * _direction(rng, [0, 0, 0], 1.0))
    else:
        R = axangle2mat(rng.standard_normal(3), np.radians(rng.uniform(0, 30)))
        t = -R @ (rng.uniform(0.005, 0.05) * _direction(rng, [0, 0, 0], 1.0))
    roll = rng.normal(0, 4) if rng.random() < 0.85 else rng.uniform(-180, 180)
    turn = axangle2mat([0, 0, 1], np.radians(roll)) @ wobble
    return turn @ R, turn @ t


def _direction(rng: np.random.Generator, mean: list[float], spread: float) -> np.ndarray:
    vector = np.asarray(mean, dtype=np.float64) + spread * rng.standard_normal(3)
    return vector / np.linalg.norm(vector)


def choose_true_matches(
    rng: np.random.Generator, x0: np.ndarray, visible: np.ndarray, inlier_ratio: float
) -> np.ndarray:
    """Mask of visible keypoints with a true match; denser where texture is distinctive."""
    count = min(round(inlier_ratio * len(x0)), int(visible.sum()))
    count = max(count, min(10, int(visible.sum())))
    spots = x0[rng.integers(0, len(x0), rng.integers(1, 6))]
    nearest = np.sqrt(((x0[:, None] - spots) ** 2).sum(-1).min(1))
    reach = np.median(nearest) * np.exp(rng.uniform(-1, 2)) + 1e-9
    appeal = np.exp(-nearest / reach) + 1e-3
    # Weighted sampling without replacement: the largest of Gumbel-perturbed log weights.
    key = np.log(appeal) + rng.gumbel(size=len(x0))
    key[~visible] = -np.inf
    true = np.zeros(len(x0), dtype=bool)
    true[np.argsort(-key)[:count]] = True
    return true


def random_noise(rng: np.random.Generator, count: int) -> np.ndarray:
    """Keypoint noise in pixels, with a heavy tail: some keypoints are far worse than others."""
    level = rng.uniform(0.2, 1.2) * np.exp(0.5 * rng.standard_normal((count, 1)))
    return level * rng.standard_normal((count, 2))


def outliers(
    rng: np.random.Generator,
    view1: SimulatedCamera,
    X0: np.ndarray,
    X1: np.ndarray,
    x1: np.ndarray,
    visible: np.ndarray,
    R_10: np.ndarray,
    t_10: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions in image 1 of an outlier for every keypoint, and which of them look similar.

    There are three kinds of outliers, mixed differently in each pair: any keypoint of image 1,
    some of which attract many matches; a position near the true one (fine texture); and the true
    position on a neighboring copy of a repeated structure, on which many outliers agree. The
    latter two look similar to the true match.
    """
    count = len(x1)
    seen = x1[visible]
    pool = np.vstack([seen, random_keypoints(rng, view1, max(count - len(seen), count // 4))])
    popularity = rng.dirichlet(np.full(len(pool), np.exp(rng.uniform(np.log(0.2), np.log(3)))))
    anywhere = pool[rng.choice(len(pool), count, p=popularity)]

    step_px = np.exp(rng.uniform(np.log(4), np.log(80), (count, 1)))
    nearby = x1 + step_px / view1.focal_px * _directions(rng, count)

    period = rng.uniform(0.05, 0.5) * _direction(rng, [rng.choice([0, 2]), 0, 0], 0.5)
    copies = rng.choice([-2, -1, 1, 2], (count, 1)) * period
    moved = (X0 + copies) @ R_10.T + t_10
    repeated = moved[:, :2] / np.maximum(moved[:, 2:], 1e-6)

    share = rng.dirichlet([3.0, 0.6, 0.5])
    kind = rng.choice(3, count, p=share)
    landed = np.choose(kind[:, None], [anywhere, nearby, repeated])
    lost = ~view1.contains(landed)
    landed[lost] = anywhere[lost]
    return landed, (kind > 0) & ~lost


def _directions(rng: np.random.Generator, count: int) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi, (count, 1))
    return np.hstack([np.cos(angle), np.sin(angle)])


def random_distinctiveness(
    rng: np.random.Generator, true: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratio, mutual flag and descriptor distance, distributed as for SIFT on photographs.

    Over 400 pairs of photo collections, the ratio of outliers had quartiles of 0.91, 0.96 and 0.98
    in every pair, that of true matches a median between 0.5 and 0.9, depending on the pair. 22 %
    of the outliers and 60 to 95 % of the true matches were mutual. The second nearest descriptor
    was 0.5 away for true matches and 0.6 for outliers, with a standard deviation of 0.13.
    """
    count = len(true)
    distinctive = rng.beta(rng.uniform(1.5, 5.0), 1.5, count)
    ratio = np.where(true, distinctive, rng.beta(15.0, 1.0, count))
    mutual = rng.random(count) < np.where(true, rng.uniform(0.65, 0.97), 0.22)
    second = np.where(true, 0.5, 0.6) + 0.13 * rng.standard_normal(count)
    distance = ratio * np.clip(second, 0.1, 0.8)
    return ratio.astype(np.float32), mutual.astype(np.float32), distance.astype(np.float32)


def random_frames(
    rng: np.random.Generator, true: np.ndarray, similar: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Zoom and roll (radians) of each match in addition to those caused by the camera motion.

    On photo collections the keypoints of true matches rotated by 4 degrees in the median (one in
    ten by more than 11) and changed size by a factor of 1.1. Those of outliers rotated by random
    angles, often multiples of 90 degrees, and changed size by a factor of 2. Matches that look
    `similar` are distributed like true ones.
    """
    count = len(true)
    spread = np.radians(rng.uniform(3, 8)) * np.exp(0.6 * rng.standard_normal(count))
    spread = np.where(rng.random(count) < 0.08, np.radians(45), spread)
    random_roll = rng.uniform(-np.pi, np.pi, count)
    squared = rng.choice([0, 0, 0, 1, 2, 3], count) * np.pi / 2
    square = rng.random(count) < rng.beta(1.5, 4)
    random_roll[square] = (squared + np.radians(10) * rng.standard_normal(count))[square]
    roll = np.where(similar, spread * rng.standard_normal(count), random_roll)
    size = np.where(similar, rng.uniform(0.1, 0.25), rng.uniform(0.8, 1.5))
    return size * rng.standard_normal(count), roll
