"""Keypoints decoded from the raw heads of a network."""

import cv2
import numpy as np
import pytest

from lgc_ros.errors import FeatureError
from lgc_ros.features.base import make_extractor
from lgc_ros.features.heads import Heads, describe, detect, find_heads, keypoint_probability

SIZE = 160, 120  # width and height in pixels


def dots(centers, size=SIZE, sigma=1.2):
    """A dark image with a bright Gaussian dot around each center, x and y in pixels."""
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    image = np.zeros(size[::-1])
    for cx, cy in centers:
        image += np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * sigma**2))
    return np.uint8(np.round(255 * np.clip(image, 0, 1)))


def scattered(size=SIZE, seed=3):
    """Centers at least 20 pixels apart, away from the border."""
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(20, size[0] - 20, 24), np.arange(20, size[1] - 20, 24))
    grid = np.stack([x.ravel(), y.ravel()], axis=1)
    return grid + rng.uniform(-2, 2, grid.shape)


def extract(image, model, **kwargs):
    return make_extractor("xfeat", model=model, **kwargs)(image)


def errors_px(found, centers):
    """Offsets of the keypoint next to each center."""
    distance = np.linalg.norm(centers[:, None] - found[None], axis=2)
    return found[distance.argmin(axis=1)] - centers


def random_heads(height=6, width=8, channels=5, seed=0):
    rng = np.random.default_rng(seed)
    shape = (height, width)
    return Heads(
        keypoint_probability(rng.normal(size=(65, *shape)).astype(np.float32)),
        rng.normal(size=(channels, *shape)).astype(np.float32),
        rng.uniform(size=shape).astype(np.float32),
    )


def test_every_bright_dot_is_one_keypoint_at_its_center(heads_model):
    centers = scattered()
    features = extract(dots(centers), heads_model())
    assert len(features) == len(centers)
    errors = errors_px(features.points, centers)
    assert np.abs(errors).max() < 0.6
    np.testing.assert_allclose(errors.mean(axis=0), 0, atol=0.12)
    assert features.kind == "xfeat"


def test_keypoints_move_with_the_image(heads_model):
    model, centers = heads_model(), scattered()
    for shift in ((1, 0), (0, 3), (5, 7)):
        errors = errors_px(extract(dots(centers + shift), model).points, centers + shift)
        np.testing.assert_allclose(errors.mean(axis=0), 0, atol=0.12)


@pytest.mark.parametrize("scale", [(0.5, 0.5), (2.0, 2.0), (2.0, 0.5)])
def test_a_fixed_input_size_moves_keypoints_by_no_fraction_of_a_pixel(heads_model, scale):
    model = heads_model(size=SIZE[::-1])
    size = int(SIZE[0] * scale[0]), int(SIZE[1] * scale[1])
    centers = scattered(size) if min(scale) >= 1 else np.array([[30.0, 22], [41.3, 37.8]])
    image = dots(centers, size, sigma=2.5 if min(scale) >= 1 else 1.5)
    errors = errors_px(extract(image, model).points, centers)
    # A mistake in the convention of pixel centers would be half a pixel of the larger image.
    np.testing.assert_allclose(errors.mean(axis=0), 0, atol=0.2)


@pytest.mark.parametrize("size", [(150, 113), (161, 97), (250, 121)])
@pytest.mark.parametrize("network_size", [("h", "w"), SIZE[::-1]])
def test_keypoints_are_found_to_a_tenth_of_a_pixel_in_images_of_any_size(
    heads_model, size, network_size
):
    # No side is a multiple of 32, and no image has the aspect ratio of the fixed input.
    centers = scattered(size)
    model = heads_model(size=network_size, scores_rank=3)
    features = extract(dots(centers, size, sigma=2.0), model)
    errors = errors_px(features.points, centers)
    assert np.abs(errors).max() < 0.1
    np.testing.assert_allclose(errors.mean(axis=0), 0, atol=0.02)


def test_padding_to_whole_cells_adds_no_keypoints(heads_model):
    size = 150, 113
    centers = np.array([[146.0, 109.0], [20.2, 50.1]])
    features = extract(dots(centers, size), heads_model())
    assert len(features) == 2
    assert (features.points <= (149, 112)).all()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_heads_are_recognized_in_any_order_and_under_any_name(heads_model, order):
    image = dots(scattered())
    expected = extract(image, heads_model())
    features = extract(image, heads_model(order=order))
    np.testing.assert_array_equal(features.points, expected.points)
    np.testing.assert_array_equal(features.descriptors, expected.descriptors)


def test_the_score_is_probability_times_reliability(heads_model):
    image = dots(scattered())
    alone = extract(image, heads_model(reliability=False))
    scored = extract(image, heads_model())
    probability = dict(zip(map(tuple, alone.points.tolist()), alone.responses, strict=True))
    assert len(probability) == len(scored)
    for point, score in zip(scored.points.tolist(), scored.responses, strict=True):
        assert 0.5 < score / probability[tuple(point)] < 0.6  # sigmoid of a dark cell's mean


def test_rgb_models_accept_color_and_gray_images(heads_model):
    image = dots(scattered())
    model = heads_model(channels=3)
    gray, color = extract(image, model), extract(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), model)
    np.testing.assert_array_equal(gray.points, color.points)
    np.testing.assert_allclose(gray.points, extract(image, heads_model()).points, atol=1e-3)


def test_the_strongest_keypoints_are_kept_and_spread_over_the_image(image, heads_model):
    model = heads_model(contrast=20.0)
    features = extract(image, model, max_keypoints=100)
    every = extract(image, model, max_keypoints=10_000)
    np.testing.assert_array_equal(features.responses, every.responses[:100])
    spread = extract(image, model, max_keypoints=100, spread=True)

    def in_high_contrast(points):
        return np.mean((points < (160, 120)).all(axis=1))

    assert in_high_contrast(features.points) > 1.5 * in_high_contrast(spread.points)


def test_a_blank_image_has_no_keypoints(heads_model):
    features = extract(np.full((120, 160), 128, np.uint8), heads_model(contrast=0.0))
    assert len(features) == 0
    assert features.descriptors.shape == (0, 16)


def test_probabilities_are_the_softmax_of_each_cell():
    torch = pytest.importorskip("torch")
    logits = np.random.default_rng(0).normal(size=(65, 6, 8)).astype(np.float32)
    softmax = torch.softmax(torch.from_numpy(logits), dim=0)[:64]
    expected = torch.pixel_shuffle(softmax, 8)[0]
    np.testing.assert_allclose(keypoint_probability(logits), expected, rtol=1e-5)


def test_keypoints_are_maxima_of_their_neighborhood():
    heads = random_heads(12, 16)
    points, scores = detect(heads)
    probability = heads.probability
    column, row = np.round(points).astype(int).T
    for x, y in zip(column, row, strict=True):
        around = probability[max(y - 3, 0) : y + 4, max(x - 3, 0) : x + 4]
        assert around.max() >= 0.02
    distance = np.linalg.norm(points[:, None] - points[None], axis=2) + 99 * np.eye(len(points))
    assert distance.min() > 1.9  # maxima within 5x5, each refined by half a pixel at most
    assert (scores > 0).all()


def test_descriptors_are_interpolated_as_torch_does():
    torch = pytest.importorskip("torch")
    heads = random_heads()
    points = np.random.default_rng(1).uniform(4, 40, (30, 2)).astype(np.float32)
    unit = torch.nn.functional.normalize(torch.from_numpy(heads.descriptors), dim=0)
    grid = torch.from_numpy((2 * (points + 0.5) / (64, 48) - 1).astype(np.float32))
    sampled = torch.nn.functional.grid_sample(
        unit[None], grid[None, None], mode="bicubic", padding_mode="border", align_corners=False
    )[0, :, 0].T
    expected = torch.nn.functional.normalize(sampled, dim=1)
    np.testing.assert_allclose(describe(heads, points), expected, atol=2e-5)


def test_descriptors_beyond_the_border_cells_are_finite_and_of_unit_length():
    corners = np.float32([[0, 0], [63, 47], [-0.4, 20], [63.4, 0]])
    lengths = np.linalg.norm(describe(random_heads(), corners), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


@pytest.mark.parametrize("cell_px", [1, 2, 8])
def test_descriptors_may_have_cells_of_any_size(cell_px):
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(5, 48 // cell_px, 64 // cell_px)).astype(np.float32)
    heads = Heads(np.zeros((48, 64), np.float32), columns, None)
    row, column = np.meshgrid(range(3, 5), range(2, 6), indexing="ij")
    centers = np.stack([column.ravel(), row.ravel()], axis=1) * cell_px + (cell_px - 1) / 2
    expected = columns[:, row.ravel(), column.ravel()].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(describe(heads, centers), expected, atol=1e-5)


@pytest.mark.parametrize("rank", [3, 4])
def test_scores_of_pixels_may_replace_logits(heads_model, rank):
    centers = scattered()
    features = extract(dots(centers), heads_model(scores_rank=rank))
    assert len(features) == len(centers)
    # The peak of a Gaussian is that of the parabola through the logarithms, up to 8 bits.
    np.testing.assert_allclose(errors_px(features.points, centers), 0, atol=0.02)
    np.testing.assert_allclose(np.linalg.norm(features.descriptors, axis=1), 1, rtol=1e-5)


def test_outputs_of_other_shapes_are_not_heads():
    logits, descriptors = np.zeros((1, 65, 6, 8)), np.zeros((1, 5, 6, 8))
    scores = np.zeros((1, 48, 64))
    assert find_heads({"a": logits, "b": descriptors}, (64, 48)) is not None
    assert find_heads({"a": scores, "b": descriptors}, (64, 48)) is not None
    assert find_heads({"a": logits}, (64, 48)) is None
    assert find_heads({"a": logits, "b": scores, "c": descriptors}, (64, 48)) is None
    assert find_heads({"a": logits, "b": descriptors, "c": descriptors}, (64, 48)) is None
    assert find_heads({"a": logits, "b": descriptors}, (128, 96)) is None
    assert find_heads({"a": logits[0], "b": descriptors}, (64, 48)) is None
    assert find_heads({"a": scores, "b": np.zeros((1, 5, 7, 9))}, (64, 48)) is None
    assert find_heads({"a": scores, "b": np.zeros((1, 5, 48, 0))}, (64, 48)) is None


def test_numbers_that_are_not_finite_are_refused(heads_model):
    with pytest.raises(FeatureError, match=r"a\.onnx returns numbers in \w+ that are not finite"):
        make_extractor("xfeat", model=heads_model(contrast=float("inf")))
