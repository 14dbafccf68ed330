"""A small world with known cameras, and dumps of simulated pairs."""

from dataclasses import dataclass, replace

import cv2
import numpy as np
import pytest
import torch
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

    def center(self, index):
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
        center = np.array([0.4 * (index - 2), 0.1 * index, 0.07 * index**2])
        rotations.append(R_cw)
        translations.append(-R_cw @ center)
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


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Sums in one order, so that runs can be compared to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """``good.hdf5``; ``mixed.hdf5``, one of whose five pairs holds NaN; ``broken.hdf5``."""
    from tiny_runs import MATCHES

    from training.data.dump import write_dump
    from training.data.simulation import simulate_pair

    folder = tmp_path_factory.mktemp("dumps")
    pairs = (simulate_pair(np.random.default_rng(seed), 2 * MATCHES) for seed in range(40))
    good = [pair for pair in pairs if (pair.ys < 1e-4).mean() > 0.4][:4]
    xs = good[0].xs.copy()
    xs[5, 2] = np.nan
    broken = replace(good[0], xs=xs)
    write_dump(folder / "good.hdf5", good)
    write_dump(folder / "mixed.hdf5", [*good, broken])
    write_dump(folder / "broken.hdf5", [broken])
    return folder
