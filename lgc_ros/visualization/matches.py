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
# More lines hide the images, and larger pictures open slowly.
MAX_GOOD, MAX_OTHERS = 80, 30
MAX_WIDTH_PX = 2400
ROW_PX = 36  # height of a line of text of size 1


def draw_matches(
    image0: np.ndarray,
    image1: np.ndarray,
    points0_px: np.ndarray,
    points1_px: np.ndarray,
    good: np.ndarray,
    caption: Sequence[str] = (),
    legend: tuple[str, str] | None = None,
) -> np.ndarray:
    """Draw two images side by side with their matches: good ones green, above the others in red.

    Good matches are drawn as dots; at most 80 of them and 30 others also as lines.

    Args:
        points0_px, points1_px: (N, 2) matched keypoints.
        good: (N,) bool.
        caption: lines of text in the upper left corner.
        legend: names of good and other matches, for a legend with their numbers.
    """
    canvas, (offset0, scale0), (offset1, scale1) = _side_by_side(image0, image1)
    ends0, ends1 = points0_px * scale0 + offset0, points1_px * scale1 + offset1
    _draw_lines(canvas, ends0, ends1, good, np.concatenate([ends0[good], ends1[good]]))
    write_caption(canvas, caption, _entries(good, legend) if legend else ())
    return canvas


def draw_motion(
    image: np.ndarray,
    points0_px: np.ndarray,
    points1_px: np.ndarray,
    good: np.ndarray,
    caption: Sequence[str] = (),
) -> np.ndarray:
    """Draw the motion of keypoints from an earlier image to this one, see `draw_matches`.

    Good ones have dots at their present positions (`points1_px`).
    """
    canvas = _muted(_as_bgr(image))
    _draw_lines(canvas, points0_px, points1_px, good, points1_px[good])
    write_caption(canvas, caption)
    return canvas


def _draw_lines(
    canvas: np.ndarray, ends0: np.ndarray, ends1: np.ndarray, good: np.ndarray, dots: np.ndarray
) -> None:
    """Draw some of the lines, the green ones above, and all dots; the image shines through.

    Args:
        ends0, ends1: (N, 2) pixels of the canvas.
        dots: (M, 2) likewise.
    """
    overlay = canvas.copy()
    for color, matches, count in _colors(good):
        for i in _evenly(matches, count):
            cv2.line(overlay, _pixel(ends0[i]), _pixel(ends1[i]), color, 1, cv2.LINE_AA, 4)
    for point in dots:
        cv2.circle(overlay, _pixel(point), 2 * 16, GREEN, -1, cv2.LINE_AA, 4)
    cv2.addWeighted(overlay, 0.6, canvas, 0.4, 0, dst=canvas)


def _colors(good: np.ndarray) -> list[tuple[tuple[int, int, int], np.ndarray, int]]:
    """Color, matches and maximum number of lines, in the order in which they are drawn."""
    return [
        (RED, np.flatnonzero(~good), MAX_OTHERS),
        (GREEN, np.flatnonzero(good), MAX_GOOD),
    ]


def _entries(good: np.ndarray, names: tuple[str, str]) -> list[tuple[tuple[int, int, int], str]]:
    """Colors and texts of the legend, good matches first."""
    return [
        (color, f"{len(matches)} {name}" + (f" ({count} lines)" if len(matches) > count else ""))
        for (color, matches, count), name in zip(_colors(good)[::-1], names, strict=True)
        if len(matches)
    ]


def _evenly(indices: np.ndarray, count: int) -> np.ndarray:
    """At most so many of the indices, evenly spaced."""
    picked = np.linspace(0, len(indices) - 1, min(len(indices), count)).round().astype(int)
    return indices[picked]


def _side_by_side(
    image0: np.ndarray, image1: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The canvas, and for each image the offset and scale that map its pixels onto it."""
    image0, image1 = _as_bgr(image0), _as_bgr(image1)
    width = image0.shape[1] + image1.shape[1] * image0.shape[0] / image1.shape[0]
    height = max(1, round(image0.shape[0] * min(1.0, (MAX_WIDTH_PX - GAP_PX) / width)))
    parts = [_with_height(image, height) for image in (image0, image1)]
    scales = [
        np.array(part.shape[1::-1]) / np.array(image.shape[1::-1])
        for part, image in zip(parts, (image0, image1), strict=True)
    ]
    gap = np.full((height, GAP_PX, 3), 255, np.uint8)
    # On muted images the lines stand out.
    canvas = np.hstack([_muted(parts[0]), gap, _muted(parts[1])])
    offset1 = np.array([parts[0].shape[1] + GAP_PX, 0.0])
    return canvas, (np.zeros(2), scales[0]), (offset1, scales[1])


def _with_height(image: np.ndarray, height: int) -> np.ndarray:
    factor = height / image.shape[0]
    if factor == 1:
        return image
    size = max(1, round(image.shape[1] * factor)), height
    return cv2.resize(
        image, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    )


def _as_bgr(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image


def _muted(image: np.ndarray) -> np.ndarray:
    gray = _as_bgr(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))
    return cv2.addWeighted(gray, 0.55, image, 0.35, 0)


def _pixel(point: np.ndarray) -> tuple[int, int]:
    """A point in the 1/16 pixel fixed-point format of cv2.line with shift 4."""
    x, y = np.round(np.asarray(point) * 16).astype(int)
    return int(x), int(y)


def score_colors(scores: np.ndarray) -> np.ndarray:
    """RGB (N, 3), from yellow (low score) to green (high score)."""
    scores = np.clip(np.asarray(scores, float), 0, 1)
    return np.column_stack(
        [np.round(220 * (1 - scores)), np.full(len(scores), 220), np.zeros(len(scores))]
    ).astype(np.uint8)


def write_caption(
    canvas: np.ndarray,
    caption: Sequence[str],
    legend: Sequence[tuple[tuple[int, int, int], str]] = (),
) -> None:
    """Write white text, and a legend of colored lines, on a darkened patch.

    The text is as large as the width allows.
    """
    if not caption and not legend:
        return
    font, thickness = cv2.FONT_HERSHEY_SIMPLEX, 1
    texts = [*((0.5, text) for text in caption), *((2.4, text) for _, text in legend)]
    widest = max(  # of size 1, with the margin left of it, in rows
        cv2.getTextSize(text, font, 1.0, thickness)[0][0] + margin * ROW_PX
        for margin, text in texts
    )
    size = min(canvas.shape[0] / 700, 0.97 * canvas.shape[1] / widest)
    row = round(ROW_PX * size)
    patch = canvas[: row * len(texts) + row // 3, : round(widest * size) + row // 2]
    patch //= 3

    def write(line: int, text: str, left: int) -> None:
        place = (left, row * line)
        cv2.putText(canvas, text, place, font, size, WHITE, thickness, cv2.LINE_AA)

    for line, text in enumerate(caption, start=1):
        write(line, text, row // 2)
    for line, (color, text) in enumerate(legend, start=len(caption) + 1):
        middle = row * line - round(0.3 * row)
        cv2.line(canvas, (row // 2, middle), (2 * row, middle), color, max(1, row // 10))
        write(line, text, round(2.4 * row))


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
        legend = "inliers", "outliers"
        return draw_matches(image0, image1, c.p0, c.p1, result.inliers, caption, legend)
    true = true_matches(c, *true_pose)[result.inliers]
    p0, p1 = c.p0[result.inliers], c.p1[result.inliers]
    legend = "true matches among the inliers", "false ones"
    return draw_matches(image0, image1, p0, p1, true, caption, legend)


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
    colors: dict[str, str] = {}
    for name, errors in errors_deg.items():
        # With the ratio test, a method keeps its color and is drawn dashed.
        base = name.removesuffix("+ratio")
        color = colors.setdefault(base, f"C{len(colors)}")
        style = "-" if base == name else "--"
        width = 2.5 if name.startswith("cn") else 1.2
        x = np.concatenate([[0.0], np.sort(errors), [180.0]])
        y = np.concatenate([np.arange(len(errors) + 1), [len(errors)]]) / max(len(errors), 1)
        axes.step(x, y, style, where="post", label=name, color=color, linewidth=width)
    axes.set(
        xlim=(0, limit_deg), ylim=(0, 1), xlabel="pose error (degrees)", ylabel="share of pairs"
    )
    axes.grid(alpha=0.3)
    figure.legend(fontsize="small", loc="outside right center", frameon=False)
    save_figure(path, figure)
