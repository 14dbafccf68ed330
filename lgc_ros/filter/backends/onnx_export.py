"""Export of a model to ONNX, for any runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.errors import CheckpointError, LgcError
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork, Perceptron
from lgc_ros.runtime.output_files import write_file

if TYPE_CHECKING:
    import onnx

OPSET = 17


def export_onnx(model: str | Path, path: Path) -> None:
    """Write a model's network with input ``matches`` (N, 4 + side) and output ``logits`` (N,).

    N is dynamic. Coordinates are normalized. The metadata of the file names the side channels in
    order and the logit above which a match is kept.
    """
    exported = onnx_model(*load_checkpoint(model))
    import onnx

    onnx.checker.check_model(exported, full_check=True)
    write_file(path, exported.SerializeToString())


def onnx_model(network: CorrespondenceNetwork, info: ModelInfo) -> onnx.ModelProto:
    """The network as an ONNX model, see :func:`export_onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise LgcError("exporting needs the onnx package: pip install 'lgc_ros[onnx]'") from error
    if info.network.context != "cn" or info.network.head != "weights":
        raise CheckpointError(
            f"model {info.name!r} has context {info.network.context!r} and head "
            f"{info.network.head!r}: only context 'cn' with head 'weights' can be exported"
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
            "margin": repr(info.margin),
        },
    )
    return model


def _graph(network: CorrespondenceNetwork, onnx) -> onnx.GraphProto:
    """The network with activations (1, channels, N).

    That is the layout of Instance Normalization, which equals Context Normalization and for which
    runtimes have a kernel. Biases before it have no effect and are left out; the bias of the input
    layer only reaches the output and is added there. The input layer and the first layer of the
    first block, two products without a nonlinearity in between, are merged into one.
    """
    nodes, constants = [], []

    def constant(name: str, value) -> str:
        array = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
        constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(operation: str, inputs: list[str], output: str, **attributes) -> str:
        nodes.append(onnx.helper.make_node(operation, inputs, [output], **attributes))
        return output

    def product(weight, x: str, name: str) -> str:
        return node("MatMul", [constant(f"{name}.weight", weight), x], f"{name}.product")

    def activate(product: str, layer: Perceptron, name: str) -> str:
        scale = constant(f"{name}.scale", layer.norm.weight)
        offset = constant(f"{name}.offset", layer.norm.bias)
        normalized = node(
            "InstanceNormalization",
            [product, scale, offset],
            f"{name}.normalized",
            epsilon=layer.norm.eps,
        )
        return node("Relu", [normalized], name)

    columns = node("Transpose", ["matches"], "columns", perm=[1, 0])
    pair = node("Unsqueeze", [columns, constant("first_axis", np.array([0]))], "pair")
    entry, output = network.input, network.output
    x = product(entry.weight, pair, "input")
    for index, block in enumerate(network.blocks()):
        first, second = f"block{index}.first", f"block{index}.second"
        if index == 0:
            inner = product(block.first.linear.weight @ entry.weight, pair, first)
        else:
            inner = product(block.first.linear.weight, x, first)
        inner = product(block.second.linear.weight, activate(inner, block.first, first), second)
        x = node("Add", [x, activate(inner, block.second, second)], f"block{index}")
    bias = constant("output.bias", output.bias + output.weight @ entry.bias)
    row = node("Add", [product(output.weight, x, "output"), bias], "output")
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
