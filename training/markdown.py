"""Markdown tables and notes of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:+.1f} %"


def missing(what: str, remedy: str) -> list[str]:
    return [f"*Missing: {what}. To add it, {remedy}.*"]


def missing_variants(names: dict[str, str], present: dict[str, str]) -> list[str]:
    absent = [f"`{name}`" for name in names if name not in present]
    return ["", f"*Missing at this budget: {', '.join(absent)}.*"] if absent else []


def table(head: Sequence[str], rows: Iterable[Sequence], best_in_row: bool = False) -> list[str]:
    """A Markdown table; the best number of each column, or of each row, is bold."""
    rows = [list(row) for row in rows]
    lines = rows if best_in_row else list(zip(*rows, strict=True))
    best = [max((v for v in line if isinstance(v, float)), default=None) for line in lines]

    def cell(value: object, top: float | None) -> str:
        if value is None:
            return "–"
        if not isinstance(value, float):
            return str(value)
        return f"**{value:.3f}**" if value == top else f"{value:.3f}"

    def tops(number: int) -> list:
        return [best[number]] * len(head) if best_in_row else best

    return [
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (len(head) - 1),
        *(
            "| " + " | ".join(map(cell, row, tops(number))) + " |"
            for number, row in enumerate(rows)
        ),
    ]
