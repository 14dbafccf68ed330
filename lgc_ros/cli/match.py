"""`lgc match`: the relative pose of two images."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from lgc_ros.cli.errors import stderr
from lgc_ros.cli.options import (
    CAMERA_FORMS,
    METHOD_HELP,
    DeviceOption,
    ExtractorModelOption,
    FeaturesOption,
    JsonOption,
    KeypointsOption,
    MaxSizeOption,
    ModelOption,
    ThresholdOption,
)
from lgc_ros.cli.output import echo_written
from lgc_ros.errors import LgcError
from lgc_ros.runtime.output_files import write_json

if TYPE_CHECKING:
    import numpy as np

    from lgc_ros.estimation.two_view import TwoViewPipeline, TwoViewResult
    from lgc_ros.geometry.camera import Camera

    View: TypeAlias = tuple[np.ndarray, Camera]

log = logging.getLogger(__name__)

LOW_PARALLAX_DEG = 0.2
WARM_UP_PX = 256

TruePoseOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="True pose T_10 (text, 4x4, camera 0 to camera 1): report the pose error, and draw "
        "true matches green and outliers red.",
    ),
]
PictureOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a picture of the matches.")
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("match")(match)


def match(
    image0: Annotated[Path, typer.Argument(metavar="IMAGE0", help="First image.")],
    image1: Annotated[Path, typer.Argument(metavar="IMAGE1", help="Second image.")],
    camera: Annotated[
        str, typer.Option(metavar="CAM", help=f"Camera of the first image: {CAMERA_FORMS}")
    ],
    camera1: Annotated[
        str | None,
        typer.Option(metavar="CAM", help="Camera of the second image, if it is a different one."),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help=METHOD_HELP)] = "cn",
    features: FeaturesOption = "sift",
    extractor_model: ExtractorModelOption = None,
    keypoints: KeypointsOption = 2000,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    threshold: ThresholdOption = None,
    gt: TruePoseOption = None,
    out: PictureOption = None,
    json_file: JsonOption = None,
    max_size: MaxSizeOption = None,
) -> None:
    """Estimate the relative pose of two images and draw its matches.

    Example:

    lgc match a.jpg b.jpg --camera camera.yaml --out matches.png
    """
    from lgc_ros.estimation.two_view import TwoViewPipeline, estimator_options
    from lgc_ros.evaluation.pair_metrics import score_result
    from lgc_ros.evaluation.pairs import read_pose
    from lgc_ros.visualization.matches import check_picture, draw_two_view, write_image

    if out:
        check_picture(out)
    views = _read_views((image0, image1), (camera, camera1 or camera), max_size)
    true_pose = read_pose(gt) if gt else None
    options = estimator_options(method, threshold)
    sizes = " and ".join(f"{view.width}x{view.height}" for _, view in views)
    with stderr.status(f"matching images of {sizes} pixels with {method}"):
        pipeline = TwoViewPipeline(
            method, features, keypoints, model, device, options, extractor_model=extractor_model
        )
        result = _match_warm(pipeline, views)

    summary = {"method": method, **result.as_dict()}
    if true_pose is not None:
        summary["error_deg"] = score_result(result, *true_pose).error_deg
        summary["rotation_only"] = not true_pose[1].any()
    if result.pose is not None:
        _print_pose(summary)  # before a full disk can prevent it
    if json_file:
        write_json(json_file, summary)
    if out:
        caption = [f"{method}: {summary['matches']} matches, {summary['ms']['total']:.0f} ms"]
        write_image(out, draw_two_view(views[0][0], views[1][0], result, true_pose, caption))
    if result.pose is None:
        raise LgcError(result.failure)
    echo_written(out, json_file)


def _read_views(
    paths: tuple[Path, Path], choices: tuple[str, str], max_size: int | None
) -> list[View]:
    """The images and the cameras chosen for them, shrunk to a maximum size.

    The second image gets the camera of the first if it would be the same: one guess, one warning.
    """
    from lgc_ros.geometry.camera_checks import camera_warnings
    from lgc_ros.images.frame import read_image
    from lgc_ros.images.resize import limit_size
    from lgc_ros.sources.camera_choice import EXIF, SampleImage, choose_camera

    images = [read_image(path) for path in paths]
    first, second = (
        SampleImage((image.shape[1], image.shape[0]), path)
        for image, path in zip(images, paths, strict=True)
    )
    camera0 = camera1 = choose_camera(choices[0], lambda: first)
    if choices[0] != choices[1] or first.size != second.size or choices[1] == EXIF:
        camera1 = choose_camera(choices[1], lambda: second)
    for image, camera, path in zip(images, (camera0, camera1), paths, strict=True):
        camera.check_image(image, name=str(path))
    views = [limit_size(images[0], camera0, max_size), limit_size(images[1], camera1, max_size)]
    for warning in dict.fromkeys(w for _, camera in views for w in camera_warnings(camera)):
        log.warning(warning)
    return views


def _match_warm(pipeline: TwoViewPipeline, views: Sequence[View]) -> TwoViewResult:
    """Match after everything was loaded and compiled, so that this is not in the time measured."""
    from lgc_ros.images.resize import limit_size

    def match_views(view0: View, view1: View) -> TwoViewResult:
        (image0, camera0), (image1, camera1) = view0, view1
        return pipeline(image0, image1, camera0, camera1)

    with suppress(LgcError):
        match_views(*(limit_size(*view, WARM_UP_PX) for view in views))
    return match_views(*views)


def _print_pose(summary: dict) -> None:
    rows = "\n  ".join("  ".join(f"{v: .6f}" for v in row) for row in summary["R_10"])
    typer.echo(f"R_10 =\n  {rows}")
    typer.echo("t_10 = " + "  ".join(f"{v: .6f}" for v in summary["t_10"]) + "  (unit length)")
    typer.echo(
        f"{summary['matches']} matches, {summary['kept']} kept, {summary['inliers']} inliers"
    )
    typer.echo("ms: " + ", ".join(f"{k} {v:.1f}" for k, v in summary["ms"].items()))
    if "error_deg" in summary:
        of = "rotation error (no true translation)" if summary["rotation_only"] else "pose error"
        typer.echo(f"{of} {summary['error_deg']:.2f} degrees")
    if summary["parallax_deg"] < LOW_PARALLAX_DEG:
        typer.echo(
            f"warning: only {summary['parallax_deg']:.2f} degrees of parallax; if the camera only "
            "rotated or did not move, t_10 is arbitrary",
            err=True,
        )
