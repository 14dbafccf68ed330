"""Small learned extractors, written as ONNX files."""

from pathlib import Path

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
) -> Path:
    """Write a model of XFeat's form: logits, descriptors and reliability per cell of 8x8 pixels.

    The logits of a cell are its pixel values times `contrast`, so that bright dots are keypoints.
    Descriptors are random products of the pixels, and brighter cells are more reliable. OpenVINO
    runs models whose outputs are `declared` to be maps.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(7)
    filters = rng.normal(size=(16, 1, 8, 8)).astype(np.float32)
    constants = {
        "contrast": np.float32(contrast),
        "filters": filters - filters.mean(axis=(2, 3), keepdims=True),
        "zero": np.zeros((1, 1, 1, 1), np.float32),
        "no_keypoint": np.float32(0.6 * contrast),
        "one": np.float32([[[[1.0]]]]),
    }
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["image"], ["gray"], axes=[1], keepdims=1),
        node("SpaceToDepth", ["gray"], ["cells"], blocksize=8),
        node("Mul", ["cells", "contrast"], ["logits_of_pixels"]),
        node("AveragePool", ["gray"], ["mean"], kernel_shape=[8, 8], strides=[8, 8]),
        node("Conv", ["mean", "zero"], ["zeros"]),
        node("Add", ["zeros", "no_keypoint"], ["dustbin"]),
        node("Concat", ["logits_of_pixels", "dustbin"], ["1266"], axis=1),
        node("Conv", ["gray", "filters"], ["output"], strides=[8, 8]),
        node("Conv", ["mean", "one"], ["gray_mean"]),
        node("Sigmoid", ["gray_mean"], ["266"]),
    ]
    names = [("1266", "output", "266")[i] for i in order][: 3 if reliability else 2]
    shapes = {"1266": [1, 65], "output": [1, 16], "266": [1, 1]}
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
