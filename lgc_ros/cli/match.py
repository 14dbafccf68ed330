"""`lgc match`: the relative pose of two images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lgc_ros.cli.options import (
    METHOD_HELP,
    DeviceOption,
    ExtractorModelOption,
    FeaturesOption,
    JsonOption,
    KeypointsOption,
    ModelOption,
    ThresholdOption,
)
from lgc_ros.cli.output import echo_written, write_json
from lgc_ros.errors import LgcError

LOW_PARALLAX_DEG = 0.2


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("match")(match)


def match(
    image0: Annotated[Path, typer.Argument(help="First image.")],
    image1: Annotated[Path, typer.Argument(help="Second image.")],
    camera: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Calibration of the first camera: camera_info YAML."),
    ],
    camera1: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Calibration of the second camera, if it is a different one."
        ),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help=METHOD_HELP)] = "cn",
    features: FeaturesOption = "sift",
    extractor_model: ExtractorModelOption = None,
    keypoints: KeypointsOption = 2000,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    threshold: ThresholdOption = None,
    gt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="True pose T_10 (text, 4x4, camera 0 to camera 1): report the pose error, and "
            "draw true matches green and outliers red.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture of the matches.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Estimate the relative pose of two images and draw its matches.

    Example:

    lgc match a.jpg b.jpg --camera camera.yaml --out matches.png
    """
    from lgc_ros.estimation.two_view import TwoViewPipeline, estimator_options
    from lgc_ros.evaluation.pair_metrics import score_result
    from lgc_ros.evaluation.pairs import read_pose
    from lgc_ros.geometry.camera import Camera
    from lgc_ros.images.frame import read_image
    from lgc_ros.visualization.matches import draw_two_view, write_image

    cameras = Camera.from_yaml(camera), Camera.from_yaml(camera1 or camera)
    images = read_image(image0), read_image(image1)
    for path, image, its_camera in zip((image0, image1), images, cameras, strict=True):
        its_camera.check_image(image, name=str(path))
    true_pose = read_pose(gt) if gt else None
    options = estimator_options(method, threshold)
    pipeline = TwoViewPipeline(
        method, features, keypoints, model, device, options, extractor_model=extractor_model
    )
    result = pipeline(*images, *cameras)

    summary = {"method": method, **result.as_dict()}
    if true_pose is not None:
        summary["error_deg"] = score_result(result, *true_pose).error_deg
    if json_file:
        write_json(json_file, summary)
    if out:
        caption = [
            f"{method}: {summary['inliers']} inliers of {summary['matches']} matches",
            f"{summary['ms']['total']:.0f} ms",
        ]
        write_image(out, draw_two_view(*images, result, true_pose, caption))
    if result.pose is None:
        raise LgcError(result.failure)
    _print_pose(summary)
    echo_written(out, json_file)


def _print_pose(summary: dict) -> None:
    rows = "\n  ".join("  ".join(f"{v: .6f}" for v in row) for row in summary["R_10"])
    typer.echo(f"R_10 =\n  {rows}")
    typer.echo("t_10 = " + "  ".join(f"{v: .6f}" for v in summary["t_10"]) + "  (unit length)")
    typer.echo(
        f"{summary['matches']} matches, {summary['kept']} kept, {summary['inliers']} inliers"
    )
    typer.echo("ms: " + ", ".join(f"{k} {v:.1f}" for k, v in summary["ms"].items()))
    if "error_deg" in summary:
        typer.echo(f"pose error {summary['error_deg']:.2f} degrees")
    if summary["parallax_deg"] < LOW_PARALLAX_DEG:
        typer.echo(
            f"warning: only {summary['parallax_deg']:.2f} degrees of parallax; if the camera only "
            "rotated or did not move, t_10 is arbitrary",
            err=True,
        )
