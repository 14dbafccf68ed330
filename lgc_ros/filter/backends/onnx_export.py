"""Export of a model to ONNX, for any runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from lgc_ros.errors import CheckpointError, LgcError
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint
from lgc_ros.filter.context_norm import ContextNorm
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork, PopulationNorm
from lgc_ros.filter.pooling import OrderAwarePooling
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

    def activate(x: str, norm: ContextNorm | PopulationNorm, name: str) -> str:
        scale = constant(f"{name}.scale", norm.weight)
        offset = constant(f"{name}.offset", norm.bias)
        normalized = node(
            "InstanceNormalization", [x, scale, offset], f"{name}.normalized", epsilon=norm.eps
        )
        return node("Relu", [normalized], name)

    def linear(layer: nn.Linear, x: str, name: str) -> str:
        bias = constant(f"{name}.bias", layer.bias[:, None])
        return node("Add", [product(layer.weight, x, name), bias], name)

    def transposed(x: str) -> str:
        return node("Transpose", [x], f"{x}.transposed", perm=[0, 2, 1])

    def pool(x: str, layer: OrderAwarePooling, name: str) -> str:
        """Clusters are (1, channels, clusters), their shares (1, clusters, N)."""
        features = activate(x, layer.norm, f"{name}.features")
        gathered = product(layer.gather.weight, features, f"{name}.gather")
        shares = node("Softmax", [gathered], f"{name}.gather", axis=2)
        c = node("MatMul", [features, transposed(shares)], f"{name}.clusters")
        for index, mixing in enumerate(layer.steps()):
            at = f"{name}.mixing{index}"
            rows = transposed(activate(c, mixing.cluster_norm, f"{at}.cluster_features"))
            mixed = transposed(linear(mixing.between_clusters, rows, f"{at}.between_clusters"))
            c = node("Add", [c, mixed], f"{at}.clusters")
            columns = activate(c, mixing.channel_norm, f"{at}.channel_features")
            mixed = linear(mixing.between_channels, columns, f"{at}.between_channels")
            c = node("Add", [c, mixed], at)
        update = linear(layer.output, c, f"{name}.output")
        spread = linear(layer.spread, features, f"{name}.spread_logits")
        shares = node("Softmax", [spread], f"{name}.spread", axis=1)
        return node("Add", [x, node("MatMul", [update, shares], f"{name}.update")], name)

    columns = node("Transpose", ["matches"], "columns", perm=[1, 0])
    pair = node("Unsqueeze", [columns, constant("first_axis", np.array([0]))], "pair")
    entry, output = network.input, network.output
    x = product(entry.weight, pair, "input")
    for index, (name, layer) in enumerate(network.layers()):
        if isinstance(layer, OrderAwarePooling):
            x = pool(x, layer, name)
            continue
        name, weight = f"block{name}", layer.first.linear.weight
        first, second = f"{name}.first", f"{name}.second"
        if index == 0:
            inner = product(weight @ entry.weight, pair, first)
        else:
            inner = product(weight, x, first)
        inner = activate(inner, layer.first.norm, first)
        inner = product(layer.second.linear.weight, inner, second)
        x = node("Add", [x, activate(inner, layer.second.norm, second)], name)
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
