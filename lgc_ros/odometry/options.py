"""Settings of visual odometry."""

from __future__ import annotations

from dataclasses import dataclass, field

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.runtime.settings import MAX_INT, check_ranges, setting

FLOW, MATCH = "flow", "match"
TRACKING = (FLOW, MATCH)


@dataclass(frozen=True)
class OdometryOptions:
    """Settings of visual odometry, checked against their ranges."""

    method: str = setting(
        "cn", "Outlier rejection: cn (learned filter) or a baseline such as ransac+ratio"
    )
    features: str = setting(
        "sift",
        "Keypoint type: sift, rootsift, orb, akaze, or a learned one (xfeat); cn needs a model "
        "trained for it",
    )
    extractor_model: str | None = setting(
        None, "ONNX file that extracts learned keypoints, see docs/features.md", unset="none"
    )
    tracking: str = setting(
        FLOW,
        "How frames are tracked: flow (optical flow, with keypoints on keyframes only) or match "
        "(keypoints on every frame, for few frames per second)",
    )
    max_keypoints: int = setting(
        2000,
        "Maximum number of keypoints per image; fewer are faster, more help in low texture",
        low=50,
        high=20_000,
    )
    spread: bool = setting(
        False, "Distribute keypoints over the whole image instead of taking the strongest ones"
    )
    model: str | None = setting(
        None,
        "Filter model: a shipped name or a .safetensors file",
        unset="the one trained for the features",
    )
    device: str = setting("auto", "Device of the filter: auto, cpu, cuda or cuda:N")
    engine: str = setting(
        "auto",
        "Inference engine of the filter: auto (the fastest), torch, openvino, onnxruntime or "
        "tensorrt",
    )
    threads: int = setting(
        0, "Maximum number of threads of each library; 0: one per core", low=0, high=1024
    )
    threshold_px: float = setting(
        1.0,
        "Inlier threshold: maximum distance from the epipolar line",
        unit="px",
        low=0.01,
        high=100.0,
    )
    max_iterations: int | None = setting(
        None,
        "Maximum number of samples of the robust estimator",
        low=0,
        high=10_000_000,
        unset="100 after the learned filter, otherwise the estimator's own limit",
    )
    sigma_px: float = setting(
        0.35,
        "Standard deviation of keypoint positions, until keyframes have measured it",
        unit="px",
        low=0.01,
        high=100.0,
    )
    min_inliers: int = setting(
        20,
        "Minimum number of inliers per frame; with fewer, the status is few_matches",
        low=8,
        high=10_000,
    )
    init_parallax_deg: float = setting(
        1.5,
        "Minimum median parallax for triangulating the first landmarks",
        unit="deg",
        low=0.01,
        high=90.0,
    )
    keyframe_parallax_deg: float = setting(
        4.0, "Parallax at which a keyframe is inserted", unit="deg", low=0.01, high=90.0
    )
    keyframe_turn_deg: float = setting(
        8.0,
        "Rotation since the last keyframe at which a keyframe is inserted",
        unit="deg",
        low=0.01,
        high=180.0,
    )
    keyframe_overlap: float = setting(
        0.7,
        "Fraction of the best number of matches below which a keyframe is inserted",
        low=0.01,
        high=0.99,
    )
    keyframe_interval_s: float = setting(
        2.0,
        "Time after which half of keyframe_parallax_deg is enough for a keyframe",
        unit="s",
        low=0.0,
        high=3600.0,
    )
    still_px: float = setting(
        0.3,
        "Image motion below which the camera counts as stationary and the pose is held",
        unit="px",
        low=0.001,
        high=100.0,
    )
    retry_keyframes: int = setting(
        4, "Number of recent keyframes tried when matching the current one fails", low=0, high=1000
    )
    lost_after: int = setting(
        3,
        "Number of consecutive frames without enough matches after which the status is lost",
        low=0,
        high=100_000,
    )
    restart_s: float = setting(
        0.5,
        "Time in status lost after which odometry re-initializes at the last pose",
        unit="s",
        low=0.0,
        high=3600.0,
    )
    max_keyframes: int = setting(
        40,
        "Maximum number of keyframes in the map; returning to one of them removes drift",
        low=2,
        high=10_000,
    )
    window: int = setting(
        6, "Number of keyframes optimized by the local bundle adjustment", low=2, high=1000
    )
    window_fixed: int = setting(
        8,
        "Number of older keyframes held fixed in the local bundle adjustment",
        low=0,
        high=1000,
    )
    window_iterations: int = setting(
        8, "Maximum number of iterations of the local bundle adjustment", low=0, high=1000
    )
    refine_camera: bool = setting(
        True, "Estimate and correct the radial distortion that the calibration leaves"
    )
    seed: int = setting(
        0,
        "Seed of all random sampling; the same seed gives the same trajectory",
        low=0,
        high=MAX_INT,
    )
    scale: ScaleOptions = field(default_factory=ScaleOptions)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.tracking not in TRACKING:
            raise ConfigError(f"tracking is '{self.tracking}': use {' or '.join(TRACKING)}")
        if self.max_keyframes < self.window:
            raise ConfigError(
                f"max_keyframes ({self.max_keyframes}) must be at least window ({self.window})"
            )
