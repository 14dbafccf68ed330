"""Writes a model as ONNX, so that any runtime can score matches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.checkpoint import ModelInfo, load_checkpoint
from lgc_ros.errors import CheckpointError, LgcError
from lgc_ros.network import COORDINATES, CorrespondenceNetwork, Perceptron

if TYPE_CHECKING:
    import onnx

OPSET = 17


def export_onnx(model: str | Path, path: Path) -> None:
    """Write a model's network with input ``matches`` (N, 4 + side) and output ``logits`` (N,).

    N is free. Coordinates are normalized; side channels, their order and the keeping threshold
    are in the file's metadata.
    """
    exported = onnx_model(*load_checkpoint(model))
    import onnx

    onnx.checker.check_model(exported, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(exported, str(path))


def onnx_model(network: CorrespondenceNetwork, info: ModelInfo) -> onnx.ModelProto:
    """The network as an ONNX model; see :func:`export_onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise LgcError("exporting needs the onnx package: pip install 'lgc_ros[onnx]'") from error
    if info.network.context != "cn" or info.network.head != "weights":
        raise CheckpointError(
            f"model {info.name!r} has context {info.network.context!r} and head "
            f"{info.network.head!r}: only models with context 'cn' and head 'weights' are exported"
        )
    model = onnx.helper.make_model(
        _graph(network, onnx),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name="lgc_ros",
    )
    onnx.helper.set_model_props(
        model,
        {
            "name": info.name,
            "features": info.features,
            "side": ",".join(info.side),
            "keep_above": repr(info.keep_above),
        },
    )
    return model


def _graph(network: CorrespondenceNetwork, onnx) -> onnx.GraphProto:
    """The network with activations (1, channels, N).

    That is the layout of Instance Normalization, which is Context Normalization by another name
    and which runtimes have a kernel for. Biases before it would have no effect and are left out.
    """
    nodes, constants = [], []

    def constant(name: str, value) -> str:
        array = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
        constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(operation: str, inputs: list[str], output: str, **attributes) -> str:
        nodes.append(onnx.helper.make_node(operation, inputs, [output], **attributes))
        return output

    def linear(x: str, layer, name: str) -> str:
        product = node("MatMul", [constant(f"{name}.weight", layer.weight), x], f"{name}.product")
        return node("Add", [product, constant(f"{name}.bias", layer.bias[:, None])], name)

    def perceptron(x: str, layer: Perceptron, name: str) -> str:
        weight = constant(f"{name}.weight", layer.linear.weight)
        scale = constant(f"{name}.scale", layer.norm.weight)
        offset = constant(f"{name}.offset", layer.norm.bias)
        product = node("MatMul", [weight, x], f"{name}.product")
        normalized = node(
            "InstanceNormalization",
            [product, scale, offset],
            f"{name}.normalized",
            epsilon=layer.norm.eps,
        )
        return node("Relu", [normalized], name)

    columns = node("Transpose", ["matches"], "columns", perm=[1, 0])
    x = node("Unsqueeze", [columns, constant("first_axis", np.array([0]))], "pair")
    x = linear(x, network.input, "input")
    for index, block in enumerate(network.body):
        inner = perceptron(x, block.first, f"block{index}.first")
        inner = perceptron(inner, block.second, f"block{index}.second")
        x = node("Add", [x, inner], f"block{index}")
    row = linear(x, network.output, "output")
    node("Squeeze", [row, constant("both_axes", np.array([0, 1]))], "logits")

    real = onnx.TensorProto.FLOAT
    channels = COORDINATES + network.config.side
    return onnx.helper.make_graph(
        nodes,
        "correspondence_network",
        [onnx.helper.make_tensor_value_info("matches", real, ["N", channels])],
        [onnx.helper.make_tensor_value_info("logits", real, ["N"])],
        constants,
    )
