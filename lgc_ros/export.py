"""Writes a model as ONNX, so that any runtime can score matches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from lgc_ros.checkpoint import ModelInfo, load_checkpoint
from lgc_ros.errors import CheckpointError, LgcError
from lgc_ros.network import (
    COORDINATES,
    WITNESS_OF,
    ContextNorm,
    CorrespondenceNetwork,
    ResidualBlock,
)

if TYPE_CHECKING:
    import onnx

OPSET = 17
SIZE_STEP = 64
FIRST_AXIS, BOTH_AXES = np.array([0]), np.array([0, 1])


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


class _Graph:
    """Nodes and constants of an ONNX graph; each method adds some and names their result."""

    def __init__(self, onnx) -> None:
        self.onnx = onnx
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, operation: str, *inputs: str | Tensor | np.ndarray, **attributes) -> str:
        """Apply an operation to results, or constants, of before."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = f"{operation}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, names, [output], **attributes))
        return output

    def _constant(self, value: Tensor | np.ndarray) -> str:
        array = value.detach().numpy() if isinstance(value, Tensor) else value
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def product(self, layer: nn.Linear, x: str) -> str:
        """Without its bias, which has no effect on what is normalized next."""
        return self.node("MatMul", layer.weight, x)

    def row(self, layer: nn.Linear, x: str, left_out: Tensor) -> str:
        """A linear map to one number per match, (N,), of x with the bias that was left out."""
        bias = layer.bias + layer.weight @ left_out
        return self.node("Squeeze", self.node("Add", self.product(layer, x), bias), BOTH_AXES)

    def block(self, x: str, block: ResidualBlock, product: str, shares: str | None) -> str:
        """A residual block, of which the first product is there already."""
        inner = self._activate(product, block.first.norm, shares)
        inner = self._activate(self.product(block.second.linear, inner), block.second.norm, shares)
        return self.node("Add", x, inner)

    def _activate(self, product: str, norm: ContextNorm, shares: str | None) -> str:
        if shares is not None:
            return self.node("Relu", self._weighted_norm(product, norm, shares))
        inputs = product, norm.weight, norm.bias
        return self.node("Relu", self.node("InstanceNormalization", *inputs, epsilon=norm.eps))

    def _weighted_norm(self, x: str, norm: ContextNorm, shares: str) -> str:
        """Context Normalization of matches whose shares (1, N, 1) in the statistics differ."""
        node = self.node
        mean = node("MatMul", x, shares)
        square = node("MatMul", node("Mul", x, x), shares)
        variance = node("Sub", square, node("Mul", mean, mean))
        deviation = node("Sqrt", node("Add", variance, np.float32(norm.eps)))
        gain = node("Div", norm.weight[:, None], deviation)
        offset = node("Sub", norm.bias[:, None], node("Mul", mean, gain))
        return node("Add", node("Mul", x, gain), offset)

    def drop(self, x: str, verdicts: str) -> tuple[str, str, Callable[[str], str]]:
        """Let survivors and witnesses go on, see :meth:`CorrespondenceNetwork._drop`.

        Returns their activations, their shares in the statistics, and what makes the logits of
        all matches of the scores of these.
        """
        node, real, integer = self.node, self.onnx.TensorProto.FLOAT, self.onnx.TensorProto.INT64
        dropped = node("Less", verdicts, np.float32(0))
        rank = node("CumSum", node("Cast", dropped, to=integer), np.int64(0))
        all_dropped = node("ReduceMax", rank, keepdims=0)
        is_first = node("Equal", node("Mod", rank, np.int64(WITNESS_OF)), np.int64(1))
        group = node("Sub", node("Add", all_dropped, np.int64(1)), rank)
        group = node("Min", group, np.int64(WITNESS_OF))
        witnesses = node("Where", is_first, group, np.int64(0))
        counts = node("Where", dropped, witnesses, np.int64(1))
        indices = node("Squeeze", node("NonZero", counts), FIRST_AXIS)
        # Runtimes prepare themselves for each new size, so there should be few: fill up with
        # matches that do not count.
        number = node("Shape", indices)
        lacking = node("Mod", node("Neg", number), np.array([SIZE_STEP]))
        filling = node("Slice", np.zeros(SIZE_STEP, np.int64), np.array([0]), lacking)
        filled = node("Concat", indices, filling, axis=0)
        counts = node("Concat", node("Gather", counts, indices), filling, axis=0)
        counts = node("Reshape", node("Cast", counts, to=real), np.array([1, -1, 1]))
        shares = node("Div", counts, node("ReduceSum", counts, keepdims=0))

        going_on = node("Gather", x, filled, axis=2)
        move = node("Sub", node("ReduceSum", x, np.array([2])), node("MatMul", going_on, counts))
        move = node("Div", move, node("Max", node("Cast", all_dropped, to=real), np.float32(1)))
        moved = node("Cast", node("Gather", dropped, filled), to=real)
        going_on = node("Add", going_on, node("Mul", move, moved))

        def logits(scores: str) -> str:
            scores = node("Slice", scores, np.array([0]), number)
            return node(
                "Where", dropped, verdicts, node("ScatterElements", verdicts, indices, scores)
            )

        return going_on, shares, logits


def _graph(network: CorrespondenceNetwork, onnx) -> onnx.GraphProto:
    """The network with activations (1, channels, N).

    That is the layout of Instance Normalization, which is Context Normalization by another name
    and which runtimes have a kernel for. The first product is of 128 channels that are themselves
    products of a few: both become one.
    """
    graph, drop_after = _Graph(onnx), network.config.drop_after
    entry = network.input
    columns = graph.node("Transpose", "matches", perm=[1, 0])
    pair = graph.node("Unsqueeze", columns, FIRST_AXIS)
    x, shares, finish = graph.product(entry, pair), None, None
    for index, block in enumerate(network.body):
        if index and index == drop_after:
            verdicts = graph.row(network.probe, x, entry.bias)
            x, shares, finish = graph.drop(x, verdicts)
        if index == 0:
            product = graph.node("MatMul", block.first.linear.weight @ entry.weight, pair)
        else:
            product = graph.product(block.first.linear, x)
        x = graph.block(x, block, product, shares)
    scores = graph.row(network.output, x, entry.bias)
    if finish is not None:
        finish(scores)
    graph.nodes[-1].output[0] = "logits"

    real = onnx.TensorProto.FLOAT
    channels = COORDINATES + network.config.side
    return onnx.helper.make_graph(
        graph.nodes,
        "correspondence_network",
        [onnx.helper.make_tensor_value_info("matches", real, ["N", channels])],
        [onnx.helper.make_tensor_value_info("logits", real, ["N"])],
        graph.constants,
    )
