"""Settings of visual odometry."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.scale import ScaleOptions

# OpenCV and the compiled loops count in 32 bits.
MAX_INT = 2**31


@dataclass(frozen=True)
class OdometryOptions:
    """Settings of visual odometry; `config/default.yaml` explains every one of them."""

    method: str = "cn"
    features: str = "sift"
    max_keypoints: int = 2000
    spread: bool = False
    model: str | None = None
    device: str = "auto"
    engine: str = "auto"
    threads: int = 0
    threshold_px: float = 1.0
    max_iterations: int | None = None
    sigma_px: float = 0.35
    min_inliers: int = 20
    init_parallax_deg: float = 1.5
    keyframe_parallax_deg: float = 4.0
    keyframe_turn_deg: float = 8.0
    keyframe_overlap: float = 0.7
    keyframe_interval_s: float = 2.0
    still_px: float = 0.3
    retry_keyframes: int = 4
    lost_after: int = 3
    restart_s: float = 0.5
    max_keyframes: int = 40
    window: int = 6
    window_fixed: int = 8
    window_iterations: int = 8
    seed: int = 0
    scale: ScaleOptions = field(default_factory=ScaleOptions)

    def __post_init__(self) -> None:
        for name, value in (vars(self) | vars(self.scale)).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{name} is {value}, it must be a finite number")
            if isinstance(value, int) and abs(value) >= MAX_INT:
                raise ConfigError(f"{name} is {value}, it must be less than {MAX_INT}")
        if self.threads < 0:
            raise ConfigError(f"threads must be positive, or 0 for all cores, got {self.threads}")
        for name in (
            "sigma_px",
            "init_parallax_deg",
            "keyframe_parallax_deg",
            "keyframe_turn_deg",
            "still_px",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 < self.keyframe_overlap < 1:
            raise ConfigError(f"keyframe_overlap must be in (0, 1), got {self.keyframe_overlap}")
        if self.window < 2 or self.max_keyframes < self.window:
            raise ConfigError(
                f"window ({self.window}) must be at least 2 and max_keyframes "
                f"({self.max_keyframes}) at least as many"
            )
