"""Options and arguments shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lgc_ros.cli.output import check_folder, check_json

METHOD_HELP = (
    "cn (learned filter, then robust estimation on the matches it keeps), cn-8pt (one forward "
    "pass and weighted 8-point, refined, without sampling), cn-8pt-plain (without the refinement, "
    "as in the paper), or a baseline on all matches: ransac, lmeds, mlesac, magsac, usac, "
    "poselib, gms. Append +ratio to a baseline to apply the ratio test first, +ratio+unique to "
    "also keep one match per keypoint, as cn does."
)
RUN_METHOD_HELP = (
    "cn (learned filter), ransac+ratio, or another method of `lgc match --help`. Repeat to "
    "compare several. "
)

FEATURES_HELP = "sift, rootsift, orb, akaze, or a learned kind such as xfeat (--extractor-model)."

BagArgument = Annotated[
    Path, typer.Argument(metavar="BAG", help="rosbag2 folder, .mcap or .db3 file.")
]
NewBagArgument = Annotated[
    Path, typer.Argument(metavar="OUT", help="New .mcap file, or new rosbag2 folder.")
]
FeaturesOption = Annotated[str, typer.Option(metavar="NAME", help=FEATURES_HELP)]
RunFeaturesOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"{FEATURES_HELP} Default: that of the profile."),
]
ExtractorModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="ONNX file that extracts learned keypoints (docs/features.md)."
    ),
]
KeypointsOption = Annotated[
    int, typer.Option(min=8, metavar="N", help="Maximum number of keypoints per image.")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Filter model: a shipped name or a .safetensors file. Default: the one for the "
        "features.",
    ),
]
DeviceOption = Annotated[
    str, typer.Option(metavar="NAME", help="Device of the filter: auto, cpu, cuda or cuda:N.")
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        metavar="PX",
        help="Inlier threshold of the estimator in pixels. Default: 1.5 for cn, 1 otherwise.",
        show_default=False,
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", callback=check_json, help="Write the results to this JSON file."
    ),
]
MethodsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--method", metavar="NAME", help=f"{RUN_METHOD_HELP}Default: that of the profile (cn)."
    ),
]
ComparedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--method", metavar="NAME", help=f"{RUN_METHOD_HELP}Default: cn and ransac+ratio."
    ),
]
ProfileOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="default, fast, accurate, your own YAML file, or the config.yaml of a run.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting of the profile, e.g. --set window=8. See config/default.yaml for "
        "all settings.",
    ),
]
CAMERA_FORMS = (
    "a calibration file (ROS, OpenCV, Kalibr, ORB-SLAM, EuRoC), fx,fy,cx,cy[,k1,k2,p1,p2[,k3]], a "
    "dataset (tum-fr1, euroc, kitti-00, ...), or a guess: fov:70 (horizontal degrees) or exif."
)
CameraOption = Annotated[
    str | None,
    typer.Option(
        metavar="CAM",
        help=f"Camera: {CAMERA_FORMS} Default: that of the dataset or bag, or camera.yaml beside "
        "the images.",
    ),
]
KindOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Kind of SOURCE, if its files are ambiguous: kitti, tum, euroc, rosbag, video or "
        "folder.",
    ),
]
EveryOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="Process every N-th frame only.")
]
FpsOption = Annotated[
    float | None,
    typer.Option(
        min=1e-3,
        metavar="HZ",
        help="Frame rate of an image folder or video, instead of stamps in its names or file.",
    ),
]
LimitOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N frames.")]
AlignOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Alignment applied before computing errors: sim3 (rotation, translation and scale, "
        "for monocular estimates), se3 (for metric estimates), scale (first pose and scale) or "
        "none.",
    ),
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Source of metric scale: none, constant_speed:MPS, odom, depth or "
        "camera_height:METERS.",
    ),
]


def _bag_topic(help_text: str, only_with: str = "") -> Any:
    return typer.Option(metavar="TOPIC", help=f"Bags{only_with}: {help_text}")


ImageTopicOption = Annotated[str | None, _bag_topic("image topic. Default: found by type.")]
InfoTopicOption = Annotated[
    str | None, _bag_topic("CameraInfo topic. Default: the one of the image topic.")
]
OdomTopicOption = Annotated[
    str | None, _bag_topic("wheel odometry topic. Default: found by type.", ", --scale odom")
]
DepthTopicOption = Annotated[
    str | None, _bag_topic("depth image topic. Default: found by type.", ", --scale depth")
]
GroundTruthOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|TOPIC",
        help="Ground truth to use instead of the source's own: a TUM file of camera poses, or a "
        "topic of the bag.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        callback=check_folder,
        help="Folder for the results. Default: a new one in results/, linked as results/latest.",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace the results of an earlier run in --out.")
]
ReportOption = Annotated[
    bool,
    typer.Option("--report", help="Also write report.html: pictures, charts and landmarks."),
]
MaxSizeOption = Annotated[
    int | None,
    typer.Option(
        min=64,
        metavar="PX",
        help="Shrink larger images to this many pixels on their longer side first: faster, and "
        "often enough for photos of many megapixels.",
    ),
]
SkipHeldOption = Annotated[
    bool,
    typer.Option(
        "--skip-held",
        help="Leave out poses equal to the one before. A node repeats its last pose while it is "
        "lost; `lgc run` scores tracked frames only.",
    ),
]
ErrorPlotOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw path, position, orientation and error over time to this image file.",
    ),
]
PlaneOption = Annotated[
    str | None,
    typer.Option(
        metavar="AXES",
        help="Plane of the path in --plot: xy, xz or yz. Default: the axes of largest extent.",
    ),
]
