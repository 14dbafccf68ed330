"""Rendered images and depth agree with exact projections."""

import cv2
import numpy as np
import pytest
from sequences import pixel_grid

from lgc_ros.sources.synthetic import default_camera
from lgc_ros.synthetic.renderer import ALIGN, Rays, Renderer

LENSES = {"pinhole": (), "barrel": (-0.28, 0.09, 0.0005, -0.0003, 0.0)}


def checkerboard(width, height, square=16):
    y, x = np.mgrid[:height, :width] // square
    return np.repeat(((x + y) % 2 * 200 + 20).astype(np.uint8)[..., None], 3, axis=2)


@pytest.mark.parametrize("lens", LENSES)
def test_depth_of_a_slanted_plane_is_the_intersection_of_ray_and_plane(lens):
    camera = default_camera(LENSES[lens])
    origin, u, v = np.array([-4.0, -3, 2]), np.array([8.0, 0, 3]), np.array([0, 6.0, 0])
    texture = checkerboard(8 * ALIGN, 6 * ALIGN)
    renderer = Renderer(np.column_stack([u, v, origin])[None], [texture])
    _, depth = renderer.render(Rays.of(camera), np.eye(4))
    rays = np.column_stack([camera.normalize(pixel_grid(camera)), np.ones(depth.size)])
    normal = np.cross(u, v)
    expected = (origin @ normal) / (rays @ normal)
    inside = depth.ravel() > 0
    assert inside.mean() > 0.8
    np.testing.assert_allclose(depth.ravel()[inside], expected[inside], rtol=2e-6)


def test_texture_appears_where_it_projects(small_camera):
    """The corner of a black and white square lies at the projection of its world point."""
    origin, u, v = np.array([-1.0, -1, 2]), np.array([2.0, 0, 0.7]), np.array([0, 2.0, 0.2])
    texture = checkerboard(512, 512, 256)
    renderer = Renderer(np.column_stack([u, v, origin])[None], [texture])
    image, _ = renderer.render(Rays.of(small_camera), np.eye(4))
    expected = small_camera.project((origin + 0.5 * u + 0.5 * v)[None])
    found = cv2.cornerSubPix(
        cv2.cvtColor(image, cv2.COLOR_BGR2GRAY),
        np.round(expected).astype(np.float32)[None],
        (5, 5),
        (-1, -1),
        (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 50, 1e-4),
    )
    np.testing.assert_allclose(found.reshape(2), expected.reshape(2), atol=0.05)


def test_nearer_surfaces_hide_farther_ones_and_backs_are_not_seen(small_camera):
    def facing(z, size):
        return np.column_stack([[size, 0, 0], [0, size, 0], [-size / 2, -size / 2, z]])

    back = facing(0.5, 1.0) * [-1, 1, 1] + [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    textures = [np.full((ALIGN, ALIGN, 3), value, np.uint8) for value in (50, 150, 250)]
    renderer = Renderer(np.stack([facing(4.0, 8.0), facing(2.0, 0.5), back]), textures)
    image, depth = renderer.render(Rays.of(small_camera), np.eye(4))
    assert (image[60, 80] == 150).all()
    assert depth[60, 80] == pytest.approx(2.0)
    assert (image[5, 5] == 50).all()
    assert depth[5, 5] == pytest.approx(4.0)
    assert set(np.unique(depth.round(3))) == {2.0, 4.0}
