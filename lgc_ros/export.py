"""Writes a model as ONNX, so that any runtime can score matches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lgc_ros.checkpoint import load_checkpoint
from lgc_ros.errors import CheckpointError, LgcError
from lgc_ros.network import COORDINATES, CorrespondenceNetwork, Perceptron

OPSET = 17


def export_onnx(model: str | Path, path: Path) -> None:
    """Write a model's network with input ``matches`` (N, 4 + side) and output ``logits`` (N,).

    N is free. Coordinates are normalized; side channels, their order and the keeping threshold
    are in the file's metadata.
    """
    try:
        import onnx
    except ImportError as error:
        raise LgcError("exporting needs the onnx package: pip install 'lgc_ros[onnx]'") from error
    network, info = load_checkpoint(model)
    if info.network.context != "cn" or info.network.head != "weights":
        raise CheckpointError(
            f"model {info.name!r} has context {info.network.context!r} and head "
            f"{info.network.head!r}: only models with context 'cn' and head 'weights' are exported"
        )
    graph = _graph(network, onnx)
    exported = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name="lgc_ros",
    )
    onnx.helper.set_model_props(
        exported,
        {
            "name": info.name,
            "features": info.features,
            "side": ",".join(info.side),
            "keep_above": repr(info.keep_above),
        },
    )
    onnx.checker.check_model(exported, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(exported, str(path))


def _graph(network: CorrespondenceNetwork, onnx):
    """The network written out operation by operation."""
    nodes, constants = [], []

    def constant(name: str, value) -> str:
        array = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
        constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(operation: str, inputs: list[str], output: str, **attributes) -> str:
        nodes.append(onnx.helper.make_node(operation, inputs, [output], **attributes))
        return output

    def linear(x: str, layer, name: str) -> str:
        weight = constant(f"{name}.weight", layer.weight)
        bias = constant(f"{name}.bias", layer.bias)
        return node("Gemm", [x, weight, bias], name, transB=1)

    def perceptron(x: str, layer: Perceptron, name: str) -> str:
        x = linear(x, layer.linear, f"{name}.linear")
        mean = node("ReduceMean", [x], f"{name}.mean", axes=[0], keepdims=1)
        centred = node("Sub", [x, mean], f"{name}.centred")
        squared = node("Mul", [centred, centred], f"{name}.squared")
        variance = node("ReduceMean", [squared], f"{name}.variance", axes=[0], keepdims=1)
        epsilon = constant(f"{name}.epsilon", np.float32(layer.norm.eps))
        shifted = node("Add", [variance, epsilon], f"{name}.shifted")
        deviation = node("Sqrt", [shifted], f"{name}.deviation")
        scale = constant(f"{name}.scale", layer.norm.weight)
        gain = node("Div", [scale, deviation], f"{name}.gain")
        scaled = node("Mul", [centred, gain], f"{name}.scaled")
        offset = constant(f"{name}.offset", layer.norm.bias)
        return node("Relu", [node("Add", [scaled, offset], f"{name}.normalized")], name)

    x = linear("matches", network.input, "input")
    for index, block in enumerate(network.body):
        inner = perceptron(x, block.first, f"block{index}.first")
        inner = perceptron(inner, block.second, f"block{index}.second")
        x = node("Add", [x, inner], f"block{index}")
    column = linear(x, network.output, "output")
    node("Squeeze", [column, constant("last_axis", np.array([1]))], "logits")

    real = onnx.TensorProto.FLOAT
    channels = COORDINATES + network.config.side
    return onnx.helper.make_graph(
        nodes,
        "correspondence_network",
        [onnx.helper.make_tensor_value_info("matches", real, ["N", channels])],
        [onnx.helper.make_tensor_value_info("logits", real, ["N"])],
        constants,
    )
