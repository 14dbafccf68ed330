"""Pair lists are read exactly; a malformed line is reported by its number."""

import logging

import numpy as np
import pytest
from scenes import random_scene

from lgc_ros.errors import DatasetError
from lgc_ros.evaluation.pairs import Pair, format_pair, read_pairs, read_pose, turn_back
from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.camera import Camera
from lgc_ros.matching.correspondences import correspond, match
from lgc_ros.sources.synthetic import SyntheticSource


def some_pair(seed=0, line=1):
    scene = random_scene(seed)
    K0 = np.array([[500.5, 0, 320.25], [0, 501, 240], [0, 0, 1]])
    K1 = np.array([[700, 0, 300], [0, 700, 200], [0, 0, 1.0]])
    return Pair(line, "a.jpg", "b/c.png", 0, 3, K0, K1, scene.R_10, 2.5 * scene.t_10)


def test_a_pair_survives_a_round_trip_exactly(tmp_path):
    pairs = [some_pair(0, 1), some_pair(1, 2)]
    path = tmp_path / "pairs.txt"
    path.write_text("\n".join(map(format_pair, pairs)))
    for expected, read in zip(pairs, read_pairs(path), strict=True):
        for name, value in vars(expected).items():
            assert np.array_equal(getattr(read, name), value)


def test_comments_and_empty_lines_are_skipped_but_counted(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text(f"# made by hand\n\n{format_pair(some_pair())}\n")
    assert [pair.line for pair in read_pairs(path)] == [3]


GOOD = format_pair(some_pair()).split()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (GOOD[:-1], "37 values instead of 38"),
        ([*GOOD[:5], "x", *GOOD[6:]], "not a number"),
        ([*GOOD[:5], "nan", *GOOD[6:]], "NaN"),
        ([*GOOD[:4], "0.0", *GOOD[5:]], "focal length"),
        ([*GOOD[:22], "2.0", *GOOD[23:]], "no valid rotation matrix"),
        (
            [*GOOD[:25], "0", *GOOD[26:29], "0", *GOOD[30:33], "0", *GOOD[34:]],
            "translation is zero",
        ),
    ],
)
def test_a_malformed_line_is_reported_and_can_be_skipped(tmp_path, caplog, fields, reason):
    path = tmp_path / "pairs.txt"
    path.write_text(f"{format_pair(some_pair())}\n{' '.join(fields)}\n{format_pair(some_pair(1))}")
    with pytest.raises(DatasetError, match=f"line 2: .*{reason}"):
        read_pairs(path)
    with caplog.at_level(logging.WARNING):
        assert [pair.line for pair in read_pairs(path, skip_bad=True)] == [1, 3]
    assert "line 2" in caplog.text


def test_a_missing_or_empty_list_is_rejected(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read"):
        read_pairs(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DatasetError, match="no valid pair"):
        read_pairs(tmp_path / "empty.txt")


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_keypoints_of_a_rotated_image_map_back_to_their_positions(turns):
    x, y = np.meshgrid(np.arange(200), np.arange(120))
    blob = np.exp(-((x - 150) ** 2 + (y - 40.3) ** 2) / (2 * 4.0**2))
    image = (30 + 200 * blob).astype(np.uint8)
    found = make_extractor("sift", 1)(np.ascontiguousarray(np.rot90(image, turns)))
    points = turn_back(found, turns, (200, 120)).points
    assert np.median(points, axis=0) == pytest.approx([150, 40], abs=2)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_keypoints_of_a_rotated_image_map_back_to_their_orientations(turns, world):
    image = SyntheticSource("walk", 2, world=world)[0].image
    extract = make_extractor("sift", 500)
    size = image.shape[1], image.shape[0]
    back = turn_back(extract(np.ascontiguousarray(np.rot90(image, turns))), turns, size)
    camera = Camera.from_K(np.diag([500.0, 500, 1]), *size)
    found = correspond(extract(image), back, match(extract(image), back), camera, camera)
    same = found.subset(np.linalg.norm(found.p0 - found.p1, axis=1) < 1)
    assert len(same) > 100
    assert np.degrees(np.median(np.abs(np.angle(np.exp(1j * same.roll))))) < 2


def test_a_pose_file_must_hold_a_finite_matrix(tmp_path):
    path = tmp_path / "T.txt"
    np.savetxt(path, np.eye(4))
    R, t = read_pose(path)
    assert np.array_equal(R, np.eye(3))
    assert np.array_equal(t, np.zeros(3))
    for content in ("1 2 3", "a b", "nan " * 16):
        path.write_text(content)
        with pytest.raises(DatasetError, match=r"T\.txt"):
            read_pose(path)
