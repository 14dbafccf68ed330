"""PoseLib's LO-RANSAC, and its non-linear refinement of a pose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import poselib

from lgc_ros.geometry.epipolar import FIVE_POINT_MINIMUM
from lgc_ros.matching.correspondences import Correspondences

if TYPE_CHECKING:
    from lgc_ros.estimation.estimators import Pose, Problem

# Minimum number of samples; most ranked matches are inliers, so fewer samples find the best pose.
MIN_ITERATIONS, MIN_ITERATIONS_RANKED = 1000, 300
# Keypoints are located to a fraction of a pixel, however large the inlier threshold is.
LOSS_PX = 0.25


def lo_ransac(problem: Problem) -> Pose | None:
    """LO-RANSAC with a final non-linear refinement."""
    c, options = problem.matches, problem.options
    min_iterations = MIN_ITERATIONS_RANKED if problem.ranked else MIN_ITERATIONS
    camera = _pixel_camera(c)
    pose, info = poselib.estimate_relative_pose(
        c.x0 * c.focal,
        c.x1 * c.focal,
        camera,
        camera,
        {
            "max_epipolar_error": options.threshold_px,
            "success_prob": options.confidence,
            "max_iterations": problem.max_iterations,
            "min_iterations": min(min_iterations, problem.max_iterations),
            "progressive_sampling": problem.ranked,
            "seed": options.seed,
        },
        {"loss_type": "CAUCHY", "loss_scale": LOSS_PX},
    )
    if info["num_inliers"] < FIVE_POINT_MINIMUM:
        return None
    return pose.R, pose.t


def refine(c: Correspondences, start: Pose, losses_px: tuple[float, ...]) -> Pose:
    """Minimize the Sampson distance over poses, with a Cauchy loss of each scale in turn."""
    pose = poselib.CameraPose()
    pose.R, pose.t = start
    camera = _pixel_camera(c)
    for loss_px in losses_px:
        loss = {"loss_type": "CAUCHY", "loss_scale": loss_px}
        pose, _ = poselib.refine_relative_pose(
            c.x0 * c.focal, c.x1 * c.focal, pose, camera, camera, loss
        )
    return pose.R, pose.t


def _pixel_camera(c: Correspondences) -> dict:
    """Camera whose pixels are normalized coordinates times the mean focal length."""
    return {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [c.focal, 0.0, 0.0]}
