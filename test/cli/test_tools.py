"""`lgc synth`, `lgc export` and `lgc doctor`."""

import numpy as np
import pytest

from lgc_ros.sources import open_source
from lgc_ros.sources.synthetic import SyntheticSource


@pytest.mark.slow
def test_synth_writes_a_sequence_and_does_not_overwrite_one(lgc, tmp_path):
    folder = tmp_path / "sequence"
    code, _ = lgc("synth", folder, "--frames", 2)
    assert code == 0
    assert len(list((folder / "rgb").iterdir())) == 2
    assert (folder / "camera.yaml").is_file()
    code, printed = lgc("synth", folder, "--frames", 2)
    assert code == 1
    assert "already exists" in printed


def test_synth_writes_a_bag(lgc, tmp_path):
    code, _ = lgc("synth", tmp_path / "bag", "--frames", 1, "--format", "bag")
    assert code == 0
    assert (tmp_path / "bag" / "metadata.yaml").is_file()
    code, printed = lgc("synth", tmp_path / "other", "--format", "zip")
    assert code == 1
    assert "tum or bag" in printed


@pytest.mark.slow
def test_synth_renders_the_world_that_is_asked_for(lgc, tmp_path):
    code, _ = lgc("synth", tmp_path / "street", "--world", "street", "--frames", 1, "--noise", 0)
    assert code == 0
    (rendered,) = open_source(tmp_path / "street")
    street = SyntheticSource("walk", 1, kind="street")[0]
    np.testing.assert_array_equal(rendered.image, street.image)
    code, printed = lgc("synth", tmp_path / "cave", "--world", "cave")
    assert code == 1
    assert "unknown kind of world 'cave': use one of room, street" in printed


def test_export_writes_onnx(lgc, tmp_path):
    code, _ = lgc("export", tmp_path / "model.onnx")
    assert code == 0
    assert (tmp_path / "model.onnx").stat().st_size > 1_000_000


def test_doctor_accepts_this_installation(lgc):
    code, printed = lgc("doctor")
    assert code == 0
    assert "All required components found" in printed


def test_a_rendered_bag_has_depth(invoke, tmp_path):
    pytest.importorskip("rosbags")
    result = invoke("synth", tmp_path / "bag", "--frames", 2, "--format", "bag")
    assert result.exit_code == 0, result.output
    frame = next(iter(open_source(tmp_path / "bag", depth_topic="/camera/depth/image_raw")))
    expected = SyntheticSource("walk", 2, noise=2.0)[0]
    known = expected.depth > 0
    np.testing.assert_allclose(frame.depth[known], expected.depth[known], rtol=1e-6)
