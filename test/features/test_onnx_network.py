"""Networks in ONNX files: engines, the plain form of a file, damaged files."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lgc_ros.errors import FeatureError
from lgc_ros.features.base import make_extractor
from lgc_ros.features.onnx_file import plain_model, returns_logits
from lgc_ros.features.onnx_network import load_network

# The way PyTorch's exporter writes x.unfold(2, 4, 4) for an x of 12 rows.
UNFOLD = """
<ir_version: 8, opset_import: ["": 18, "exporter": 1]>
unfold (float[1, 1, 12, 6] x) => (float[1, 1, 3, 6, 4] y) {
  y = exporter._aten_unfold_onnx <dim = 2, size = 4, step = 4, target_end = 3,
                                  perm = [0, 1, 2, 4, 3]> (x)
}
<domain: "exporter", opset_import: ["" : 18]>
_aten_unfold_onnx <dim, size, step, target_end, perm> (x) => (y) {
  axis = Constant <value = int64[1] {2}> ()
  none = SequenceEmpty ()
  zero = Constant <value = int64 {0}> ()
  true = Constant <value = bool {1}> ()
  all, count = Loop ("", true, none, zero) <body = part
    (int64 turn, bool more, seq(float[N]) done, int64 i)
    => (bool again, seq(float[N]) longer, int64 next) {
      s = Constant <value_int: int = @step> ()
      start = Mul (i, s)
      row = Constant <value = int64[1] {-1}> ()
      starts = Reshape (start, row)
      length = Constant <value_int: int = @size> ()
      ends = Add (starts, length)
      slice = Slice (x, starts, ends, axis)
      longer = SequenceInsert (done, slice)
      one = Constant <value = int64 {1}> ()
      next = Add (i, one)
      end = Constant <value_int: int = @target_end> ()
      again = Less (next, end)
    }>
  parts = ConcatFromSequence <axis: int = @dim, new_axis = 1> (all)
  y = Transpose <perm: ints = @perm> (parts)
}
"""


@pytest.fixture
def scene():
    return np.random.default_rng(0).integers(0, 256, (64, 96), np.uint8)


def hide(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)


def test_openvino_and_onnxruntime_find_the_same_keypoints(heads_model, scene, monkeypatch):
    pytest.importorskip("openvino")
    model = heads_model(size=(64, 96), declared=True)
    by_openvino = make_extractor("xfeat", model=model)(scene)
    hide(monkeypatch, "openvino")
    by_onnxruntime = make_extractor("xfeat", model=model)(scene)
    # bfloat16 has 8 bits: neighbors of about equal probability may swap.
    assert abs(len(by_openvino) - len(by_onnxruntime)) <= 0.1 * len(by_onnxruntime)
    distance = np.linalg.norm(by_openvino.points[:, None] - by_onnxruntime.points[None], axis=2)
    assert np.mean(distance.min(axis=1) < 0.5) > 0.9


def test_models_that_return_keypoints_are_not_run_in_bfloat16(heads_model):
    assert returns_logits(heads_model(size=(64, 96), declared=True))
    assert not returns_logits(heads_model(size=(64, 96)))
    assert not returns_logits(heads_model(size=(64, 96), declared=True, scores_rank=4))


def test_openvino_alone_is_enough(heads_model, scene, monkeypatch):
    pytest.importorskip("openvino")
    hide(monkeypatch, "onnxruntime")
    assert len(make_extractor("xfeat", model=heads_model(size=(64, 96)))(scene)) > 20


def test_unfolding_is_written_without_loops_and_gives_the_same(tmp_path):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path = tmp_path / "unfold.onnx"
    onnx.save(onnx.parser.parse_model(UNFOLD), path)
    plain = onnx.load_from_string(plain_model(path))
    assert {node.op_type for node in plain.graph.node} == {"Constant", "Reshape", "Transpose"}
    x = np.random.default_rng(0).normal(size=(1, 1, 12, 6)).astype(np.float32)
    (expected,), (found,) = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for model in (str(path), plain.SerializeToString())
    )
    np.testing.assert_array_equal(found, expected)


def test_a_huge_input_is_refused(heads_model):
    with pytest.raises(FeatureError, match="at most 16 megapixels"):
        load_network(heads_model(size=(80_000, 80_000)), 100)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.floats(0, 1, exclude_max=True),
    junk=st.binary(min_size=1, max_size=12),
    cut=st.booleans(),
    form=st.sampled_from([{}, {"declared": True}, {"scores_rank": 3}]),
)
def test_a_damaged_file_is_refused_or_gives_finite_features(
    heads_model, scene, place, junk, cut, form
):
    path = heads_model(size=(64, 96), **form)
    data = path.read_bytes()
    at = int(place * len(data))
    path.write_bytes(data[:at] if cut else data[:at] + junk + data[at + len(junk) :])
    try:
        features = make_extractor("xfeat", model=path)(scene)
    except FeatureError as error:
        message = str(error)
    else:
        message = "loaded"
        assert np.isfinite(features.points).all()
        assert np.isfinite(features.descriptors).all()
    assert 0 < len(message) < 1500
