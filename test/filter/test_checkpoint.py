"""Model files are read safely; invalid ones are refused with the reason."""

import json
import resource
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lgc_ros.errors import CheckpointError
from lgc_ros.filter.checkpoint import (
    CHECKSUM,
    MODELS_DIR,
    ModelInfo,
    checksum,
    find_model,
    load_checkpoint,
    save_checkpoint,
    shipped_models,
)
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig

SMALL = NetworkConfig(blocks=1, width=8, side=1)
INFO = ModelInfo("tiny", "orb", SMALL, ("ratio",), 0.25, 1.5, {"steps": 3})


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "tiny.safetensors"
    network = CorrespondenceNetwork(SMALL)
    save_checkpoint(path, network, INFO)
    return path, network


def rewrite(path, *, metadata=None, weights=None):
    """Replace metadata or weights and update the checksum, as for deliberate changes."""
    with safe_open(path, "pt") as file:
        metadata = {**file.metadata(), **(metadata or {})}
    del metadata[CHECKSUM]
    weights = {**load_file(path), **(weights or {})}
    save_file(weights, path, {**metadata, CHECKSUM: checksum(metadata, weights)})


def test_a_saved_model_is_loaded_unchanged(saved):
    path, network = saved
    loaded, info = load_checkpoint(path)
    assert info == INFO
    assert not loaded.training
    for name, value in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_a_model_file_has_the_usual_permissions(saved):
    path = saved[0] if isinstance(saved, tuple) else saved
    (path.parent / "plain.txt").write_text("")
    assert path.stat().st_mode == (path.parent / "plain.txt").stat().st_mode


def test_no_partial_file_is_left_behind(saved):
    assert [file.name for file in saved[0].parent.iterdir()] == ["tiny.safetensors"]


@pytest.mark.parametrize("name", shipped_models())
def test_every_shipped_model_loads_and_has_a_card(name):
    _, info = load_checkpoint(name)
    assert info.name == name
    card = (MODELS_DIR / f"{name}.md").read_text(encoding="utf-8")
    for subject in ("Data", "Schedule", "Seed", "Command", "Figures", "Limits"):
        assert subject in card


def test_the_error_for_an_unknown_model_lists_the_shipped_ones():
    with pytest.raises(CheckpointError, match="sift"):
        find_model("no-such-model")


def test_a_truncated_file_is_refused(saved):
    path, _ = saved
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        load_checkpoint(path)


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x80\x04 a pickle, say")
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        load_checkpoint(path)


def test_safetensors_of_another_program_are_refused(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="not written by lgc_ros"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"network": "{"}, "invalid metadata"),
        ({"network": json.dumps({"context": "magic"})}, "invalid metadata"),
        ({"side": json.dumps(["color"])}, "unknown side information"),
        ({"side": json.dumps([])}, "0 kinds of side information are listed"),
        ({"network": json.dumps({**SMALL.as_dict(), "width": 16})}, "wrong shape"),
        ({"network": json.dumps({**SMALL.as_dict(), "blocks": 2})}, "missing"),
        ({"network": json.dumps({**SMALL.as_dict(), "blocks": 1.5})}, "whole numbers"),
        ({"network": json.dumps({**SMALL.as_dict(), "width": "8"})}, "whole numbers"),
        ({"network": json.dumps({**SMALL.as_dict(), "side": True})}, "whole numbers"),
        ({"network": json.dumps({**SMALL.as_dict(), "context": ["cn"]})}, "context must be one"),
        ({"network": "[" * 100_000}, "invalid metadata"),
        ({"network": "7"}, "invalid metadata"),
        ({"side": "7"}, "invalid metadata"),
        ({"side": json.dumps([["ratio"]])}, "invalid metadata"),
        ({"keep_above": "nan"}, "keep_above"),
        ({"trust_above": "inf"}, "trust_above"),
        ({"keep_above": "much"}, "invalid metadata"),
        ({"training": "[]"}, "training"),
    ],
)
def test_invalid_metadata_is_refused(saved, metadata, reason):
    path, _ = saved
    rewrite(path, metadata=metadata)
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(path)


def test_weights_that_are_not_finite_are_refused(saved):
    path, _ = saved
    rewrite(path, weights={"output.bias": torch.tensor([torch.nan])})
    with pytest.raises(CheckpointError, match=r"not finite: output\.bias"):
        load_checkpoint(path)


@pytest.mark.parametrize("claim", [{"width": 30_000}, {"blocks": 100_000}, {"width": 10**30}])
def test_an_architecture_larger_than_the_weights_is_refused_without_allocating(saved, claim):
    path, _ = saved
    rewrite(path, metadata={"network": json.dumps({**SMALL.as_dict(), **claim})})
    peak_kb, start_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(CheckpointError, match="do not match its architecture"):
        load_checkpoint(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < 100_000
    assert time.process_time() - start_s < 5


def test_weights_of_another_type_are_refused(saved):
    path, _ = saved
    rewrite(path, weights={"output.bias": torch.zeros(1, dtype=torch.float64)})
    with pytest.raises(CheckpointError, match=r"wrong type: output\.bias is F64, not F32"):
        load_checkpoint(path)


def test_a_single_flipped_bit_of_the_weights_is_detected(saved):
    path, _ = saved
    data = bytearray(path.read_bytes())
    data[-3] ^= 1  # the last digits of a weight
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged: its checksum"):
        load_checkpoint(path)


def test_changed_metadata_is_detected(saved):
    path, _ = saved
    path.write_bytes(path.read_bytes().replace(b'"keep_above":"0.25"', b'"keep_above":"9.25"'))
    with pytest.raises(CheckpointError, match="damaged: its checksum"):
        load_checkpoint(path)


def test_a_file_without_a_checksum_is_refused(saved):
    path, _ = saved
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    del metadata[CHECKSUM]
    save_file(load_file(path), path, metadata)
    with pytest.raises(CheckpointError, match="has no checksum"):
        load_checkpoint(path)
