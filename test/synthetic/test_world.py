"""Worlds: laid out and painted from a seed, with a free aisle for the camera."""

import numpy as np
import pytest

from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.synthetic import World, build_scene
from lgc_ros.synthetic.motion import TRAJECTORIES, HandheldMotion


def test_the_seed_determines_the_world(world, small_camera):
    options = {"camera": small_camera, "seed": 1}
    first, again = (
        SyntheticSource("walk", 1, world=World(1, detail=0.2), **options)[0] for _ in range(2)
    )
    other = SyntheticSource("walk", 1, world=world, **options)[0]
    assert first.image.tobytes() == again.image.tobytes()
    assert (first.depth == again.depth).all()
    assert np.abs(first.depth - other.depth).mean() > 0.1


@pytest.mark.parametrize("kind", ["room", "street"])
@pytest.mark.parametrize("seed", range(5))
def test_the_camera_stays_in_free_space(kind, seed):
    scene = build_scene(seed, kind, detail=0.05)
    motion = HandheldMotion(scene, seed, duration_s=60, speed_mps=0.8)
    for pose in TRAJECTORIES.values():
        centers = np.stack([pose(motion, t)[:3, 3] for t in np.linspace(0, 60, 200)])
        assert scene.clearance(centers).min() > 0.2


def test_detail_changes_textures_but_not_the_layout():
    coarse, fine = (build_scene(3, detail=detail) for detail in (0.05, 0.1))
    assert len(coarse.quads) == len(fine.quads)
    for a, b in zip(coarse.quads, fine.quads, strict=True):
        np.testing.assert_array_equal(a.origin, b.origin)
    assert sum(q.albedo.size for q in coarse.quads) < sum(q.albedo.size for q in fine.quads)
