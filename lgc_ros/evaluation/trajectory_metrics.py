"""Errors of a trajectory against ground truth: ATE, RPE and KITTI drift, computed by evo.

evo is GPL-3 and comes with the extra `eval`; it is imported only when errors are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import ConfigError, LgcError, SourceError
from lgc_ros.geometry.alignment import align_straight_paths
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images.stamps import nearest_stamp
from lgc_ros.sources.trajectory import trajectory_from_samples

ALIGNMENTS = ("sim3", "se3", "scale", "none")
KITTI_LENGTHS_M = (100, 200, 300, 400, 500, 600, 700, 800)
KITTI_STEP_FRAMES = 10
RPE_SPAN_NS = 1_000_000_000
MIN_POSES = 3


@dataclass(frozen=True, eq=False)
class TrajectoryErrors:
    """An estimate aligned with the ground truth, and its errors.

    Attributes:
        aligned, truth: same stamps; `aligned` is the estimate after alignment.
        scale: factor that alignment applied to the estimate; 1 without scale alignment.
        position_m: (N,) distance between aligned and true positions.
        ate_rmse_m: absolute trajectory error, root mean square of `position_m`.
        rpe_trans_m, rpe_rot_deg: relative pose error over `rpe_over`, root mean square; None if
            no two poses are that far apart.
        rpe_over: `1 s`, or `1 frame` for poses without stamps.
        kitti_trans_percent, kitti_rot_deg_per_m: mean drift over 100 to 800 m; None for shorter
            paths.
    """

    aligned: Trajectory
    truth: Trajectory
    scale: float
    position_m: np.ndarray
    ate_rmse_m: float
    rpe_trans_m: float | None
    rpe_rot_deg: float | None
    rpe_over: str
    kitti_trans_percent: float | None
    kitti_rot_deg_per_m: float | None

    def as_dict(self) -> dict:
        """The scalar errors, under the keys of metrics.json."""
        names = (
            "ate_rmse_m",
            "rpe_trans_m",
            "rpe_rot_deg",
            "kitti_trans_percent",
            "kitti_rot_deg_per_m",
            "scale",
        )
        return {name: getattr(self, name) for name in names}


def evaluate_trajectory(
    estimate: Trajectory, truth: Trajectory, align: str = "sim3"
) -> TrajectoryErrors:
    """Align an estimate with the ground truth and compute its errors.

    Args:
        align: `sim3` (rotation, translation and scale: for monocular trajectories), `se3`
            (rotation and translation), `scale` (first pose and scale) or `none`.
    """
    check_alignment(align)
    metrics, GeometryException = load_evo()
    estimate, truth = associate(estimate, truth)
    est, ref = _evo_trajectory(estimate), _evo_trajectory(truth)
    scale = _align(est, ref, align, GeometryException)
    ape = metrics.APE(metrics.PoseRelation.translation_part)
    ape.process_data((ref, est))
    span_ns = RPE_SPAN_NS if estimate.timed else 1
    pairs = pairs_apart(estimate.stamps_ns, span_ns)
    kitti_trans_percent, kitti_rot_deg_per_m = _kitti_drift(ref, est)
    return TrajectoryErrors(
        aligned=Trajectory(estimate.stamps_ns, np.array(est.poses_se3), timed=estimate.timed),
        truth=truth,
        scale=scale,
        position_m=np.asarray(ape.error),
        ate_rmse_m=float(ape.get_statistic(metrics.StatisticsType.rmse)),
        rpe_trans_m=_rpe(metrics, ref, est, "translation_part", pairs),
        rpe_rot_deg=_rpe(metrics, ref, est, "rotation_angle_deg", pairs),
        rpe_over="1 s" if estimate.timed else "1 frame",
        kitti_trans_percent=kitti_trans_percent,
        kitti_rot_deg_per_m=kitti_rot_deg_per_m,
    )


def _align(est, ref, align: str, GeometryException) -> float:
    """Align a path of evo with the true one, in place; the scale that was applied."""
    from evo.core.lie_algebra import se3

    if align == "none":
        return 1.0
    try:
        _, _, scale = est.align(
            ref, correct_scale=align == "sim3", correct_only_scale=align == "scale"
        )
    except GeometryException as error:  # a straight line, or no motion at all
        if any(np.ptp(path.positions_xyz, axis=0).max() == 0 for path in (est, ref)):
            raise LgcError(
                f"the trajectory cannot be aligned with the ground truth ({error}): it does not "
                "move; try --align none"
            ) from error
        found = align_straight_paths(
            np.array(est.poses_se3), np.array(ref.poses_se3), with_scale=align != "se3"
        )
        scale = found.scale
        est.scale(scale)
        est.transform(se3(found.R, found.t))
    if align == "scale":
        est.align_origin(ref)
    return float(scale)


def check_alignment(align: str) -> None:
    """Reject an unknown alignment; callers use it to fail before a long run."""
    if align not in ALIGNMENTS:
        raise ConfigError(f"unknown alignment {align!r}: use one of {', '.join(ALIGNMENTS)}")


def associate(estimate: Trajectory, truth: Trajectory) -> tuple[Trajectory, Trajectory]:
    """Estimated poses whose true pose is known, and the true poses interpolated at their stamps.

    Unless both have stamps, line i of one belongs to line i of the other.
    """
    if len(estimate) < MIN_POSES:
        raise SourceError(f"only {len(estimate)} poses were tracked, {MIN_POSES} are needed")
    if not (estimate.timed and truth.timed):
        if len(estimate) != len(truth):
            raise SourceError(
                f"the estimate has {len(estimate)} poses, the ground truth {len(truth)}: files "
                "without stamps need one line per frame each; use TUM files to compare "
                "trajectories with missing frames"
            )
        return estimate, truth
    quaternions = np.array([mat2quat(T[:3, :3]) for T in truth.T_wc])
    samples = trajectory_from_samples(
        truth.stamps_ns.tolist(), truth.positions, quaternions, "the ground truth"
    )
    true_poses = [samples.pose_at(stamp_ns) for stamp_ns in estimate.stamps_ns.tolist()]
    known = [i for i, T_wc in enumerate(true_poses) if T_wc is not None]
    if len(known) < MIN_POSES:
        raise SourceError(
            f"only {len(known)} of {len(estimate)} estimated poses fall between poses of the "
            "ground truth: check that both use the same clock"
        )
    stamps_ns = estimate.stamps_ns[known]
    return (
        Trajectory(stamps_ns, estimate.T_wc[known]),
        Trajectory(stamps_ns, np.array([true_poses[i] for i in known])),
    )


def pairs_apart(stamps_ns: np.ndarray, span_ns: int) -> list[tuple[int, int]]:
    """Indices (i, j) of poses `span_ns` apart, within half the median frame interval.

    Pairs are formed by stamp and not by index, because an index difference spans more time across
    a gap.
    """
    tolerance_ns = int(np.median(np.diff(stamps_ns))) // 2
    pairs = []
    for i, stamp_ns in enumerate(stamps_ns.tolist()):
        offset = nearest_stamp(stamps_ns[i + 1 :], stamp_ns + span_ns, tolerance_ns)
        if offset is not None:
            pairs.append((i, i + 1 + offset))
    return pairs


def _rpe(metrics, ref, est, relation: str, pairs: list[tuple[int, int]]) -> float | None:
    """Root mean square error of the relative motions between the given poses.

    evo's RPE forms pairs by index. Its APE over our relative motions is the same error for pairs
    of our choice.
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


def _kitti_drift(ref, est) -> tuple[float | None, float | None]:
    """Mean drift in % and degrees per meter over sub-paths, as in the KITTI development kit."""
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
            motions = [lie_algebra.relative_se3(p[i], p[j]) for p in (poses_ref, poses_est)]
            error = lie_algebra.relative_se3(*motions)
            angle_deg = np.degrees(lie_algebra.so3_log_angle(error[:3, :3]))
            errors.append((100 * np.linalg.norm(error[:3, 3]) / length_m, angle_deg / length_m))
    if not errors:
        return None, None
    trans, rot = np.mean(errors, axis=0)
    return float(trans), float(rot)


def _evo_trajectory(trajectory: Trajectory):
    from evo.core.trajectory import PoseTrajectory3D

    # Stamps count from the first one: seconds since 1970 lose nanoseconds in a float.
    seconds = (trajectory.stamps_ns - trajectory.stamps_ns[0]) * 1e-9
    poses = []
    for T in trajectory.T_wc:
        # Rotations read from files are rounded; evo inverts them by transposition.
        U, _, Vt = np.linalg.svd(T[:3, :3])
        T = T.copy()
        T[:3, :3] = U @ Vt
        poses.append(T)
    return PoseTrajectory3D(poses_se3=poses, timestamps=seconds)


def load_evo():
    """The parts of evo in use, or an error that says how to install it."""
    try:
        from evo.core import metrics
        from evo.core.geometry import GeometryException
    except ImportError as error:
        raise LgcError(
            "trajectory errors need evo (GPL-3): pip install 'lgc_ros[eval]'"
        ) from error
    return metrics, GeometryException
