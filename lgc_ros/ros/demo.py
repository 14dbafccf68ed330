"""The demo: runs the node over DDS on a synthetic sequence, evaluates it and writes a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import OutputError
from lgc_ros.estimation.two_view import TwoViewPipeline, true_matches
from lgc_ros.evaluation.pair_metrics import score_result
from lgc_ros.evaluation.trajectory_input import load_trajectory
from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory, load_evo
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.images.resize import resized_camera
from lgc_ros.ros.live import INLIERS, ODOMETRY, LiveOptions, LiveRun, run_live
from lgc_ros.runtime.output_files import write_json
from lgc_ros.runtime.result_folders import result_folder
from lgc_ros.sources.bag_types import GROUND_TRUTH_TOPIC
from lgc_ros.sources.bag_writer import CAMERA_FRAME, IMAGE_TOPIC, INFO_TOPIC, write_bag
from lgc_ros.sources.interrupted_recording import partial_recording
from lgc_ros.sources.synthetic import SyntheticSource, default_camera
from lgc_ros.sources.trajectory import write_trajectory
from lgc_ros.synthetic import World
from lgc_ros.visualization.matches import draw_two_view, write_image
from lgc_ros.visualization.point_cloud import landmark_cloud
from lgc_ros.visualization.report import REPORT_FILES, MethodComparison, Report, write_report

ROOM = 4
LOOP_FRAMES, RATE_HZ, NOISE = 360, 30.0, 2.0
# A wide-baseline pair of a sequence of PAIR_FRAMES frames on which RANSAC fails.
PAIR_FRAMES, PAIR, PAIR_NOISE = 200, (20, 50), 4.0
METHODS = ("ransac", "poselib+ratio+unique", "cn")
PICTURES = 40
SEQUENCE, RECORDING, NODE_LOG = "sequence", "recording.mcap", "node.log"
RESULTS = {
    SEQUENCE,
    RECORDING,
    partial_recording(Path(RECORDING)).name,
    NODE_LOG,
    "trajectory_tum.txt",
    "metrics.json",
    *(f"matches_{method}.jpg" for method in METHODS),
    *REPORT_FILES,
}

Show = Callable[[str, int, int, str], None]
"""Progress callback: step, amount done, total amount, remark."""
STEPS = RENDER, PLAY, EVALUATE, COMPARE, REPORT = (
    "render the sequence",
    "run the node over DDS",
    "evaluate the trajectory",
    "compare methods",
    "write the report",
)


@dataclass(frozen=True)
class DemoOptions:
    """Number of frames of the loop around the room, and image width in pixels."""

    frames: int = LOOP_FRAMES
    width: int = 640


def run_demo(out: Path, options: DemoOptions, show: Show) -> Report:
    """Render the sequence, run the node on it, evaluate its trajectory, and write the report.

    Args:
        out: folder for all results; those of an earlier demo are replaced.
        show: progress callback.

    Raises:
        LgcError: a step failed; the message says why.
    """
    load_evo()  # fail now rather than at the evaluation
    with result_folder(out, _earlier_demo, force=True):
        return _run_demo(out, options, show)


def _earlier_demo(out: Path) -> list[Path]:
    """Everything in the folder, which must be empty or hold the results of a demo."""
    found = sorted(out.iterdir())
    if foreign := [path.name for path in found if path.name not in RESULTS]:
        raise OutputError(
            f"{out} holds files that are not of a demo ({', '.join(foreign[:3])}): choose a new "
            "folder, or an empty one"
        )
    return found


def _run_demo(out: Path, options: DemoOptions, show: Show) -> Report:
    show(RENDER, 0, options.frames, "building the room")
    world = World(ROOM, "room")
    camera, bag = _camera(options.width), out / SEQUENCE
    _render(bag, world, camera, options.frames, show)

    def live_progress(run: LiveRun) -> None:
        show(PLAY, run.answered, options.frames, live_remark(run))

    show(PLAY, 0, options.frames, "starting the node")
    live_options = LiveOptions(
        IMAGE_TOPIC,
        INFO_TOPIC,
        {"base_frame": CAMERA_FRAME},
        picture_every=max(1, options.frames // PICTURES),
    )
    recording = out / RECORDING
    live = run_live(bag, recording, out / NODE_LOG, live_options, live_progress)
    show(EVALUATE, 0, 1, "")
    estimate = load_trajectory(f"{recording}:{ODOMETRY}")
    write_trajectory(out / "trajectory_tum.txt", estimate)
    errors = evaluate_trajectory(estimate, load_trajectory(f"{bag}:{GROUND_TRUTH_TOPIC}"))
    cloud = landmark_cloud(bag, IMAGE_TOPIC, recording, INLIERS, camera, errors)
    show(EVALUATE, 1, 1, f"ATE {100 * errors.ate_rmse_m:.1f} cm")

    comparisons = []
    for index, method in enumerate(METHODS):
        show(COMPARE, index, len(METHODS), method)
        comparisons.append(_compare(method, world))
        write_image(out / f"matches_{method}.jpg", comparisons[-1].picture)
    show(COMPARE, len(METHODS), len(METHODS), "")

    show(REPORT, 0, 1, "")
    report = Report(options.frames, live, errors, cloud, comparisons)
    write_report(out, report)
    write_json(out / "metrics.json", report.metrics())
    show(REPORT, 1, 1, "")
    return report


def live_remark(run: LiveRun) -> str:
    """Status and inliers, or the images dropped: both do not fit into 80 columns."""
    values = {"status": "", "inliers": "0", "dropped": "0"} | run.diagnostics
    number = "inliers" if values["dropped"] == "0" else "dropped"
    return f"{values['status']} · {values[number]} {number}"


def _render(bag: Path, world: World, camera: Camera, frames: int, show: Show) -> None:
    """Write the first frames of a loop around the room to a bag."""
    source = SyntheticSource(
        "loop",
        LOOP_FRAMES,
        rate_hz=RATE_HZ,
        camera=camera,
        seed=ROOM,
        world=world,
        noise=NOISE,
    )
    write_bag(_counted(islice(source, frames), frames, show), bag)


def _camera(width: int) -> Camera:
    """The default camera at another resolution."""
    camera = default_camera()
    return resized_camera(camera, width, round(width * camera.height / camera.width))


def _counted(frames: Iterable[Frame], total: int, show: Show) -> Iterable[Frame]:
    for done, frame in enumerate(frames, start=1):
        yield frame
        show(RENDER, done, total, "")


def _compare(method: str, world: World) -> MethodComparison:
    """Result of a method on the wide-baseline pair."""
    source = SyntheticSource("walk", PAIR_FRAMES, seed=ROOM, world=world, noise=PAIR_NOISE)
    frame0, frame1 = (source[k] for k in PAIR)
    T_10 = np.linalg.inv(source.T_wc(PAIR[1])) @ source.T_wc(PAIR[0])
    true_pose = T_10[:3, :3], T_10[:3, 3]
    camera = source.camera
    result = TwoViewPipeline(method)(frame0.image, frame1.image, camera, camera)
    true = true_matches(result.correspondences, *true_pose)
    picture = draw_two_view(frame0.image, frame1.image, result, true_pose)
    return MethodComparison(
        method,
        cv2.resize(picture, None, fx=0.9, fy=0.9, interpolation=cv2.INTER_AREA),
        int(result.inliers.sum()),
        int((result.inliers & true).sum()),
        score_result(result, *true_pose).error_deg,
    )
