"""Pictures of matches and plots of pose accuracy. Images are BGR uint8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import ImageError
from lgc_ros.estimation.two_view import TwoViewResult, true_matches
from lgc_ros.runtime.output_files import write_file
from lgc_ros.visualization.figures import load_pyplot, save_figure

GREEN = (80, 200, 0)
RED = (40, 40, 220)
WHITE = (255, 255, 255)
GAP_PX = 8


def draw_matches(
    image0: np.ndarray,
    image1: np.ndarray,
    points0_px: np.ndarray,
    points1_px: np.ndarray,
    good: np.ndarray,
    caption: Sequence[str] = (),
    max_lines: int = 2000,
) -> np.ndarray:
    """Draw two images side by side with their matches: good ones green, above the others in red.

    Args:
        points0_px, points1_px: (N, 2) matched keypoints.
        good: (N,) bool.
        caption: lines of text in the upper left corner.
        max_lines: maximum number of matches drawn, evenly selected.
    """
    canvas, offset, scale = _side_by_side(image0, image1)
    thickness = max(1, round(canvas.shape[1] / 2000))
    shown = np.linspace(0, len(good) - 1, min(len(good), max_lines)).round().astype(int)
    shown = shown[np.argsort(good[shown], kind="stable")]
    overlay = canvas.copy()
    for i in shown:
        a = _pixel(points0_px[i])
        b = _pixel(points1_px[i] * scale + offset)
        cv2.line(overlay, a, b, GREEN if good[i] else RED, thickness, cv2.LINE_AA, 4)
    cv2.addWeighted(overlay, 0.6, canvas, 0.4, 0, dst=canvas)
    write_caption(canvas, caption)
    return canvas


def _side_by_side(
    image0: np.ndarray, image1: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The canvas, and the offset and scale that map pixels of image 1 onto it."""
    image0, image1 = _as_bgr(image0), _as_bgr(image1)
    factor = image0.shape[0] / image1.shape[0]
    size1 = (max(1, round(image1.shape[1] * factor)), image0.shape[0])
    scale = np.array(size1) / np.array(image1.shape[1::-1])
    resized = cv2.resize(image1, size1, interpolation=cv2.INTER_AREA if factor < 1 else 1)
    gap = np.full((image0.shape[0], GAP_PX, 3), 255, np.uint8)
    # On muted images the lines stand out.
    canvas = np.hstack([_muted(image0), gap, _muted(resized)])
    return canvas, np.array([image0.shape[1] + GAP_PX, 0.0]), scale


def _as_bgr(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image


def _muted(image: np.ndarray) -> np.ndarray:
    gray = _as_bgr(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))
    return cv2.addWeighted(gray, 0.55, image, 0.35, 0)


def _pixel(point: np.ndarray) -> tuple[int, int]:
    """A point in the 1/16 pixel fixed-point format of cv2.line with shift 4."""
    x, y = np.round(np.asarray(point) * 16).astype(int)
    return int(x), int(y)


def write_caption(canvas: np.ndarray, caption: Sequence[str]) -> None:
    """Write white text on a darkened strip, as large as the width allows."""
    if not caption:
        return
    font, thickness = cv2.FONT_HERSHEY_SIMPLEX, 1
    widest = max(cv2.getTextSize(text, font, 1.0, thickness)[0][0] for text in caption)
    size = min(canvas.shape[0] / 700, 0.97 * canvas.shape[1] / max(widest, 1))
    row = round(36 * size)
    strip = canvas[: row * len(caption) + row // 3]
    strip //= 3
    for index, text in enumerate(caption, start=1):
        cv2.putText(
            canvas, text, (row // 2, row * index), font, size, WHITE, thickness, cv2.LINE_AA
        )


def draw_two_view(
    image0: np.ndarray,
    image1: np.ndarray,
    result: TwoViewResult,
    true_pose: tuple[np.ndarray, np.ndarray] | None = None,
    caption: Sequence[str] = (),
) -> np.ndarray:
    """Draw the matches of a pair: inliers green, outliers red.

    With the true R_10, t_10, only the inliers are drawn, true matches green and false ones red, as
    in figure 8 of the paper.
    """
    c = result.correspondences
    if true_pose is None:
        return draw_matches(image0, image1, c.p0, c.p1, result.inliers, caption)
    true = true_matches(c, *true_pose)[result.inliers]
    p0, p1 = c.p0[result.inliers], c.p1[result.inliers]
    return draw_matches(image0, image1, p0, p1, true, caption)


def write_image(path: Path, image: np.ndarray) -> None:
    """Write an image file in the format of its suffix."""
    check_picture(path)
    _, data = cv2.imencode(path.suffix, image)
    write_file(path, data.tobytes())


def check_picture(path: Path) -> None:
    """Refuse the name of a picture whose suffix is unknown, before the work starts."""
    if not cv2.haveImageWriter(path.name):
        raise ImageError(f"cannot write {path}: use a suffix such as .png or .jpg")


def plot_accuracy(
    path: Path, errors_deg: Mapping[str, Sequence[float]], limit_deg: float = 20.0
) -> None:
    """Plot the share of pairs within an angular error, one curve per method."""
    plt = load_pyplot()
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    colours: dict[str, str] = {}
    for name, errors in errors_deg.items():
        # With the ratio test, a method keeps its colour and is drawn dashed.
        base = name.removesuffix("+ratio")
        colour = colours.setdefault(base, f"C{len(colours)}")
        style = "-" if base == name else "--"
        width = 2.5 if name.startswith("cn") else 1.2
        x = np.concatenate([[0.0], np.sort(errors), [180.0]])
        y = np.concatenate([np.arange(len(errors) + 1), [len(errors)]]) / max(len(errors), 1)
        axes.step(x, y, style, where="post", label=name, color=colour, linewidth=width)
    axes.set(
        xlim=(0, limit_deg), ylim=(0, 1), xlabel="pose error (degrees)", ylabel="share of pairs"
    )
    axes.grid(alpha=0.3)
    figure.legend(fontsize="small", loc="outside right center", frameon=False)
    save_figure(path, figure)
