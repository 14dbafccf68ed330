"""Putative matches by nearest neighbor, with side information for the filter."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from lgc_ros.errors import MatchError
from lgc_ros.features.base import Features
from lgc_ros.geometry.camera import Camera
from lgc_ros.matching.nearest_neighbor import hamming_distances, nearest_two
from lgc_ros.runtime.jit import compiled

MIN_SIZE_PX = 0.1  # of keypoints: some files store size 0, which has no logarithm


@dataclass(frozen=True, eq=False)
class Matches:
    """Pairs of keypoints: match i joins index0[i] of image 0 and index1[i] of image 1."""

    index0: np.ndarray  # (M,) int64
    index1: np.ndarray  # (M,) int64
    distance: np.ndarray  # (M,) float32, Euclidean, or Hamming for binary descriptors
    ratio: np.ndarray  # (M,) float32 in [0, 1], nearest over second nearest distance
    mutual: np.ndarray  # (M,) bool, each keypoint is the nearest neighbor of the other

    def __len__(self) -> int:
        return len(self.index0)


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Matched points of two images, as pixels and as normalized coordinates."""

    x0: np.ndarray  # (N, 2) float64 normalized
    x1: np.ndarray
    p0: np.ndarray  # (N, 2) float64 pixels as detected
    p1: np.ndarray
    size0: tuple[int, int]  # image width and height in pixels
    size1: tuple[int, int]
    focal: float  # pixels, mean of both cameras; threshold_px / focal is a normalized threshold
    ratio: np.ndarray  # (N,) as in Matches
    mutual: np.ndarray  # (N,) as in Matches
    zoom: np.ndarray | None = (
        None  # (N,) log2 ratio of the keypoint's angular size, image 1 over 0
    )
    roll: np.ndarray | None = None  # (N,) radians, rotation of the keypoint from image 0 to 1
    # (N,) relative to unrelated descriptors, which have a distance of about 1
    descriptor_distance: np.ndarray | None = None
    scores: np.ndarray | None = None  # (N,) from a filter, higher is better

    def __len__(self) -> int:
        return len(self.x0)

    def subset(self, selection: np.ndarray) -> Correspondences:
        """The correspondences selected by a boolean mask or an index array, in its order."""
        arrays = {
            field.name: value[selection]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return replace(self, **arrays)


def match(features0: Features, features1: Features) -> Matches:
    """Nearest neighbor in image 1 of every keypoint of image 0: the matches of section 3.1.

    All of them are kept; `ratio` and `mutual` measure how distinctive a match is.
    """
    _check_comparable(features0, features1)
    descriptors0, descriptors1 = features0.descriptors, features1.descriptors
    if len(features0) == 0 or len(features1) == 0:
        empty = np.empty(0, np.float32)
        index = np.empty(0, np.int64)
        return Matches(index, index, empty, empty, np.empty(0, bool))
    nearest, second, mutual = nearest_two(descriptors0, descriptors1)
    distance = row_distances(descriptors0, descriptors1[nearest])
    distance_second = row_distances(descriptors0, descriptors1[second])
    # The ratio is 1 for a single candidate, or two at distance zero.
    ratio = np.ones_like(distance)
    np.divide(distance, distance_second, out=ratio, where=distance_second > 0)
    return Matches(
        index0=np.arange(len(features0)),
        index1=nearest,
        distance=distance,
        ratio=np.minimum(ratio, 1),
        mutual=mutual,
    )


def correspond(
    features0: Features, features1: Features, matches: Matches, camera0: Camera, camera1: Camera
) -> Correspondences:
    """Matched points in undistorted normalized coordinates, with side information.

    Matches at pixels that a camera model cannot undistort (Camera.normalize gives NaN) are left
    out.
    """
    index0, index1 = matches.index0, matches.index1
    p0 = features0.points[index0].astype(np.float64)
    p1 = features1.points[index1].astype(np.float64)
    size0 = np.maximum(features0.sizes[index0], MIN_SIZE_PX) / camera0.focal
    size1 = np.maximum(features1.sizes[index1], MIN_SIZE_PX) / camera1.focal
    correspondences = Correspondences(
        x0=camera0.normalize(p0),
        x1=camera1.normalize(p1),
        p0=p0,
        p1=p1,
        size0=camera0.size,
        size1=camera1.size,
        focal=(camera0.focal + camera1.focal) / 2,
        ratio=matches.ratio,
        mutual=matches.mutual,
        zoom=np.log2(size1 / size0),
        roll=np.radians(features1.angles[index1] - features0.angles[index0]),
        descriptor_distance=matches.distance / _distance_of_unrelated(features1.descriptors),
    )
    valid = np.isfinite(correspondences.x0).all(1) & np.isfinite(correspondences.x1).all(1)
    return correspondences if valid.all() else correspondences.subset(valid)


def _distance_of_unrelated(descriptors: np.ndarray) -> float:
    """About the distance of descriptors that have nothing in common.

    Half of the bits of binary descriptors differ by chance. Others are about as far apart as they
    are long.
    """
    if descriptors.dtype == np.uint8:
        return 4.0 * descriptors.shape[1]
    length = np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))
    return float(length.mean()) if length.any() else 1.0


def ratio_test(matches: Matches | Correspondences, threshold: float = 0.8) -> np.ndarray:
    """Lowe's ratio test: mask of the matches clearly nearer than the second neighbor."""
    return matches.ratio < threshold


def one_to_one(correspondences: Correspondences, scores: np.ndarray) -> np.ndarray:
    """Mask of the best-scoring match of every point, in both images.

    Nearest neighbors are not unique: some keypoints attract many others. Such outliers all agree
    with any motion whose epipole is their common point, and a robust estimator may mistake them
    for inliers.
    """
    order = np.argsort(-scores, kind="stable")
    for points in (correspondences.p1, correspondences.p0):
        _, first = np.unique(points[order, 0] + 1j * points[order, 1], return_index=True)
        order = order[np.sort(first)]
    mask = np.zeros(len(correspondences), dtype=bool)
    mask[order] = True
    return mask


def nearest_per_keypoint(matches: Matches, chosen: np.ndarray) -> np.ndarray:
    """Indices of chosen matches; of those that share a keypoint of image 1, the nearest."""
    nearest = np.full(matches.index1.max(initial=-1) + 1, -1)
    return np.flatnonzero(_are_nearest(matches.index1, matches.distance, chosen, nearest))


@compiled
def _are_nearest(index1, distance, chosen, nearest):
    """Mask of the nearest chosen match of each keypoint; `nearest` is a buffer filled with -1."""
    mask = np.zeros(len(index1), np.bool_)
    for row in range(len(index1)):
        rival = nearest[index1[row]]
        if chosen[row] and (rival < 0 or distance[row] < distance[rival]):
            mask[row] = True
            if rival >= 0:
                mask[rival] = False
            nearest[index1[row]] = row
    return mask


def _check_comparable(features0: Features, features1: Features) -> None:
    a, b = features0.descriptors, features1.descriptors
    if features0.kind != features1.kind or a.dtype != b.dtype or a.shape[1] != b.shape[1]:
        raise MatchError(
            f"cannot match {features0.kind} ({a.shape[1]} x {a.dtype}) with {features1.kind} "
            f"({b.shape[1]} x {b.dtype}) descriptors; extract both images with the same extractor"
        )


def row_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(N,) float32 distances between corresponding rows of descriptors."""
    if a.dtype == np.uint8:
        return hamming_distances(a, b)
    difference = a - b
    return np.sqrt(np.einsum("ij,ij->i", difference, difference))
