"""`lgc evaluate`: scores of image pairs, trajectories and bags against ground truth."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from lgc_ros.cli import tables
from lgc_ros.cli.app import App
from lgc_ros.cli.errors import INTERRUPTED
from lgc_ros.cli.options import (
    METHOD_HELP,
    AlignOption,
    BagArgument,
    CameraOption,
    ComparedOption,
    DepthTopicOption,
    DeviceOption,
    ErrorPlotOption,
    EveryOption,
    ExtractorModelOption,
    ForceOption,
    GroundTruthOption,
    ImageTopicOption,
    InfoTopicOption,
    JsonOption,
    KeypointsOption,
    LimitOption,
    ModelOption,
    OdomTopicOption,
    OutOption,
    PlaneOption,
    ProfileOption,
    ReportOption,
    RunFeaturesOption,
    ScaleOption,
    SetOption,
    SkipHeldOption,
    ThresholdOption,
)
from lgc_ros.cli.output import check_folder, echo_written, progress_bar, stdout
from lgc_ros.cli.run import method_options, run_methods, run_recipe, scale_topics
from lgc_ros.runtime.output_files import write_json

log = logging.getLogger(__name__)

BAG_METHODS = ["cn", "ransac+ratio"]

PairMethodsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help=f"{METHOD_HELP} Repeat to compare several."),
]
PairFeaturesOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="As for `lgc match`, or stored:SUFFIX for HDF5 files beside the images, e.g. "
        "stored:.sift-2000.hdf5 or stored:.desc.h5 (LIFT).",
    ),
]
PairsArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder with pairs.txt and images/.")
]
PairOutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        callback=check_folder,
        help="Write results.json, errors.csv and a plot to this folder.",
    ),
]
ImageFolderOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Image folder. Default: images/ beside pairs.txt."),
]
PairLimitOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Evaluate N evenly spaced pairs.")
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Skip malformed lines and unreadable images.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = App("Score methods on data with ground truth.")
    group.command("pairs")(pairs)
    group.command("trajectory")(trajectory)
    group.command("bag")(bag)
    app.add_typer(group, name="evaluate")


def pairs(
    folder: PairsArgument,
    method: PairMethodsOption = None,
    keypoints: KeypointsOption = 2000,
    features: PairFeaturesOption = "sift",
    extractor_model: ExtractorModelOption = None,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    threshold: ThresholdOption = None,
    images: ImageFolderOption = None,
    limit: PairLimitOption = None,
    skip_bad: SkipBadOption = False,
    json_file: JsonOption = None,
    out: PairOutOption = None,
    force: ForceOption = False,
) -> None:
    """Score two-view methods on image pairs with known poses.

    Reports mAP and AUC of the pose error at 5, 10 and 20 degrees with bootstrap
    intervals, precision and recall of the matches, and time per stage. Default
    methods: cn, cn-8pt, cn-8pt-plain, and all baselines with and without +ratio.
    """
    from lgc_ros.estimation.methods import DEFAULT_METHODS
    from lgc_ros.estimation.two_view import RelativePoseSolver, estimator_options
    from lgc_ros.evaluation.pair_runner import (
        earlier_pair_results,
        evaluate_pairs,
        feature_kind,
        summarize_pairs,
        write_pair_results,
    )
    from lgc_ros.runtime.result_folders import result_folder

    kind = feature_kind(features)
    solvers = {
        name: RelativePoseSolver(name, kind, model, device, estimator_options(name, threshold))
        for name in dict.fromkeys(method or DEFAULT_METHODS)
    }
    with result_folder(out, earlier_pair_results, force) if out else nullcontext():
        with progress_bar(f"pairs of {folder.name}") as update:
            done = evaluate_pairs(
                folder,
                solvers,
                features=features,
                max_keypoints=keypoints,
                extractor_model=extractor_model,
                limit=limit,
                images=images,
                skip_bad=skip_bad,
                progress=lambda done, total: update(completed=done, total=total),
            )
        results = summarize_pairs(folder, features, keypoints, done)
        stdout.print(*tables.pairs(results))  # before a full disk can prevent it
        if json_file:
            write_json(json_file, results)
        if out:
            write_pair_results(out, results, done)
    echo_written(json_file, out)
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)


def trajectory(
    estimate: Annotated[
        Path,
        typer.Argument(
            metavar="EST", help="Estimated trajectory: TUM or KITTI file, or BAG:/TOPIC."
        ),
    ],
    truth: Annotated[
        Path,
        typer.Argument(metavar="GT", help="Ground truth: TUM or KITTI file, or BAG:/TOPIC."),
    ],
    align: AlignOption = "sim3",
    skip_held: SkipHeldOption = False,
    plot: ErrorPlotOption = None,
    plane: PlaneOption = None,
    json_file: JsonOption = None,
) -> None:
    """Compute ATE, RPE and KITTI drift of a trajectory.

    Examples:

    lgc evaluate trajectory results/latest/trajectory_tum.txt groundtruth.txt --plot errors.png

    lgc evaluate trajectory live.mcap:/lgc_odometry/odometry bag:/ground_truth
    """
    from lgc_ros.evaluation.trajectory_input import load_trajectory
    from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
    from lgc_ros.visualization.figures import save_figure
    from lgc_ros.visualization.paths import coverage, plane_axes
    from lgc_ros.visualization.trajectory_errors import draw_trajectory_errors

    if plane is not None:
        plane_axes(plane)  # checked before the work
    poses = load_trajectory(estimate)
    held = int(poses.held.sum())
    if skip_held:
        poses = poses.without(poses.held)
    ground_truth = load_trajectory(truth)
    errors = evaluate_trajectory(poses, ground_truth, align)
    typer.echo(f"{estimate.name}: {len(errors.aligned)} poses, alignment {align}")
    covered = coverage(errors.truth, ground_truth)
    if covered:
        typer.echo(f"the poses cover {covered}")
    if held:
        scored = "left out" if skip_held else "scored like any other; --skip-held leaves them out"
        typer.echo(f"{held} poses repeat the one before (lost, or standing still): {scored}")
    stdout.print(tables.trajectory_errors(errors))
    if json_file:
        about = {
            "align": align,
            "poses": len(errors.aligned),
            "held": held,
            "path_m": errors.truth.length_m,
        }
        write_json(json_file, {**about, "rpe_over": errors.rpe_over, **errors.as_dict()})
    if plot:
        title = f"{estimate.name}: ATE {errors.ate_rmse_m:.3f} m, alignment {align}\n{covered}"
        save_figure(plot, draw_trajectory_errors(title, errors, plane))
    echo_written(json_file, plot)


def bag(
    bag: BagArgument,
    image_topic: ImageTopicOption = None,
    camera_info_topic: InfoTopicOption = None,
    gt: GroundTruthOption = None,
    camera: CameraOption = None,
    method: ComparedOption = None,
    profile: ProfileOption = "default",
    settings: SetOption = None,
    features: RunFeaturesOption = None,
    extractor_model: ExtractorModelOption = None,
    scale: ScaleOption = None,
    odom_topic: OdomTopicOption = None,
    depth_topic: DepthTopicOption = None,
    every: EveryOption = 1,
    limit: LimitOption = None,
    align: AlignOption = "sim3",
    json_file: JsonOption = None,
    report: ReportOption = False,
    out: OutOption = None,
    force: ForceOption = False,
) -> None:
    """Replay a bag offline and deterministically, and compare methods on it.

    Examples:

    lgc evaluate bag walk.mcap --gt /ground_truth --json results.json

    lgc evaluate bag walk.mcap --gt mocap.txt --scale odom --align se3 --method cn
    """
    from lgc_ros.sources import open_source

    chosen = {"features": features, "extractor_model": extractor_model}
    choices = method_options(method or BAG_METHODS, profile, settings, scale, chosen)
    opened = open_source(
        bag,
        camera,
        kind="rosbag",
        every=every,
        limit=limit,
        gt=gt,
        image_topic=image_topic,
        camera_info_topic=camera_info_topic,
        **scale_topics(bag, "rosbag", choices, odom_topic, depth_topic),
    )
    if opened.ground_truth is None:
        log.warning("no ground truth, so no errors: give --gt TOPIC or --gt FILE")
    recipe = run_recipe(bag, camera, gt, every, limit, image_topic=image_topic)
    run_methods(
        opened, choices, align, recipe, out, force=force, report=report, json_file=json_file
    )
