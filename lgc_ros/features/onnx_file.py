"""What an ONNX file declares, and the plain form of it that every engine reads.

PyTorch's exporter wraps modules in functions of their own, and writes `tensor.unfold` as a loop
that appends slices to a sequence. XFeat cuts its input into cells that way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lgc_ros.features.heads import LOGITS

UNFOLD = "_aten_unfold_onnx"


def returns_logits(path: Path) -> bool:
    """Whether a file declares maps (1, C, h, w) as all of its outputs, one of them logits.

    False if it is damaged. A map of scores does not count: in bfloat16, pixels around a maximum
    would have the same score.
    """
    import onnx

    try:
        outputs = onnx.load(path, load_external_data=False).graph.output
    except Exception:  # of protobuf, whose classes depend on its implementation
        return False
    shapes = [output.type.tensor_type.shape.dim for output in outputs]
    return all(len(shape) == 4 for shape in shapes) and any(
        shape[1].dim_value == LOGITS for shape in shapes
    )


def plain_model(path: Path) -> bytes:
    """The model in a file, with its functions inlined and unfolding written as reshaping."""
    import onnx
    import onnx.inliner

    model = onnx.load(path)
    nodes = [
        plain for node in model.graph.node for plain in (_as_reshape(node, onnx.helper) or [node])
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return onnx.inliner.inline_local_functions(model).SerializeToString()


def _as_reshape(node: Any, helper: Any) -> list | None:
    """Nodes that unfold without a loop; None unless this node unfolds into parts side by side.

    Its attributes: axis `dim` is cut into `target_end` parts of `size`, one every `step`; `perm`
    then moves the axis of the parts to the end.
    """
    if not node.op_type.startswith(UNFOLD):
        return None
    known = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    axis, size, parts, order = (known.get(n) for n in ("dim", "size", "target_end", "perm"))
    axes_behind = len(order or ()) - 2 - (axis or 0)
    if not axis or size != known.get("step") or not parts or axes_behind not in (0, 1):
        return None
    # 0 keeps an axis, -1 is what remains: one axis behind the parts at most.
    shape = np.array([0] * axis + [parts, size] + [-1] * axes_behind, np.int64)
    (x,), (y,) = node.input, node.output
    value = helper.make_tensor(f"{y}_shape", 7, shape.shape, shape)  # 7: INT64
    return [
        helper.make_node("Constant", [], [f"{y}_shape"], value=value),
        helper.make_node("Reshape", [x, f"{y}_shape"], [f"{y}_parts"]),
        helper.make_node("Transpose", [f"{y}_parts"], [y], perm=order),
    ]
