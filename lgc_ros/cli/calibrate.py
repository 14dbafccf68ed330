"""`lgc calibrate`: a camera from a video or photos of a chessboard."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lgc_ros.cli.output import FrameRate, echo_written, progress_bar
from lgc_ros.errors import CameraError, ConfigError

if TYPE_CHECKING:
    from lgc_ros.calibration.chessboard import Board, BoardView
    from lgc_ros.calibration.intrinsics import Calibration
    from lgc_ros.sources import Source

log = logging.getLogger(__name__)

MAX_FRAMES = 300  # of a long video that are searched by default
GOOD_COVERAGE = 0.6  # of the image in which corners were seen
GOOD_SIGMA = 0.01  # of the focal length, relative

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Video, folder of photos, bag or camera that shows the board."
    ),
]
BoardOption = Annotated[
    str,
    typer.Option(metavar="COLSxROWS", help="Inner corners of the board: 9x6 has 10x7 squares."),
]
ModelOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="plumb_bob (most lenses), rational_polynomial (wide) or equidistant (fisheye).",
    ),
]
EveryOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Search every N-th frame only. Default: about {MAX_FRAMES} frames.",
    ),
]
ViewsOption = Annotated[
    int, typer.Option(min=5, metavar="N", help="Number of views used, those that differ most.")
]
OutOption = Annotated[Path, typer.Option(metavar="FILE", help="File to write.")]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("calibrate")(calibrate)


def calibrate(
    source: SourceArgument,
    board: BoardOption,
    square: Annotated[float, typer.Option(metavar="M", help="Side of a square in meters.")],
    model: ModelOption = "plumb_bob",
    every: EveryOption = None,
    views: ViewsOption = 50,
    out: OutOption = Path("camera.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Calibrate a camera from a video or photos of a chessboard.

    Writes the camera as ROS camera_info YAML, for --camera and for ROS drivers,
    and a picture of the reprojection errors beside it. Hold the board still or
    move it slowly, tilt it, come close and go far, and show it in all corners of
    the image. A live camera is watched until Ctrl-C.

    Example:

    lgc calibrate board.mp4 --board 9x6 --square 0.025 --out camera.yaml
    """
    from lgc_ros.calibration.chessboard import Board, choose_views
    from lgc_ros.calibration.intrinsics import calibrate as calibrate_camera
    from lgc_ros.sources import open_uncalibrated

    if out.exists() and not force:
        raise ConfigError(f"{out} already exists: give --force to replace it, or another --out")
    pattern = Board.parse(board, square)
    opened = open_uncalibrated(source)
    if every is None:
        length = opened.known_length
        every = max(1, round(length / MAX_FRAMES)) if length else 1
    opened = opened.select(every)
    seen, searched = _search(opened, pattern)
    if not seen:
        raise CameraError(
            f"no board with {board} inner corners in {searched} images of {source}: count the "
            "corners where four squares meet, and show the whole board, sharp and evenly lit"
        )
    size = opened.camera.size
    chosen = choose_views(seen, size, pattern, views)
    result = calibrate_camera(chosen, pattern, size, model)
    _report(result, len(seen), searched)
    result.camera.to_yaml(out)
    echo_written(out, _draw(result, out.with_suffix(".png")))


def _search(source: Source, board: Board) -> tuple[list[BoardView], int]:
    """Views of the board, and the number of images searched; Ctrl-C ends the search."""
    from lgc_ros.calibration.chessboard import BoardView, find_board

    seen: list[BoardView] = []
    searched = 0
    with progress_bar("searching the board", FrameRate()) as update:
        update(total=source.known_length)
        try:
            for frame in source:
                searched += 1
                if frame.image.shape[1::-1] == source.camera.size:
                    corners = find_board(frame.image, board)
                    if corners is not None:
                        seen.append(BoardView(frame.name, corners))
                else:
                    log.warning("%s has another size than the first image: skipped", frame.name)
                update(completed=searched)
        except KeyboardInterrupt:
            log.warning("interrupted after %d images: continuing with these", searched)
    return seen, searched


def _report(result: Calibration, seen: int, searched: int) -> None:
    camera, used = result.camera, len(result.views)
    typer.echo(f"board seen in {seen} of {searched} images, {used} used")
    for name in result.left_out:
        log.warning("left out %s: its corners do not fit the other views", name)
    sigmas = [""] * 4
    if result.sigmas_px is not None:
        sigmas = [f" ± {sigma:.2f}" for sigma in result.sigmas_px]
    numbers = camera.K[[0, 1, 0, 1], [0, 1, 2, 2]]
    for name, number, sigma in zip(("fx", "fy", "cx", "cy"), numbers, sigmas, strict=True):
        typer.echo(f"{name} {number:9.2f}{sigma} px")
    typer.echo(f"{camera.model}: " + " ".join(f"{value:.5g}" for value in camera.D))
    typer.echo(f"reprojection error {result.rms_px:.3f} px RMS")
    if result.coverage < GOOD_COVERAGE:
        log.warning(
            "the board covered only %.0f %% of the image: distortion near its border is a guess; "
            "add views in the corners",
            100 * result.coverage,
        )
    if result.sigmas_px is not None and result.sigmas_px[0] > GOOD_SIGMA * camera.K[0, 0]:
        log.warning(
            "the focal length is uncertain by %.1f %%: add views in which the board is tilted",
            100 * result.sigmas_px[0] / camera.K[0, 0],
        )


def _draw(result: Calibration, path: Path) -> Path | None:
    """Write the picture; without matplotlib there is none."""
    from lgc_ros.errors import LgcError
    from lgc_ros.visualization.calibration import plot_calibration

    camera = result.camera
    title = (
        f"{camera.width}x{camera.height} {camera.model}: reprojection error "
        f"{result.rms_px:.3f} px RMS, fx {camera.K[0, 0]:.1f} px"
    )
    try:
        plot_calibration(path, result, title)
    except LgcError as error:
        log.warning("no picture: %s", error)
        return None
    return path
