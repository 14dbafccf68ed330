"""XFeat with its authors' weights, in the two forms that users have exported it to."""

import cv2
import numpy as np
import pytest

from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import essential_from_pose, symmetric_epipolar_distance
from lgc_ros.images.frame import read_image
from lgc_ros.matching.correspondences import correspond, match

EXPORTS = ("xfeat_480x640_gray_heads", "xfeat_640x640_rgb_heads")


@pytest.fixture(params=EXPORTS)
def model(request, data_dir):
    path = data_dir / "weights" / "xfeat" / f"{request.param}.onnx"
    if not path.is_file():
        pytest.skip(f"{path} does not exist: no weights of XFeat")
    pytest.importorskip("onnxruntime")
    return path


@pytest.fixture
def photo(data_dir):
    """A sharp photograph of 640x480 pixels."""
    paths = sorted((data_dir / "fr1_xyz" / "rgb").glob("*"))
    image = read_image(paths[0])
    assert image.shape == (480, 640, 3)
    return image


def offsets_of_nearest(points, expected, radius_px=2.0):
    """Offsets from expected positions to the nearest point, where one is near."""
    distance = np.linalg.norm(expected[:, None] - points[None], axis=2)
    near = distance.min(axis=1) < radius_px
    return (points[distance.argmin(axis=1)] - expected)[near]


def test_a_photo_has_thousands_of_keypoints_with_unit_descriptors(model, photo):
    features = make_extractor("xfeat", 1500, model=model)(photo)
    assert len(features) == 1500
    assert features.descriptors.shape == (1500, 64)
    np.testing.assert_allclose(np.linalg.norm(features.descriptors, axis=1), 1, rtol=1e-5)
    assert (features.points > -0.5).all()
    assert (features.points < (639.5, 479.5)).all()
    assert (np.diff(features.responses) <= 0).all()


def test_a_blank_image_has_no_keypoints(model):
    assert len(make_extractor("xfeat", model=model)(np.full((480, 640), 90, np.uint8))) == 0


@pytest.mark.parametrize("shift", [(8, 8), (3, 5)])
def test_keypoints_follow_a_shift_of_the_image_without_bias(model, photo, shift):
    right, down = shift
    moved = cv2.copyMakeBorder(photo, down, 0, right, 0, cv2.BORDER_REFLECT)[:480, :640]
    extract = make_extractor("xfeat", 800, model=model)
    first, second = extract(photo).points, extract(np.ascontiguousarray(moved)).points
    expected = first + shift
    expected = expected[(expected < (620, 460)).all(axis=1)]
    offsets = offsets_of_nearest(second, expected)
    assert len(offsets) > 0.3 * len(expected)
    np.testing.assert_allclose(offsets.mean(axis=0), 0, atol=0.1)


def test_keypoints_follow_the_size_of_the_image_without_bias(model, photo):
    extract = make_extractor("xfeat", 800, model=model)
    first = extract(photo).points
    larger = cv2.resize(photo, (1280, 960), interpolation=cv2.INTER_LINEAR)
    expected = (first + 0.5) * 2 - 0.5
    offsets = offsets_of_nearest(extract(larger).points, expected, radius_px=4)
    assert len(offsets) > 0.7 * len(expected)
    # A mistake in the convention of pixel centers would be half a pixel.
    np.testing.assert_allclose(offsets.mean(axis=0), 0, atol=0.15)


@pytest.mark.slow
def test_hard_indoor_pairs_have_twice_as_many_true_matches_as_with_sift(data_dir, model):
    from lgc_ros.sources import open_source

    frames = list(open_source(data_dir / "fr1_desk", every=15, limit=8))
    true = {}
    for name, file in (("sift", None), ("xfeat", model)):
        extract = make_extractor(name, 2000, model=file)
        features = [extract(frame.image) for frame in frames]
        counts = [
            true_matches(*pair, frames[0].camera)
            for pair in zip(features, features[1:], frames, frames[1:], strict=False)
        ]
        true[name] = np.sum(counts)
    assert true["xfeat"] > 2 * true["sift"]


def true_matches(features0, features1, frame0, frame1, camera: Camera):
    """Number of mutual matches within 2 pixels of the epipolar lines of the true motion."""
    pair = correspond(features0, features1, match(features0, features1), camera, camera)
    T_10 = np.linalg.inv(frame1.T_wc) @ frame0.T_wc
    E_10 = essential_from_pose(T_10[:3, :3], T_10[:3, 3])
    # The squared symmetric distance counts both images.
    squared_px = symmetric_epipolar_distance(E_10, pair.x0, pair.x1) * camera.focal**2
    return int(((squared_px < 2 * 2.0**2) & pair.mutual).sum())
