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
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    detector, filters = _smooth_filters() if trackable else _cell_filters()
    constants = {
        "contrast": np.float32(contrast),
        "detector": detector,
        "filters": filters,
        "zero": np.zeros((1, 1, 1, 1), np.float32),
        "no_keypoint": np.float32((0.01 if trackable else 0.6) * contrast),
        "one": np.float32([[[[1.0]]]]),
    }
    node = helper.make_node
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
    shapes = {"1266": [1, 65], "output": [1, len(filters)], "266": [1, 1], "scores": [1, 1]}
    if scores_rank:
        constants["first_axis"] = np.array([1], np.int64)
        nodes.append(
            node("Identity", ["gray"], ["scores"])
            if scores_rank == 4
            else node("Squeeze", ["gray", "first_axis"], ["scores"])
        )
        names = ["scores", "output"]
    graph = helper.make_graph(
        nodes,
        "heads",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, channels, *size])],
        [
            helper.make_tensor_value_info(
                n, TensorProto.FLOAT, [*shapes[n], "rows", "columns"] if declared else None
            )
            for n in names
        ],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


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
