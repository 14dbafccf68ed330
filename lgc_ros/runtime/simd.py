"""Matrix-product tiles held in vector registers, as building blocks for LLVM code generation.

Compilers do not find this form by themselves: the sums of a tile must stay in registers over the
whole depth of the product, and each vector loaded from the right side is used by all rows of the
left. docs/kernels.md says what the kernels built from it gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import binding, ir

INT32, INT64 = ir.IntType(32), ir.IntType(64)


def processor_has(feature: str) -> bool:
    """Whether this CPU supports an instruction set such as `avx2`."""
    return bool(binding.get_host_cpu_features().get(feature))


def arrays(context, builder, kinds: Sequence, values: Sequence) -> list:
    """Numba array structs, with fields such as `data` and `shape`, of an intrinsic's arguments."""
    pairs = zip(kinds, values, strict=True)
    return [context.make_array(kind)(context, builder, value) for kind, value in pairs]


@dataclass(frozen=True)
class Vectors:
    """Emits loads and stores of vectors of `lanes` 32-bit numbers."""

    builder: ir.IRBuilder
    element: ir.Type
    lanes: int

    @property
    def kind(self) -> ir.VectorType:
        return ir.VectorType(self.element, self.lanes)

    def load(self, base, index):
        return self.builder.load(self._at(base, index), align=4)

    def store(self, value, base, index) -> None:
        self.builder.store(value, self._at(base, index), align=4)

    def broadcast(self, base, index):
        """A vector with the number at this index in every lane."""
        undefined = ir.Constant(self.kind, ir.Undefined)
        value = self.builder.load(self.builder.gep(base, [index]))
        value = self.builder.insert_element(undefined, value, INT32(0))
        first_lane = ir.Constant(ir.VectorType(INT32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(value, undefined, first_lane)

    def _at(self, base, index):
        return self.builder.bitcast(self.builder.gep(base, [index]), self.kind.as_pointer())


def product_tile(
    vectors: Vectors, shape: tuple[int, int], left, right, depth, multiply_add: Callable
) -> list[list]:
    """Emit a loop over `depth` that sums the products of a tile; returns its vectors by row.

    Args:
        vectors: element type and lanes of the vectors.
        shape: rows of the tile, and vectors per row.
        left: pointer to (depth, rows) numbers.
        right: pointer to (depth, columns) numbers; columns are vectors per row times lanes.
        multiply_add: emits a b + c for vectors a, b and c.
    """
    builder, (rows, across) = vectors.builder, shape
    before = builder.block
    loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(INT64)
    sums = [[builder.phi(vectors.kind) for _ in range(across)] for _ in range(rows)]
    at_right = builder.mul(k, INT64(across * vectors.lanes))
    at_left = builder.mul(k, INT64(rows))
    values = [
        vectors.load(right, builder.add(at_right, INT64(v * vectors.lanes))) for v in range(across)
    ]
    grown = []
    for r in range(rows):
        factor = vectors.broadcast(left, builder.add(at_left, INT64(r)))
        pairs = zip(values, sums[r], strict=True)
        grown.append([multiply_add(factor, value, total) for value, total in pairs])
    next_k = builder.add(k, INT64(1))
    k.add_incoming(INT64(0), before)
    k.add_incoming(next_k, loop)
    zeros = ir.Constant(vectors.kind, [0] * vectors.lanes)
    for old_row, new_row in zip(sums, grown, strict=True):
        for old, new in zip(old_row, new_row, strict=True):
            old.add_incoming(zeros, before)
            old.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<", next_k, depth), loop, after)
    builder.position_at_end(after)
    return grown
