"""The exported network reproduces the scores of the original, for any number of matches."""

import numpy as np
import pytest
import torch

from lgc_ros.errors import CheckpointError
from lgc_ros.filter.backends.onnx_export import export_onnx
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig


def test_onnx_runtime_agrees_with_torch(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "sift.onnx"
    export_onnx("sift", path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    network, info = load_checkpoint("sift")
    properties = session.get_modelmeta().custom_metadata_map
    assert properties["features"] == "sift"
    assert properties["side"].split(",") == list(info.side)
    for count in (1, 37, 2000):
        inputs = np.random.default_rng(count).uniform(-0.6, 0.6, (count, 4 + info.network.side))
        inputs = inputs.astype(np.float32)
        (logits,) = session.run(None, {"matches": inputs})
        with torch.inference_mode():
            expected = network(torch.from_numpy(inputs)[None])[0].numpy()
        assert logits == pytest.approx(expected, abs=1e-4)


def test_error_names_a_variant_that_cannot_be_exported(tmp_path):
    config = NetworkConfig(blocks=1, width=8, context="pointnet")
    model = tmp_path / "model.safetensors"
    save_checkpoint(model, CorrespondenceNetwork(config), ModelInfo("odd", "sift", config))
    with pytest.raises(CheckpointError, match="pointnet"):
        export_onnx(model, tmp_path / "model.onnx")
