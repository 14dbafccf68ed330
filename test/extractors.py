"""Small learned extractors, written as ONNX files."""

from pathlib import Path

import cv2
import numpy as np


def write_heads_model(
    path: Path,
    *,
    channels=1,
    size=("h", "w"),
    contrast=40.0,
    reliability=True,
    order=(0, 1, 2),
    declared=False,
    trackable=False,
    scores_rank=None,
) -> Path:
    """Write a model of XFeat's form: logits, descriptors and reliability per cell of 8x8 pixels.

    The logits of a cell are its pixel values times `contrast`, so that bright dots are keypoints.
    Descriptors are random products of the pixels, and brighter cells are more reliable. OpenVINO
    runs models whose outputs are `declared` to be maps. A `trackable` model is good enough for
    odometry: its keypoints are blobs, described by smooth filters that reach beyond the cell.

    With `scores_rank`, it has the form of SuperPoint's exports after the softmax: instead of the
    logits, a score for each pixel (its value), (1, H, W) or (1, 1, H, W) by rank.
    """
    from onnx.helper import make_node as node

    detector, filters = _smooth_filters() if trackable else _cell_filters()
    constants = {
        "contrast": np.float32(contrast),
        "detector": detector,
        "filters": filters,
        "zero": np.zeros((1, 1, 1, 1), np.float32),
        "no_keypoint": np.float32((0.01 if trackable else 0.6) * contrast),
        "one": np.float32([[[[1.0]]]]),
        "first_axis": np.array([1], np.int64),
    }
    nodes = [
        node("ReduceMean", ["image"], ["gray"], axes=[1], keepdims=1),
        node("Conv", ["gray", "detector"], ["dots"], pads=_around(detector, 1)),
        node("SpaceToDepth", ["dots"], ["cells"], blocksize=8),
        node("Mul", ["cells", "contrast"], ["logits_of_pixels"]),
        node("AveragePool", ["gray"], ["mean"], kernel_shape=[8, 8], strides=[8, 8]),
        node("Conv", ["mean", "zero"], ["zeros"]),
        node("Add", ["zeros", "no_keypoint"], ["dustbin"]),
        node("Concat", ["logits_of_pixels", "dustbin"], ["1266"], axis=1),
        node("Conv", ["gray", "filters"], ["output"], strides=[8, 8], pads=_around(filters, 8)),
        node("Conv", ["mean", "one"], ["gray_mean"]),
        node("Sigmoid", ["gray_mean"], ["266"]),
    ]
    names = [("1266", "output", "266")[i] for i in order][: 3 if reliability else 2]
    if scores_rank:
        squeezed = node("Squeeze", ["gray", "first_axis"], ["scores"])
        nodes.append(node("Identity", ["gray"], ["scores"]) if scores_rank == 4 else squeezed)
        names = ["scores", "output"]
    shapes = {"1266": [1, 65], "output": [1, len(filters)], "266": [1, 1], "scores": [1, 1]}
    maps = {name: [*shapes[name], "rows", "columns"] if declared else None for name in names}
    outputs = {name: ("FLOAT", shape) for name, shape in maps.items()}
    _save(path, nodes, {"image": ("FLOAT", [1, channels, *size])}, outputs, constants)
    return path


def write_keypoints_model(
    path: Path,
    pixels,
    keypoints=None,
    *,
    channels=1,
    size=("h", "w"),
    outputs=("keypoints", "scores", "descriptors"),
    transposed=False,
    batched=True,
    count_input=None,
) -> Path:
    """Write a model that returns given keypoints; their scores are the values of `pixels`.

    Descriptors are (score, 2 * score, 3 * score), which identifies the pixel. `count_input` is
    name, type and shape of a second input that takes the number of keypoints.
    """
    from onnx import TensorProto
    from onnx.helper import make_node as node

    keypoints = np.asarray(pixels if keypoints is None else keypoints)
    where = np.column_stack([np.zeros(len(pixels)), np.asarray(pixels)[:, ::-1]])
    constants = {
        "all_given": keypoints,
        "all_where": where.astype(np.int64),
        "start": np.array([0], np.int64),
        "all": np.array([len(pixels)], np.int64),
        "one": np.array([1], np.int64),
        "factors": np.float32([[1, 2, 3]]),
        # The last channel: gray itself, or blue of an RGB image.
        "last": np.array(channels - 1, np.int64),
    }
    inputs = {"image": ("FLOAT", [1, channels, *size])}
    nodes = []
    if count_input:
        name, kind, shape = count_input
        inputs[name] = kind, shape
        nodes = [
            node("Cast", [name], ["count"], to=TensorProto.INT64),
            node("Reshape", ["count", "one"], ["end"]),
        ]
    end = "end" if count_input else "all"
    nodes += [
        node("Slice", ["all_given", "start", end, "start"], ["given"]),
        node("Slice", ["all_where", "start", end, "start"], ["where"]),
        node("Gather", ["image", "last"], ["plane"], axis=1),
        node("GatherND", ["plane", "where"], ["values"]),
        node("Unsqueeze", ["values", "one"], ["column"]),
        node("MatMul", ["column", "factors"], ["table"]),
        node("Transpose", ["table"], ["turned"], perm=[1, 0]),
    ]
    for inner, outer in zip(
        ("given", "values", "turned" if transposed else "table"), outputs, strict=True
    ):
        batch = node("Unsqueeze", [inner, "start"], [outer])
        nodes.append(batch if batched else node("Identity", [inner], [outer]))
    kinds = "INT64" if keypoints.dtype == np.int64 else "DOUBLE", "FLOAT", "FLOAT"
    returned = {name: (kind, None) for name, kind in zip(outputs, kinds, strict=True)}
    _save(path, nodes, inputs, returned, constants)
    return path


def _save(path, nodes, inputs, outputs, constants):
    """Write a graph; inputs and outputs are types and shapes by name."""
    import onnx
    from onnx import helper, numpy_helper

    declared_inputs, declared_outputs = (
        [
            helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), shape)
            for name, (kind, shape) in declared.items()
        ]
        for declared in (inputs, outputs)
    )
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "extractor", declared_inputs, declared_outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)


def _cell_filters():
    """Pixels as they are, and 16 random filters of 8x8 pixels."""
    filters = np.random.default_rng(7).normal(size=(16, 1, 8, 8)).astype(np.float32)
    return np.ones((1, 1, 1, 1), np.float32), filters - filters.mean(axis=(2, 3), keepdims=True)


def _smooth_filters():
    """A filter for blobs of a few pixels, and 32 smooth random filters of 32x32 pixels."""
    narrow, wide = (cv2.getGaussianKernel(9, sigma_px) for sigma_px in (1.2, 2.4))
    window = np.outer(*2 * [np.hanning(34)[1:-1]])
    rng = np.random.default_rng(7)
    filters = window * [cv2.GaussianBlur(rng.normal(size=(32, 32)), (0, 0), 2) for _ in range(32)]
    filters -= window * (filters.sum(axis=(1, 2), keepdims=True) / window.sum())
    detector = narrow @ narrow.T - wide @ wide.T
    return detector[None, None].astype(np.float32), filters[:, None].astype(np.float32)


def _around(filters, stride):
    """Padding with which a convolution has one output per `stride` pixels."""
    return [(filters.shape[-1] - stride) // 2] * 4
