"""A small world with known cameras, which the tests write in one data layout after the other."""

from dataclasses import dataclass

import cv2
import numpy as np
import pytest
from transforms3d.euler import euler2mat

from lgc_ros.geometry.epipolar import essential_from_pose, homogeneous
from training.data.scene import relative_pose

SIZE = (64, 48)
K = np.array([[60.0, 0, 33.5], [0, 58.0, 22.25], [0, 0, 1]])


@dataclass(frozen=True, eq=False)
class World:
    """Points (M, 3) seen by cameras with poses (N, 3, 3) and (N, 3), world to camera."""

    points: np.ndarray
    R_cw: np.ndarray
    t_cw: np.ndarray
    K: np.ndarray
    size: tuple[int, int]

    def __len__(self):
        return len(self.R_cw)

    def normalized(self, index):
        """True undistorted coordinates (M, 2) of the points in an image."""
        points = self.points @ self.R_cw[index].T + self.t_cw[index]
        return points[:, :2] / points[:, 2:]

    def centre(self, index):
        return -self.R_cw[index].T @ self.t_cw[index]

    def check(self, scene, pixels, atol=1e-9):
        """The scene explains pixels (N, M, 2) made by the conventions of its layout."""
        assert len(scene.pairs) > 0
        for i, j in scene.pairs:
            R_10, t_10 = relative_pose(scene.images[i], scene.images[j])
            x0 = homogeneous(scene.images[i].camera.normalize(pixels[i]))
            x1 = homogeneous(scene.images[j].camera.normalize(pixels[j]))
            E = essential_from_pose(R_10, t_10 / np.linalg.norm(t_10))
            np.testing.assert_allclose(np.einsum("ni,ij,nj->n", x1, E, x0), 0, atol=atol)


@pytest.fixture
def world():
    rng = np.random.default_rng(3)
    rotations, translations = [], []
    for index in range(5):
        R_cw = euler2mat(0.05 * index, 0.08 * (index - 2), -0.03 * index)
        centre = np.array([0.4 * (index - 2), 0.1 * index, 0.07 * index**2])
        rotations.append(R_cw)
        translations.append(-R_cw @ centre)
    points = rng.uniform([-1, -0.8, 4], [1, 0.8, 6], (30, 3))
    return World(points, np.array(rotations), np.array(translations), K, SIZE)


@pytest.fixture
def write_image():
    """Write a blank image of the world's size."""

    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(path), np.zeros(SIZE[::-1], np.uint8))

    return write


@pytest.fixture
def agreement():
    """Share of a pair's distinctive SIFT matches that its ground truth explains."""
    from lgc_ros.features.base import make_extractor
    from training.data.labels import label_pair

    extract = make_extractor("sift", 1000)

    def share(image0, image1):
        pair = label_pair(
            extract(image0.load()),
            extract(image1.load()),
            image0.camera,
            image1.camera,
            *relative_pose(image0, image1),
        )
        distinctive = (pair.ratio < 0.7) & pair.mutual.astype(bool)
        return (pair.ys[distinctive] < 1e-4).mean()

    return share
