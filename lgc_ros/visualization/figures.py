"""matplotlib without a window, and figures as files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from lgc_ros.errors import LgcError, OutputError
from lgc_ros.runtime.output_files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150


def load_pyplot():
    """matplotlib.pyplot without a window, imported on first use."""
    try:
        import matplotlib
    except ImportError as error:
        raise LgcError("plots need matplotlib: pip install 'lgc_ros[eval]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure in the format of the suffix, and close it."""
    plt = load_pyplot()
    file = io.BytesIO()
    suffix = path.suffix.removeprefix(".").lower()
    try:
        figure.savefig(file, format=suffix or "?", dpi=DPI)
    except ValueError as error:
        raise OutputError(f"cannot write {path}: use a suffix such as .png or .pdf") from error
    finally:
        plt.close(figure)
    write_file(path, file.getvalue())
