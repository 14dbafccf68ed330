"""One run of visual odometry over a source, and the folder of results it leaves behind."""

from __future__ import annotations

import csv
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from transforms3d.quaternions import mat2quat

import lgc_ros
from lgc_ros.errors import LgcError
from lgc_ros.evaluation.trajectory_metrics import (
    MIN_POSES,
    PoseTrack,
    TrajectoryErrors,
    check_alignment,
    evaluate_track,
    write_kitti,
    write_tum,
)
from lgc_ros.features.base import Extractor
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.prefetch import prefetch_features
from lgc_ros.odometry.profiles import RUN_SECTION, dump_profile
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.runtime.threads import thread_limit
from lgc_ros.sources import Source
from lgc_ros.visualization.trajectory import VideoWriter, plot_run

log = logging.getLogger(__name__)

METRICS = (
    "frames",
    "tracked",
    "ate_rmse_m",
    "rpe_trans_m",
    "rpe_rot_deg",
    "kitti_trans_percent",
    "kitti_rot_deg_per_m",
    "fps",
    "scale",
)
RESULTS = Path("results")
LATEST = "latest"
NUMBER = re.compile(r"\d+(\.\d+)?")
COUNTS = ("features", "matches", "kept", "inliers", "landmarks")

Progress = Callable[[OdometryState], None]


@dataclass(frozen=True, eq=False)
class Run:
    """What came out of a run.

    Attributes:
        name: of the source.
        options: settings used.
        states: one per frame, without its matches.
        truth: true poses where the source knows them; None if it knows fewer than three.
        seconds: time spent on odometry, without reading frames; what of the extraction went on
            meanwhile does not count.
        errors: against the truth; None without it, or if nothing was tracked.
        ground: horizontal axes of the truth's world, such as "xy"; None if nobody says.
        skipped: frames that could not be read.
        interrupted: whether the user stopped it before the last frame.
        recipe: what else was asked for and is needed to repeat it, for config.yaml.
    """

    name: str
    options: OdometryOptions
    states: list[OdometryState]
    truth: PoseTrack | None
    seconds: float
    errors: TrajectoryErrors | None
    ground: str | None = None
    skipped: int = 0
    interrupted: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def track(self) -> PoseTrack:
        """The poses that were estimated; the first frame is the world by definition."""
        first, *others = self.states
        known = [first, *(state for state in others if state.tracked)]
        return PoseTrack.from_poses((state.stamp_ns, state.T_wc) for state in known)

    def metrics(self) -> dict:
        """The content of metrics.json: errors are null where there is no ground truth."""
        measured = {} if self.errors is None else self.errors.as_dict()
        measured |= {
            "frames": len(self.states),
            "tracked": sum(state.tracked for state in self.states),
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
            "path_m": None if self.truth is None else self.truth.length_m,
            "keyframes": sum(state.keyframe for state in self.states),
            "statuses": statuses,
            "skipped": self.skipped,
            "ms": ms,
        }

    def untracked(self) -> str:
        """How many frames have no pose of their own, and why; empty if all have one.

        The first does not count: it is the world by definition.
        """
        held = [state for state in self.states[1:] if not state.tracked]
        if not held:
            return ""
        verdicts = Counter(state.status for state in held).most_common()
        told = ", ".join(f"{count} {status}" for status, count in verdicts)
        line = f"{len(held)} of {len(self.states)} frames were not tracked ({told})"
        # Messages of one kind differ in their numbers.
        kinds = [NUMBER.sub("", state.message) for state in held]
        usual = Counter(filter(None, kinds)).most_common(1)
        if usual:
            line += f", mostly because: {held[kinds.index(usual[0][0])].message}"
        return line


def run_odometry(
    source: Iterable[Frame],
    options: OdometryOptions,
    *,
    align: str = "sim3",
    extract: Extractor | None = None,
    progress: Progress = lambda state: None,
    video: VideoWriter | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Run:
    """Feed every frame of a source to the odometry and, where the truth is known, score it.

    Ctrl-C ends it early: the frames until then are the run. `recipe` is kept with it.
    """
    check_alignment(align)
    with thread_limit(1):
        odometry = VisualOdometry(replace(options, threads=0), extract)
    states, truth, seconds, interrupted = [], [], 0.0, False
    try:
        for frame, features in prefetch_features(source, odometry.extract, options.threads):
            start = time.perf_counter()
            state = odometry.process(frame, frame.T_oc, features)
            seconds += time.perf_counter() - start
            states.append(state.without_matches())
            if frame.T_wc is not None:
                truth.append((frame.stamp_ns, frame.T_wc))
            if video is not None:
                video.add(frame, state)
            progress(state)
    except KeyboardInterrupt:
        if not states:
            raise
        interrupted = True
        log.warning("interrupted after %d frames: the results are of these", len(states))
    if not states:
        raise LgcError("the source has no frames")
    missing = odometry.scale_warning()
    if missing:
        log.warning("%s; or choose another --scale", missing)
    track = PoseTrack.from_poses(sorted(truth, key=lambda item: item[0]))
    known = track if len(track) >= MIN_POSES else None
    named = getattr(source, "truth", None)
    run = Run(
        getattr(source, "name", "source"),
        options,
        states,
        known,
        seconds,
        errors=None,
        ground=None if named is None else named.ground,
        skipped=getattr(source, "skipped", 0),
        interrupted=interrupted,
        recipe={"align": align, **(recipe or {})},
    )
    return run if known is None else replace(run, errors=_errors(run, align))


def _errors(run: Run, align: str) -> TrajectoryErrors | None:
    try:
        return evaluate_track(run.track, run.truth, align)
    except LgcError as error:
        log.warning("no trajectory errors: %s", error)
        return None


def missing_ground_truth(source: Source, run: Run) -> str:
    """Why a run has no errors although there is a ground truth; empty if that is not so."""
    if source.truth is None or run.truth is not None or len(run.states) < MIN_POSES:
        return ""
    return (
        f"no errors: fewer than {MIN_POSES} of {len(run.states)} frames fall between the poses of "
        f"{source.truth.where}; check that its stamps are of the same clock"
    )


def write_run(folder: Path, run: Run) -> None:
    """Write trajectories, states, settings, metrics and the plot of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tum(folder / "trajectory_tum.txt", run.track)
    every_frame = PoseTrack.from_poses((state.stamp_ns, state.T_wc) for state in run.states)
    write_kitti(folder / "trajectory_kitti.txt", every_frame)
    _write_states(folder / "states.csv", run.states)
    config = {
        "version": lgc_ros.__version__,
        "source": run.name,
        **run.recipe,
        RUN_SECTION: dump_profile(run.options),
    }
    text = yaml.safe_dump(config, sort_keys=False)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    metrics = json.dumps(run.metrics(), indent=2)
    (folder / "metrics.json").write_text(metrics + "\n", encoding="utf-8")
    title = f"{run.name}, {run.options.method}"
    if run.errors is not None:
        title += f": ATE {run.errors.ate_rmse_m:.3f} m over {run.truth.length_m:.1f} m"
    try:
        plot_run(folder / "trajectory.png", title, run.states, run.track, run.errors, run.ground)
    except LgcError as error:
        log.warning("no plot: %s", error)


def _write_states(path: Path, states: list[OdometryState]) -> None:
    """One line a frame, and nothing in it that differs from run to run."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        pose = ("x", "y", "z", "qx", "qy", "qz", "qw")
        spread = ("sigma_x", "sigma_y", "sigma_z", "sigma_rx", "sigma_ry", "sigma_rz")
        writer.writerow(["stamp_ns", "status", "keyframe", *pose, *spread, *COUNTS, "message"])
        for state in states:
            w, x, y, z = mat2quat(state.T_wc[:3, :3])
            numbers = (*state.T_wc[:3, 3], x, y, z, w, *np.sqrt(np.diag(state.covariance)))
            writer.writerow(
                [
                    state.stamp_ns,
                    state.status,
                    int(state.keyframe),
                    *(f"{number:.9g}" for number in numbers),
                    *(state.counts.get(name, 0) for name in COUNTS),
                    state.message,
                ]
            )


@contextmanager
def results_folder(out: Path | None, name: str, parent: Path = RESULTS) -> Iterator[Path]:
    """The folder asked for, or a new one in `parent` with `latest` beside it to find it by.

    It is made before the work, which would be lost without it; if the work fails before anything
    is written, it is gone again, and `latest` stays where it was.
    """
    folder = out or _new_folder(parent, name)
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LgcError(
            f"results cannot be written to {folder} ({error.strerror}): name another folder with "
            "--out"
        ) from error
    try:
        yield folder
    except BaseException:
        for place in made:  # from the inside out
            if not any(place.iterdir()):
                place.rmdir()
        raise
    if out is None:
        _point_to(folder)


def _new_folder(parent: Path, name: str) -> Path:
    """A name nobody has taken, from the source and the time."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder, count = parent / f"{name}-{stamp}", 1
    while folder.exists():
        count += 1
        folder = parent / f"{name}-{stamp}-{count}"
    return folder


def _point_to(folder: Path) -> None:
    link = folder.with_name(LATEST)
    if link.is_symlink() or not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name, target_is_directory=True)
