"""Rendered sequences with exact poses and depth, and the degradations of a real camera."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cv2
import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.synthetic import World
from lgc_ros.synthetic.motion import TRAJECTORIES, HandheldMotion

START_NS = 1_700_000_000_000_000_000
# Images averaged for motion blur: so many that none is farther than this from the next. Fewer
# would show as separate sharp copies, which optical flow and keypoints confuse.
SHUTTER_STEP_PX = 1.5
MIN_SHUTTER_SAMPLES, MAX_SHUTTER_SAMPLES = 5, 65
NEAR_SHARE = 0.25  # share of the pixels that may be nearer than what the above holds for


class SyntheticSource:
    """Frames along a trajectory through the world of `seed`, rendered on access.

    Frame k does not depend on the frames rendered before. `kind` is "room" or "street". Pass a
    `world` to reuse it; `seed` then only selects the path through it. Degradations of a real
    camera, all off by default:

    noise       standard deviation at mid-gray in gray levels (photon noise: less in the dark)
    blur        exposure time as a fraction of the frame interval; the stamp is its middle
    defocus_px  standard deviation of a Gaussian blur
    exposure    relative amplitude of a slow gain drift
    vignetting  fraction of light lost in the corners
    """

    def __init__(
        self,
        trajectory: str = "walk",
        frames: int = 200,
        *,
        rate_hz: float = 20.0,
        speed_mps: float = 0.8,
        camera: Camera | None = None,
        distortion: Sequence[float] = (),
        seed: int = 0,
        kind: str = "room",
        world: World | None = None,
        noise: float = 0.0,
        blur: float = 0.0,
        defocus_px: float = 0.0,
        exposure: float = 0.0,
        vignetting: float = 0.0,
    ):
        if trajectory not in TRAJECTORIES:
            raise ConfigError(
                f"unknown trajectory '{trajectory}': use one of {', '.join(TRAJECTORIES)}"
            )
        if frames < 1 or rate_hz <= 0:
            raise ConfigError(
                f"a sequence needs at least one frame and a positive rate, got {frames} frames "
                f"at {rate_hz:g} Hz"
            )
        if seed < 0:
            raise ConfigError(f"the seed must not be negative, got {seed}")
        if camera is not None and len(distortion):
            raise ConfigError("set the distortion in the camera, not separately")
        self.camera = camera or default_camera(distortion)
        self.world = world or World(seed, kind)
        self.name = f"synthetic-{trajectory}-{seed}"
        self._seed = seed
        self._noise, self._blur, self._defocus_px = noise, blur, defocus_px
        self._exposure = exposure
        self._stamps_ns = [START_NS + round(k * 1e9 / rate_hz) for k in range(frames)]
        self._shutter_s = blur / rate_hz
        self._motion = HandheldMotion(self.world.scene, seed, (frames - 1) / rate_hz, speed_mps)
        self._pose = TRAJECTORIES[trajectory]
        self._falloff = _falloff(self.camera, vignetting) if vignetting else None

    def __len__(self) -> int:
        return len(self._stamps_ns)

    def __iter__(self) -> Iterator[Frame]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, k: int) -> Frame:
        index = range(len(self))[k]
        stamp_ns, T_wc = self._stamps_ns[index], self.T_wc(index)
        image, depth = self.world.render(self.camera, T_wc)
        image = self._degrade(image, depth, index)
        return Frame(index, stamp_ns, image, self.camera, T_wc, depth, f"{self.name}/{index:06d}")

    def T_wc(self, index: int) -> np.ndarray:
        """Ground-truth pose (4, 4) camera to world of a frame, without rendering it."""
        return self._pose(self._motion, self._time_s(index))

    def _time_s(self, index: int) -> float:
        return (self._stamps_ns[index] - START_NS) * 1e-9

    def _exposed(self, image: np.ndarray, depth: np.ndarray, time_s: float) -> np.ndarray:
        """Mean of the images that the camera sees while the shutter is open."""
        samples = self._shutter_samples(depth, time_s)
        total = image.astype(np.float32)
        for fraction in np.linspace(-0.5, 0.5, samples):
            if fraction:  # the middle one is the image itself
                T_wc = self._pose(self._motion, time_s + fraction * self._shutter_s)
                total += self.world.render(self.camera, T_wc)[0]
        return total / samples

    def _shutter_samples(self, depth: np.ndarray, time_s: float) -> int:
        """Odd number of images to average, by how far pixels move while the shutter is open."""
        first, last = (
            self._pose(self._motion, time_s + sign * self._shutter_s / 2) for sign in (-1, 1)
        )
        turn, _ = cv2.Rodrigues(first[:3, :3].T @ last[:3, :3])
        moved_m = np.linalg.norm(last[:3, 3] - first[:3, 3])
        seen = depth[depth > 0]
        near_m = np.quantile(seen, NEAR_SHARE) if seen.size else np.inf
        moved_px = self.camera.focal * (np.linalg.norm(turn) + moved_m / near_m)
        samples = 2 * int(np.ceil(moved_px / SHUTTER_STEP_PX / 2)) + 1
        return int(np.clip(samples, MIN_SHUTTER_SAMPLES, MAX_SHUTTER_SAMPLES))

    def _degrade(self, image: np.ndarray, depth: np.ndarray, index: int) -> np.ndarray:
        """Apply the degradations of a real camera."""
        time = self._time_s(index)
        light = self._exposed(image, depth, time) if self._blur else image.astype(np.float32)
        if self._defocus_px:
            light = cv2.GaussianBlur(light, (0, 0), self._defocus_px)
        if self._falloff is not None:
            light *= self._falloff
        if self._exposure:
            drift = 0.6 * self._motion.sway(time, 5.0, 7) + 0.4 * self._motion.sway(time, 1.7, 8)
            light *= np.float32(np.exp(self._exposure * drift))
        if self._noise:
            rng = np.random.default_rng((self._seed, 4, index))
            grain = rng.standard_normal(light.shape, np.float32)
            light += self._noise * np.sqrt(0.2 + 0.8 * light / 128) * grain
        return np.clip(light + 0.5, 0, 255).astype(np.uint8)


def default_camera(distortion: Sequence[float] = ()) -> Camera:
    """640x480 pixels, 63 degrees horizontal field of view, as on many robots."""
    K = np.array([[525.0, 0, 319.5], [0, 525.0, 239.5], [0, 0, 1]])
    return Camera.from_K(K, 640, 480, distortion)


def _falloff(camera: Camera, loss: float) -> np.ndarray:
    """Vignetting factors (H, W, 1): 1 in the middle, 1 - loss in the corners."""
    width, height = camera.size
    x, y = np.linspace(-1, 1, width)[None], np.linspace(-1, 1, height)[:, None]
    return (1 - loss * ((x * x + y * y) / 2) ** 1.5).astype(np.float32)[..., None]
