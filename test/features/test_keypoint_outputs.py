"""Keypoints among the outputs of networks, in the forms in which users export them."""

from pathlib import Path

import numpy as np
import pytest

from lgc_ros.features.keypoint_outputs import TO_PIXELS, find_keypoints, unit_of
from lgc_ros.features.onnx import detections

COUNT, CHANNELS = 40, 16
RNG = np.random.default_rng(0)
POINTS = RNG.integers(0, 480, (COUNT, 2))
SCORES = RNG.uniform(0.1, 1, COUNT).astype(np.float32)
DESCRIPTORS = RNG.normal(size=(COUNT, CHANNELS)).astype(np.float32)
DESCRIPTORS /= np.linalg.norm(DESCRIPTORS, axis=1, keepdims=True)

FORMS = {
    "LightGlue-ONNX": {
        "keypoints": POINTS[None],
        "scores": SCORES[None],
        "descriptors": DESCRIPTORS[None],
    },
    "LightGlue": {
        "keypoints": POINTS[None].astype(np.float32),
        "keypoint_scores": SCORES[None],
        "descriptors": DESCRIPTORS[None],
    },
    "scores first": {
        "keypoint_scores": SCORES[None],
        "keypoint_descriptors": DESCRIPTORS[None],
        "keypoints": POINTS[None].astype(np.float32),
    },
    "SuperGlue": {"keypoints": POINTS, "scores": SCORES, "descriptors": DESCRIPTORS.T},
    "ALIKED with all its outputs": {
        "score_map": np.zeros((1, 1, 480, 640), np.float32),
        "score_dispersity": np.zeros((1, COUNT + 1), np.float32),
        "keypoints": POINTS[None],
        "descriptors": DESCRIPTORS[None],
        "scores": SCORES[None],
    },
    "Hugging Face": {
        "mask": np.ones((1, COUNT), np.int32),
        "keypoints": POINTS[None],
        "scores": SCORES[None],
        "descriptors": DESCRIPTORS[None],
    },
    "XFeat with scales": {
        "mkpts": POINTS[None],
        "feats": DESCRIPTORS[None],
        "sc": np.linspace(1.7, 0.6, COUNT)[None],
        "score": SCORES[None],
    },
    "numbered": {"431": POINTS[None], "427": SCORES[None], "455": DESCRIPTORS[None]},
}


@pytest.mark.parametrize("form", FORMS)
def test_keypoints_are_found_in_every_form(form):
    found = find_keypoints(FORMS[form])
    np.testing.assert_array_equal(found.points, POINTS)
    np.testing.assert_array_equal(found.scores, SCORES)
    np.testing.assert_array_equal(found.descriptors, DESCRIPTORS)


def test_scales_are_not_scores():
    for name in ("sc", "scales"):
        outputs = {"mkpts": POINTS, "feats": DESCRIPTORS, name: np.linspace(2, 1, COUNT)}
        assert not find_keypoints(outputs).scores.any()


def test_pixels_that_fill_up_a_fixed_number_of_keypoints_are_left_out():
    scores = SCORES.copy()
    scores[5:9], scores[30:] = 0, -1
    found = find_keypoints({"keypoints": POINTS, "scores": scores, "descriptors": DESCRIPTORS})
    kept = scores > 0
    np.testing.assert_array_equal(found.points, POINTS[kept])
    np.testing.assert_array_equal(found.scores, scores[kept])
    np.testing.assert_array_equal(found.descriptors, DESCRIPTORS[kept])


def test_square_descriptor_arrays_are_oriented_by_unit_length():
    square = RNG.normal(size=(COUNT, COUNT))
    square /= np.linalg.norm(square, axis=1, keepdims=True)
    for descriptors in (square, square.T):
        found = find_keypoints({"keypoints": POINTS, "descriptors": descriptors})
        np.testing.assert_array_equal(found.descriptors, square)


@pytest.mark.parametrize(
    "outputs",
    [
        {"keypoints": POINTS},
        {"descriptors": DESCRIPTORS, "scores": SCORES},
        {"keypoints": POINTS, "descriptors": DESCRIPTORS[1:]},
        {"keypoints": POINTS, "descriptors": DESCRIPTORS, "scores": SCORES[1:]},
        {"keypoints": POINTS[:, :1], "descriptors": DESCRIPTORS},
        {"keypoints": np.stack([POINTS, POINTS]), "descriptors": DESCRIPTORS},
    ],
)
def test_outputs_that_do_not_belong_together_are_refused(outputs):
    assert find_keypoints(outputs) is None


@pytest.mark.parametrize("unit", TO_PIXELS)
def test_the_unit_of_coordinates_is_recognized_and_converted_to_pixels(unit):
    size = np.array([640, 480])
    pixels = np.vstack([[[0, 0], [639, 479]], RNG.uniform(0, 479, (20, 2))])
    given = {
        "pixels": pixels,
        "from -1 to 1": 2 * pixels / (size - 1) - 1,
        "from 0 to 1": pixels / size,
    }[unit]
    assert unit_of(given) == unit
    np.testing.assert_allclose(TO_PIXELS[unit](given, size), pixels, atol=1e-9)


def test_a_known_unit_is_not_overridden_by_the_keypoints_of_one_image():
    outputs = {
        "keypoints": RNG.uniform(0, 1, (COUNT, 2)),  # all in the lower right quarter
        "descriptors": DESCRIPTORS,
    }
    points = detections(outputs, (640, 480), Path("a.onnx"), "from -1 to 1").points
    assert (points >= (319.5, 239.5)).all()
