"""Visual odometry over a source, scored where ground truth is known."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lgc_ros.errors import LgcError
from lgc_ros.evaluation.trajectory_metrics import (
    MIN_POSES,
    TrajectoryErrors,
    check_alignment,
    evaluate_trajectory,
)
from lgc_ros.features.base import Extractor, Features
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.options import MATCH, OdometryOptions
from lgc_ros.odometry.prefetch import prefetch_features
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.runtime.interrupts import deferred_interrupts
from lgc_ros.runtime.threads import thread_limit
from lgc_ros.sources import Source
from lgc_ros.visualization.point_cloud import LandmarkCloud, PointCloud
from lgc_ros.visualization.run_report import RunPictures
from lgc_ros.visualization.video import VideoWriter
from lgc_ros.visualization.viewer import Viewer

log = logging.getLogger(__name__)

METRICS = (
    "frames",
    "tracked",
    "tracked_share",
    "ate_rmse_m",
    "rpe_trans_m",
    "rpe_rot_deg",
    "kitti_trans_percent",
    "kitti_rot_deg_per_m",
    "fps",
    "scale",
)
MIN_TRACKED_SHARE = 0.5  # below it, errors say little about the run
NUMBER = re.compile(r"\d+(\.\d+)?")

Progress = Callable[[OdometryState], None]


@dataclass(frozen=True, eq=False)
class Run:
    """Result of a run.

    Attributes:
        name: name of the source.
        options: settings used.
        states: one per frame, without its matches.
        truth: true poses of the frames; None if fewer than three are known.
        seconds: time spent in odometry. Reading frames and extracting features ahead are not
            counted.
        errors: errors against the ground truth; None without it or if too little was tracked.
        ground: horizontal axes of the ground truth's world, such as "xy"; None if unknown.
        skipped: number of frames that could not be read.
        interrupted: whether the user stopped the run before the last frame.
        camera_correction_px: how far the corners of the image move by the correction of the camera
            that odometry has found.
        cloud: landmarks in the world of the trajectory, colored by the images.
        recipe: further arguments needed to repeat the run, for config.yaml.
    """

    name: str
    options: OdometryOptions
    states: list[OdometryState]
    truth: Trajectory | None
    seconds: float
    errors: TrajectoryErrors | None
    ground: str | None = None
    skipped: int = 0
    interrupted: bool = False
    camera_correction_px: float = 0.0
    cloud: PointCloud = field(default_factory=PointCloud)
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def located(self) -> list[OdometryState]:
        """The states with an estimated pose: the first, which defines the world, and tracked ones.

        Everything that counts or shows tracked frames refers to these.
        """
        first, *others = self.states
        return [first, *(state for state in others if state.tracked)]

    @property
    def trajectory(self) -> Trajectory:
        """The estimated poses."""
        return Trajectory.from_poses((state.stamp_ns, state.T_wc) for state in self.located)

    @property
    def tracked_share(self) -> float:
        """Share of the frames with an estimated pose."""
        return len(self.located) / len(self.states)

    @property
    def coverage(self) -> str:
        """The number and share of tracked frames, for titles and messages."""
        share = f"{100 * self.tracked_share:.0f} %"
        return f"{len(self.located)} of {len(self.states)} frames tracked ({share})"

    @property
    def is_mostly_untracked(self) -> bool:
        """Whether so few frames were tracked that errors say little about the run."""
        return self.tracked_share < MIN_TRACKED_SHARE

    def metrics(self) -> dict:
        """The content of metrics.json; errors are null without ground truth."""
        measured = {} if self.errors is None else self.errors.as_dict()
        measured |= {
            "frames": len(self.states),
            "tracked": len(self.located),
            "tracked_share": self.tracked_share,
            "fps": len(self.states) / self.seconds if self.seconds else None,
        }
        stages = dict.fromkeys(stage for state in self.states for stage in state.ms)
        ms = {
            stage: float(np.mean([state.ms.get(stage, 0.0) for state in self.states]))
            for stage in stages
        }
        statuses = dict(Counter(state.status for state in self.states))
        return {
            **{name: measured.get(name) for name in METRICS},
            "path_m": None if self.errors is None else self.errors.truth.length_m,
            "keyframes": sum(state.keyframe for state in self.states),
            "camera_correction_px": self.camera_correction_px,
            "statuses": statuses,
            "tracking": dict(Counter(state.tracking for state in self.states)),
            "skipped": self.skipped,
            "ms": ms,
        }

    def untracked(self) -> str:
        """How many frames were not tracked, and why; empty if all were.

        The first frame is not counted: it defines the world.
        """
        held = [state for state in self.states[1:] if not state.tracked]
        if not held:
            return ""
        statuses = Counter(state.status for state in held).most_common()
        counts = ", ".join(f"{count} {status}" for status, count in statuses)
        line = f"{len(held)} of {len(self.states)} frames were not tracked ({counts})"
        # Messages of one kind differ in their numbers.
        kinds = [NUMBER.sub("", state.message) for state in held]
        most_common = Counter(filter(None, kinds)).most_common(1)
        if most_common:
            line += f", mostly because: {held[kinds.index(most_common[0][0])].message}"
        return line


def run_odometry(
    source: Iterable[Frame],
    options: OdometryOptions,
    *,
    align: str = "sim3",
    extract: Extractor | None = None,
    progress: Progress = lambda state: None,
    video: VideoWriter | None = None,
    pictures: RunPictures | None = None,
    viewer: Viewer | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Run:
    """Feed every frame of a source to the odometry and compute errors if ground truth is known.

    Ctrl-C ends the run early; the result covers the frames processed until then.
    """
    check_alignment(align)
    with thread_limit(1):
        odometry = VisualOdometry(replace(options, threads=0), extract)
    states, truth, seconds, interrupted = [], [], 0.0, False
    cloud = LandmarkCloud()
    try:
        for frame, features in _frames(source, odometry, options.threads):
            with deferred_interrupts():
                start = time.perf_counter()
                state = odometry.process(frame, frame.T_oc, features)
                seconds += time.perf_counter() - start
                states.append(state.without_matches())
                revised = odometry.take_revised()
                _replace(states, revised)
                if frame.T_wc is not None:
                    truth.append((frame.stamp_ns, frame.T_wc))
                _draw(frame, state, cloud, video, pictures)
                _show(viewer, frame, state, odometry, revised)
                progress(state)
    except KeyboardInterrupt:
        interrupted = True
        if not states:
            raise
        log.warning("interrupted after %d frames: results cover these frames only", len(states))
    if not states:
        raise LgcError("the source has no frames")
    if warning := odometry.scale_warning():
        log.warning("%s; or choose another --scale", warning)
    origin = getattr(source, "ground_truth", None)
    run = Run(
        getattr(source, "name", "source"),
        options,
        states,
        _true_trajectory(truth),
        seconds,
        errors=None,
        ground=None if origin is None else origin.ground,
        skipped=getattr(source, "skipped", 0),
        interrupted=interrupted,
        camera_correction_px=odometry.camera_correction_px,
        cloud=cloud.result(),
        recipe={"align": align, **(recipe or {})},
    )
    return run if run.truth is None else replace(run, errors=_errors(run, run.truth, align))


def _frames(
    source: Iterable[Frame], odometry: VisualOdometry, threads: int
) -> Iterator[tuple[Frame, Callable[[], Features] | None]]:
    """Frames, with keypoints extracted ahead if every frame needs them."""
    if odometry.options.tracking == MATCH:
        yield from prefetch_features(source, odometry.extract, threads)
        return
    with thread_limit(threads):
        yield from ((frame, None) for frame in source)


def _draw(
    frame: Frame, state: OdometryState, *drawings: LandmarkCloud | VideoWriter | RunPictures | None
) -> None:
    for drawing in drawings:
        if drawing is not None:
            drawing.add(frame, state)


def _show(
    viewer: Viewer | None,
    frame: Frame,
    state: OdometryState,
    odometry: VisualOdometry,
    revised: list[OdometryState],
) -> None:
    if viewer is not None:
        viewer.add(frame, state, odometry.map)
        viewer.revise(revised)


def _true_trajectory(poses: list[tuple[int, np.ndarray]]) -> Trajectory | None:
    """Stamped true poses in the order of time; None if there are too few to compare with."""
    if len(poses) < MIN_POSES:
        return None
    return Trajectory.from_poses(sorted(poses, key=lambda pose: pose[0]))


def _replace(states: list[OdometryState], revised: list[OdometryState]) -> None:
    """Replace states of earlier frames by revised ones."""
    index = {state.stamp_ns: k for k, state in enumerate(states)} if revised else {}
    for state in revised:
        states[index[state.stamp_ns]] = state


def _errors(run: Run, truth: Trajectory, align: str) -> TrajectoryErrors | None:
    try:
        return evaluate_trajectory(run.trajectory, truth, align)
    except LgcError as error:
        log.warning("no trajectory errors: %s", error)
        return None


def missing_ground_truth(source: Source, run: Run) -> str:
    """Why a run has no errors although its source has ground truth; empty otherwise."""
    if source.ground_truth is None or run.truth is not None or len(run.states) < MIN_POSES:
        return ""
    return (
        f"no errors: fewer than {MIN_POSES} of {len(run.states)} frames fall between the poses of "
        f"{source.ground_truth.where}; check that both use the same clock"
    )
