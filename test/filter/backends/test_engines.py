"""Every engine reproduces the scores of the trained network, for any number of matches."""

import logging
import sys

import numpy as np
import pytest
import torch
from scenes import as_correspondences, random_scene

from lgc_ros.errors import ConfigError
from lgc_ros.features.base import make_extractor
from lgc_ros.filter.backends.devices import choose_device
from lgc_ros.filter.backends.engines import make_engine, missing_modules
from lgc_ros.filter.backends.torch_backend import FusedNetwork
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig
from lgc_ros.filter.side_information import network_inputs
from lgc_ros.geometry.epipolar import EIGHT_POINT_MINIMUM
from lgc_ros.matching.correspondences import correspond, match
from lgc_ros.sources import open_source

CPU_ENGINES = ("torch", "onnxruntime", "openvino")
COUNTS = (1, 8, 500, 2000, 4000)


@pytest.fixture(scope="module")
def trained():
    return load_checkpoint("sift")


@pytest.fixture(scope="module", params=CPU_ENGINES)
def engine(request, trained):
    missing = missing_modules(request.param)
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    return make_engine(request.param, *trained, device="cpu")


def rows_of(count, network, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.6, 0.6, (count, 4 + network.config.side)).astype(np.float32)


def reference(network, rows):
    with torch.inference_mode():
        return network(torch.from_numpy(rows)[None])[0].numpy()


@pytest.mark.parametrize("count", COUNTS)
def test_scores_equal_those_of_the_network(engine, trained, count):
    rows = rows_of(count, trained[0], seed=count)
    logits = engine.run(rows)
    assert logits.shape == (count,)
    assert logits == pytest.approx(reference(trained[0], rows), abs=1e-4)


def test_one_engine_accepts_pairs_of_any_size_in_any_order(engine, trained):
    for count in (700, 3, 8, 1999, 700):
        rows = rows_of(count, trained[0], seed=count)
        logits, expected = engine.run(rows), reference(trained[0], rows)
        if count < EIGHT_POINT_MINIMUM:
            # With so few matches, float32 logits differ by 1e-3; weights must still agree.
            logits, expected = (np.tanh(np.maximum(v, 0)) for v in (logits, expected))
        assert logits == pytest.approx(expected, abs=1e-4)


def test_result_is_not_overwritten_by_the_next_call(engine, trained):
    first = engine.run(rows_of(300, trained[0], seed=1))
    copy = first.copy()
    engine.run(rows_of(300, trained[0], seed=2))
    assert np.array_equal(first, copy)


def test_identical_matches_have_finite_scores(engine, trained):
    rows = np.full((200, 4 + trained[0].config.side), 0.25, np.float32)
    logits = engine.run(rows)
    assert logits == pytest.approx(reference(trained[0], rows), abs=2e-4)


@pytest.mark.parametrize("width", [16, 21])
def test_any_gain_and_number_of_channels_is_reproduced(width):
    torch.manual_seed(0)
    network = CorrespondenceNetwork(NetworkConfig(blocks=3, width=width)).eval()
    with torch.no_grad():
        for layer in network.perceptrons():
            layer.norm.weight.normal_()
            layer.norm.bias.normal_()
            layer.norm.weight[:2] = torch.tensor([0.0, -1.0])
    rows = rows_of(400, network)
    logits = FusedNetwork(network)(torch.from_numpy(rows)).numpy()
    assert logits == pytest.approx(reference(network, rows), abs=1e-4)


def test_padding_rows_do_not_change_the_scores(trained):
    network = trained[0]
    rows = torch.from_numpy(rows_of(500, network))
    filled = torch.cat([rows, torch.zeros(12, rows.shape[1])])
    valid = (torch.arange(512) < 500).float()
    fused = FusedNetwork(network)
    assert fused(filled, valid)[:500].numpy() == pytest.approx(fused(rows).numpy(), abs=1e-4)


def test_half_precision_keeps_nearly_the_same_matches(trained):
    network, info = trained
    scene = random_scene(3, 500, noise_px=0.5)
    wrong = np.random.default_rng(3).uniform(-0.6, 0.6, (2, 500, 2))
    c = as_correspondences(np.vstack([scene.x0, wrong[0]]), np.vstack([scene.x1, wrong[1]]))
    rows = network_inputs(c.x0, c.x1, c, info.side)
    half = FusedNetwork(network, dtype=torch.float16)(torch.from_numpy(rows)).numpy()
    changed = (half > info.keep_above) != (reference(network, rows) > info.keep_above)
    assert changed.mean() < 0.02


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_keeps_nearly_the_same_matches(trained):
    network, info = trained
    engine = make_engine("torch", network, info, "cuda")
    assert engine.device.startswith("cuda")
    for count in (100, 1000, 100):
        rows = rows_of(count, network)
        expected = reference(network.cpu(), rows) > info.keep_above
        assert ((engine.run(rows) > info.keep_above) != expected).mean() < 0.02


@pytest.fixture(scope="module")
def real_pairs(data_dir):
    extract = make_extractor("sift")

    def pair(name, every):
        frames = list(open_source(data_dir / name, every=every, limit=2))
        features = [extract(frame.image) for frame in frames]
        return correspond(*features, match(*features), *(frame.camera for frame in frames))

    return [pair("kitti_a", 1), pair("kitti_a", 5), pair("fr1_xyz", 30), pair("fr1_xyz", 300)]


def test_the_same_matches_are_kept_on_real_pairs(engine, trained, real_pairs):
    network, info = trained
    for c in real_pairs:
        rows = network_inputs(c.x0, c.x1, c, info.side)
        expected, logits = reference(network, rows), engine.run(rows)
        assert logits == pytest.approx(expected, abs=1e-4)
        assert np.array_equal(logits > info.keep_above, expected > info.keep_above)


@pytest.mark.parametrize(
    ("missing", "expected", "reason"),
    [
        ((), "onnxruntime", "fastest installed"),
        (("onnxruntime",), "openvino", "fastest installed"),
        (("onnxruntime", "openvino"), "torch", r"lgc_ros[onnx]"),
    ],
)
def test_auto_engine_on_a_cpu_is_the_fastest_one_installed(
    missing, expected, reason, trained, monkeypatch, caplog
):
    for module in ("onnx", "onnxruntime", "openvino"):
        pytest.importorskip(module)
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    with caplog.at_level(logging.INFO):
        assert make_engine("auto", *trained, device="cpu").name == expected
    assert f"runs on {expected}" in caplog.text
    assert reason in caplog.text


@pytest.mark.parametrize(("name", "extra"), [("openvino", "openvino"), ("onnxruntime", "onnx")])
def test_error_for_an_engine_that_is_not_installed_names_the_remedy(
    name, extra, trained, monkeypatch
):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"needs {name}.*lgc_ros\[{extra}\]"):
        make_engine(name, *trained)


def test_tensorrt_is_rejected_where_it_is_not_installed(trained):
    onnxruntime = pytest.importorskip("onnxruntime")
    if "TensorrtExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("TensorRT is installed")
    with pytest.raises(ConfigError, match="tensorrt"):
        make_engine("tensorrt", *trained)


def test_unknown_engines_and_devices_are_rejected(trained):
    with pytest.raises(ConfigError, match="unknown engine"):
        make_engine("abacus", *trained)
    for device in ("tpu", "cuda:", "cuda:x", "cpu:1", ""):
        with pytest.raises(ConfigError, match="unknown device"):
            make_engine("auto", *trained, device=device)


def test_networks_without_context_normalization_run_on_torch(tmp_path):
    config = NetworkConfig(blocks=1, width=8, context="pointnet")
    path = tmp_path / "odd.safetensors"
    save_checkpoint(path, CorrespondenceNetwork(config), ModelInfo("odd", "sift", config))
    network, info = load_checkpoint(path)
    engine = make_engine("auto", network, info, "cpu")
    assert engine.name == "torch"
    rows = rows_of(50, network)
    assert engine.run(rows) == pytest.approx(reference(network, rows), abs=1e-5)


def test_auto_device_is_the_gpu_if_there_is_one():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected


def test_missing_gpu_falls_back_to_the_cpu_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert choose_device("cuda:97").type == "cpu"
    assert "cuda:97" in caplog.text
    assert "CPU" in caplog.text
