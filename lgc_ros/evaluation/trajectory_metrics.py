"""Trajectories as files and their errors: TUM and KITTI formats, metrics through evo.

evo is GPL-3 and comes with the `eval` extra; only the functions that compute errors need it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transforms3d.quaternions import mat2quat, quat2mat

from lgc_ros.errors import ConfigError, LgcError, SourceError
from lgc_ros.sources.files import read_lines
from lgc_ros.sources.rosbag import read_poses
from lgc_ros.sources.trajectory import Trajectory, read_trajectory
from lgc_ros.sources.tum import format_stamp, nearest_stamp

ALIGNMENTS = ("sim3", "se3", "scale", "none")
KITTI_LENGTHS_M = (100, 200, 300, 400, 500, 600, 700, 800)
KITTI_STEP_FRAMES = 10
RPE_SPAN_NS = 1_000_000_000
MIN_POSES = 3


@dataclass(frozen=True, eq=False)
class PoseTrack:
    """Poses camera to world over time."""

    stamps_ns: np.ndarray  # (N,) int64
    T_wc: np.ndarray  # (N, 4, 4)
    timed: bool = True  # False: read from a file without stamps, which count lines instead

    def __len__(self) -> int:
        return len(self.stamps_ns)

    @classmethod
    def from_poses(cls, poses: Iterable[tuple[int, np.ndarray]]) -> PoseTrack:
        """From pairs of stamp in nanoseconds and 4x4 matrix."""
        stamps_ns, matrices = [], []
        for stamp_ns, T_wc in poses:
            stamps_ns.append(stamp_ns)
            matrices.append(T_wc)
        return cls(np.array(stamps_ns, np.int64), np.reshape(matrices, (-1, 4, 4)).astype(float))

    @property
    def length_m(self) -> float:
        """Length of the path, in the unit of the poses."""
        return float(np.linalg.norm(np.diff(self.T_wc[:, :3, 3], axis=0), axis=1).sum())


def write_tum(path: Path, track: PoseTrack) -> None:
    """Write `stamp tx ty tz qx qy qz qw` lines; stamps keep every nanosecond."""
    lines = ["# timestamp tx ty tz qx qy qz qw"]
    for stamp_ns, T_wc in zip(track.stamps_ns.tolist(), track.T_wc, strict=True):
        w, x, y, z = mat2quat(T_wc[:3, :3])
        numbers = (*T_wc[:3, 3], x, y, z, w)
        lines.append(f"{format_stamp(stamp_ns)} " + " ".join(f"{n:.9f}" for n in numbers))
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def write_kitti(path: Path, track: PoseTrack) -> None:
    """Write one 3x4 camera-to-world matrix a line, row by row; the format has no stamps."""
    rows = (" ".join(f"{n:.9e}" for n in T_wc[:3].ravel()) for T_wc in track.T_wc)
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")


def read_track(path: str | Path) -> PoseTrack:
    """Read a TUM (8 columns) or KITTI (12 columns) trajectory file, or `BAG:/TOPIC`."""
    bag, colon, topic = str(path).rpartition(":/")
    if colon:
        return _track(read_poses(bag, f"/{topic}"))
    path = Path(path)
    remedy = "give a trajectory in TUM (8 columns) or KITTI (12 columns) format, or BAG:/TOPIC"
    lines = read_lines(path, remedy)
    if not lines:
        raise SourceError(f"{path} holds no pose: {remedy}")
    if len(lines[0].split()) != 12:
        return _track(read_trajectory(path))
    try:
        rows = np.array([[float(n) for n in line.split()] for line in lines]).reshape(-1, 3, 4)
    except ValueError as error:
        raise SourceError(f"{path} is not a KITTI trajectory ({error}): {remedy}") from error
    T_wc = np.tile(np.eye(4), (len(rows), 1, 1))
    T_wc[:, :3] = rows
    return PoseTrack(np.arange(len(rows)), T_wc, timed=False)


def _track(trajectory: Trajectory) -> PoseTrack:
    T_wc = np.tile(np.eye(4), (len(trajectory.stamps_ns), 1, 1))
    T_wc[:, :3, :3] = [quat2mat(q) for q in trajectory.quaternions]
    T_wc[:, :3, 3] = trajectory.positions
    return PoseTrack(trajectory.stamps_ns, T_wc)


def associate(estimate: PoseTrack, truth: PoseTrack) -> tuple[PoseTrack, PoseTrack]:
    """Estimated poses whose true pose is known, and these, interpolated at their stamps.

    Without stamps in both files line i belongs to line i.
    """
    if len(estimate) < MIN_POSES:
        raise SourceError(f"only {len(estimate)} poses were tracked, {MIN_POSES} are needed")
    if not (estimate.timed and truth.timed):
        if len(estimate) != len(truth):
            raise SourceError(
                f"the estimate has {len(estimate)} poses and the ground truth {len(truth)}: "
                "without stamps in both files they must have one line per frame each; use TUM "
                "files to compare trajectories that leave frames out"
            )
        return estimate, truth
    quaternions = np.array([mat2quat(T[:3, :3]) for T in truth.T_wc])
    samples = Trajectory.from_samples(
        truth.stamps_ns, truth.T_wc[:, :3, 3], quaternions, "the ground truth"
    )
    true_poses = [samples.pose_at(stamp_ns) for stamp_ns in estimate.stamps_ns.tolist()]
    known = [i for i, T_wc in enumerate(true_poses) if T_wc is not None]
    if len(known) < MIN_POSES:
        raise SourceError(
            f"{len(known)} of {len(estimate)} estimated poses fall between poses of the ground "
            "truth: check that both use the same clock"
        )
    stamps_ns = estimate.stamps_ns[known]
    return (
        PoseTrack(stamps_ns, estimate.T_wc[known]),
        PoseTrack(stamps_ns, np.array([true_poses[i] for i in known])),
    )


@dataclass(frozen=True, eq=False)
class TrajectoryErrors:
    """An estimate laid over the truth, and what is left between them.

    Attributes:
        aligned, truth: the same stamps; `aligned` is the estimate after alignment.
        scale: factor that alignment applied to the estimate; 1 without scale alignment.
        position_m: (N,) distance between aligned and true positions.
        ate_rmse_m: absolute trajectory error, root mean square of `position_m`.
        rpe_trans_m, rpe_rot_deg: root mean square error of the motion over `rpe_over`; None where
            no two poses are that far apart.
        rpe_over: `1 s`, or `1 frame` where poses have no stamps.
        kitti_trans_percent, kitti_rot_deg_per_m: mean drift over 100 to 800 m; None where the
            path is shorter.
    """

    aligned: PoseTrack
    truth: PoseTrack
    scale: float
    position_m: np.ndarray
    ate_rmse_m: float
    rpe_trans_m: float | None
    rpe_rot_deg: float | None
    rpe_over: str
    kitti_trans_percent: float | None
    kitti_rot_deg_per_m: float | None

    def as_dict(self) -> dict:
        """The numbers, under the keys of metrics.json."""
        names = (
            "ate_rmse_m",
            "rpe_trans_m",
            "rpe_rot_deg",
            "kitti_trans_percent",
            "kitti_rot_deg_per_m",
            "scale",
        )
        return {name: getattr(self, name) for name in names}


def evaluate_track(estimate: PoseTrack, truth: PoseTrack, align: str = "sim3") -> TrajectoryErrors:
    """Errors of a trajectory after alignment.

    Args:
        align: `sim3` (rotation, translation and scale: for monocular trajectories), `se3`
            (rotation and translation), `scale` (first pose and scale) or `none`.
    """
    check_alignment(align)
    metrics, GeometryException = load_evo()
    estimate, truth = associate(estimate, truth)
    est, ref = _evo_trajectory(estimate), _evo_trajectory(truth)
    scale = 1.0
    if align != "none":
        try:
            _, _, scale = est.align(
                ref, correct_scale=align == "sim3", correct_only_scale=align == "scale"
            )
        except GeometryException as error:
            raise LgcError(
                f"the trajectory cannot be aligned with the ground truth ({error}): it may not "
                "move; try --align none"
            ) from error
    if align == "scale":
        est.align_origin(ref)
    aligned = PoseTrack(estimate.stamps_ns, np.array(est.poses_se3), estimate.timed)
    ape = metrics.APE(metrics.PoseRelation.translation_part)
    ape.process_data((ref, est))
    span_ns = RPE_SPAN_NS if estimate.timed else 1
    pairs = pairs_apart(estimate.stamps_ns, span_ns)
    kitti_trans, kitti_rot = _kitti_drift(metrics, ref, est)
    return TrajectoryErrors(
        aligned,
        truth,
        float(scale),
        np.asarray(ape.error),
        float(ape.get_statistic(metrics.StatisticsType.rmse)),
        _rpe(metrics, ref, est, "translation_part", pairs),
        _rpe(metrics, ref, est, "rotation_angle_deg", pairs),
        "1 s" if estimate.timed else "1 frame",
        kitti_trans,
        kitti_rot,
    )


def check_alignment(align: str) -> None:
    """Refuse an alignment that does not exist; for who wants to know before a long run."""
    if align not in ALIGNMENTS:
        raise ConfigError(f"unknown alignment {align!r}: use one of {', '.join(ALIGNMENTS)}")


def pairs_apart(stamps_ns: np.ndarray, span_ns: int) -> list[tuple[int, int]]:
    """Poses i and j with that time between them, give or take half a usual interval.

    Stamps decide, not the number of poses: over a gap these would be far longer apart.
    """
    tolerance_ns = int(np.median(np.diff(stamps_ns))) // 2
    pairs = []
    for i, stamp_ns in enumerate(stamps_ns.tolist()):
        offset = nearest_stamp(stamps_ns[i + 1 :], stamp_ns + span_ns, tolerance_ns)
        if offset is not None:
            pairs.append((i, i + 1 + offset))
    return pairs


def _rpe(metrics, ref, est, relation: str, pairs: list[tuple[int, int]]) -> float | None:
    """Error of the motions between these poses.

    evo's RPE counts poses between the two of a pair; the absolute error of all motions is the
    same error, for pairs of our choice.
    """
    from evo.core.lie_algebra import relative_se3
    from evo.core.trajectory import PosePath3D

    if not pairs:
        return None
    motions = (
        PosePath3D(
            poses_se3=[relative_se3(path.poses_se3[i], path.poses_se3[j]) for i, j in pairs]
        )
        for path in (ref, est)
    )
    error = metrics.APE(metrics.PoseRelation[relation])
    error.process_data(tuple(motions))
    return float(error.get_statistic(metrics.StatisticsType.rmse))


def _kitti_drift(metrics, ref, est) -> tuple[float | None, float | None]:
    """Mean error over sub-paths of the true trajectory, as KITTI's development kit counts."""
    from evo.core import filters, lie_algebra

    distances, poses_ref, poses_est = ref.distances, ref.poses_se3, est.poses_se3
    errors = []
    for length_m in KITTI_LENGTHS_M:
        if distances[-1] < length_m:
            break
        pairs = filters.filter_pairs_by_path(poses_ref, length_m, length_m / 10, all_pairs=True)
        for i, j in pairs:
            if i % KITTI_STEP_FRAMES:
                continue
            moved = [lie_algebra.relative_se3(p[i], p[j]) for p in (poses_ref, poses_est)]
            error = lie_algebra.relative_se3(*moved)
            angle_deg = np.degrees(lie_algebra.so3_log_angle(error[:3, :3]))
            errors.append((100 * np.linalg.norm(error[:3, 3]) / length_m, angle_deg / length_m))
    if not errors:
        return None, None
    trans, rot = np.mean(errors, axis=0)
    return float(trans), float(rot)


def _evo_trajectory(track: PoseTrack):
    from evo.core.trajectory import PoseTrajectory3D

    # Stamps count from the first: as float seconds since 1970 they would lose nanoseconds.
    seconds = (track.stamps_ns - track.stamps_ns[0]) * 1e-9
    poses = []
    for T in track.T_wc:
        U, _, Vt = np.linalg.svd(T[:3, :3])
        T = T.copy()
        T[:3, :3] = U @ Vt
        poses.append(T)
    return PoseTrajectory3D(poses_se3=poses, timestamps=seconds)


def load_evo():
    """The parts of evo that are used, or an error that says how to get it."""
    try:
        from evo.core import metrics
        from evo.core.geometry import GeometryException
    except ImportError as error:
        raise LgcError(
            "trajectory errors need evo (GPL-3): pip install 'lgc_ros[eval]'"
        ) from error
    return metrics, GeometryException
