"""A sequence through the synthetic world: exact pose and depth, a camera as good as asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import cv2
import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.synthetic import World
from lgc_ros.synthetic.scene import Scene

START_NS = 1_700_000_000_000_000_000
SHUTTER_SAMPLES = 5  # renderings averaged for motion blur; odd, the middle one is the stamp
EYE_HEIGHT_M = 1.5


class SyntheticSource:
    """Frames along a trajectory in the world of `seed`, rendered when asked for.

    Frame k is the same whether or not others were rendered before. `kind` is "room" or "street";
    a `world` made before saves building it again, `seed` then chooses the way through it.
    Degradations, all off by default, imitate a real camera:

    noise       deviation in grey levels of a mid-grey pixel (photon noise: less in the dark)
    blur        open shutter as a fraction of the frame interval; the stamp is its middle
    defocus_px  deviation of a Gaussian blur
    exposure    relative size of a slow drift of the gain
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
                f"unknown trajectory '{trajectory}'; known are {', '.join(TRAJECTORIES)}"
            )
        if frames < 1 or rate_hz <= 0:
            raise ConfigError(
                f"a sequence needs at least one frame and a positive rate, not {frames} frames "
                f"at {rate_hz:g} Hz"
            )
        if seed < 0:
            raise ConfigError(f"the seed must not be negative, but is {seed}")
        if camera is not None and len(distortion):
            raise ConfigError("give the distortion with the camera, not beside it")
        self.camera = camera or default_camera(distortion)
        self.world = world or World(seed, kind)
        self.name = f"synthetic-{trajectory}-{seed}"
        self._seed = seed
        self._noise, self._blur, self._defocus_px = noise, blur, defocus_px
        self._exposure = exposure
        self._stamps_ns = [START_NS + round(k * 1e9 / rate_hz) for k in range(frames)]
        self._shutter_s = blur / rate_hz
        self._motion = Motion(self.world.scene, seed, (frames - 1) / rate_hz, speed_mps)
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
        image = self._degrade(image, index)
        return Frame(index, stamp_ns, image, self.camera, T_wc, depth, f"{self.name}/{index:06d}")

    def T_wc(self, index: int) -> np.ndarray:
        """Ground truth camera-to-world pose (4, 4) of a frame, without rendering it."""
        return self._pose(self._motion, self._time_s(index))

    def _time_s(self, index: int) -> float:
        return (self._stamps_ns[index] - START_NS) * 1e-9

    def _degrade(self, image: np.ndarray, index: int) -> np.ndarray:
        """The image as a real camera would have delivered it."""
        time = self._time_s(index)
        if self._blur:
            offsets = (np.arange(SHUTTER_SAMPLES) / (SHUTTER_SAMPLES - 1) - 0.5) * self._shutter_s
            poses = (self._pose(self._motion, time + dt) for dt in offsets if dt)
            others = [self.world.render(self.camera, T_wc)[0] for T_wc in poses]
            image = np.mean([image, *others], axis=0)
        light = image.astype(np.float32)
        if self._defocus_px:
            light = cv2.GaussianBlur(light, (0, 0), self._defocus_px)
        if self._falloff is not None:
            light *= self._falloff
        if self._exposure:
            drift = 0.6 * self._motion.swing(time, 5.0, 7) + 0.4 * self._motion.swing(time, 1.7, 8)
            light *= np.float32(np.exp(self._exposure * drift))
        if self._noise:
            rng = np.random.default_rng((self._seed, 4, index))
            grain = rng.standard_normal(light.shape, np.float32)
            light += self._noise * np.sqrt(0.2 + 0.8 * light / 128) * grain
        return np.clip(light + 0.5, 0, 255).astype(np.uint8)


def default_camera(distortion: Sequence[float] = ()) -> Camera:
    """640x480 with 63 degrees of horizontal view, like the cameras of many robots."""
    K = np.array([[525.0, 0, 319.5], [0, 525.0, 239.5], [0, 0, 1]])
    return Camera.from_K(K, 640, 480, distortion)


def _falloff(camera: Camera, loss: float) -> np.ndarray:
    """Vignetting factors (H, W, 1): 1 in the middle, 1 - loss in the corners."""
    width, height = camera.size
    x, y = np.linspace(-1, 1, width)[None], np.linspace(-1, 1, height)[:, None]
    return (1 - loss * ((x * x + y * y) / 2) ** 1.5).astype(np.float32)[..., None]


class Motion:
    """What the trajectories share: the aisle of the world and a person's habits, by seed."""

    def __init__(self, scene: Scene, seed: int, duration_s: float, speed_mps: float):
        rng = np.random.default_rng((seed, 3))
        aisle, self.pitch = scene.aisle, scene.pitch
        self.duration_s = max(duration_s, 1e-9)
        self.speed_mps = speed_mps
        self.start = rng.random()
        self.direction = rng.choice([-1, 1])
        self._phases = rng.uniform(0, 2 * np.pi, 9)
        self._angles = np.linspace(0, 2 * np.pi, 2049)
        self._points = aisle * np.column_stack([np.cos(self._angles), np.sin(self._angles)])
        steps = np.linalg.norm(np.diff(self._points, axis=0), axis=1)
        self._arc = np.concatenate([[0], np.cumsum(steps)])
        self.length_m = self._arc[-1]
        self._aisle = aisle

    def swing(self, time_s: float, period_s: float, habit: int) -> float:
        """A sine of that period; every habit has its own phase."""
        return np.sin(2 * np.pi * time_s / period_s + self._phases[habit])

    def along(self, way_m: float) -> tuple[np.ndarray, float]:
        """Point (x, y) and heading (radians) after some way along the aisle."""
        way = (self.start * self.length_m + self.direction * way_m) % self.length_m
        angle = np.interp(way, self._arc, self._angles)
        c, s = np.cos(angle), np.sin(angle)
        tangent = self.direction * self._aisle * (-s, c)
        return self._aisle * (c, s), np.arctan2(tangent[1], tangent[0])


def walk(motion: Motion, time_s: float) -> np.ndarray:
    """A hand-held walk along the aisle, at `speed_mps`, looking around."""
    return _stroll(motion, time_s, motion.speed_mps, lambda period_s: period_s)


def loop(motion: Motion, time_s: float) -> np.ndarray:
    """Once around the aisle; the last frame is where the first one was."""

    def fitting(period_s: float) -> float:
        return motion.duration_s / max(round(motion.duration_s / period_s), 1)

    return _stroll(motion, time_s, motion.length_m / motion.duration_s, fitting)


def rotation(motion: Motion, time_s: float) -> np.ndarray:
    """Turning on the spot at 25 degrees per second: the camera centre stays where it is."""
    (x, y), heading = motion.along(0.0)
    yaw = heading + motion.direction * np.radians(25) * time_s
    pitch = motion.pitch + 0.09 * motion.swing(time_s, 4.3, 0)
    return _pose((x, y, EYE_HEIGHT_M), yaw, pitch, 0.04 * motion.swing(time_s, 3.1, 1))


def standstill(motion: Motion, time_s: float) -> np.ndarray:
    """Not moving at all."""
    return rotation(motion, 0.0)


def _stroll(motion: Motion, t: float, speed_mps: float, period: Callable) -> np.ndarray:
    """A person's way with a camera: steps bob it, the gaze wanders, mostly into the room."""
    (x, y), heading = motion.along(speed_mps * t)
    aside = 0.14 * motion.swing(t, period(7.3), 0) + 0.012 * motion.swing(t, period(1.1), 1)
    x, y = x - aside * np.sin(heading), y + aside * np.cos(heading)
    step = 0.015 * motion.swing(t, period(0.55), 3)
    z = EYE_HEIGHT_M + 0.06 * motion.swing(t, period(9.1), 2) + step
    gaze = 0.35 * motion.swing(t, period(6.1), 4) + 0.12 * motion.swing(t, period(2.7), 5)
    yaw = heading + motion.direction * 0.4 + gaze
    pitch = motion.pitch + 0.07 * motion.swing(t, period(4.3), 6) + 0.3 * step
    roll = 0.02 * motion.swing(t, period(3.7), 7) + 0.006 * motion.swing(t, period(1.1), 8)
    return _pose((x, y, z), yaw, pitch, roll)


def _pose(position, yaw: float, pitch: float, roll: float) -> np.ndarray:
    """T_wc of a camera; yaw from the world's x axis, pitch upwards, roll about the view."""
    cy, sy, cp, sp = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch)
    forward, right = np.array([cy * cp, sy * cp, sp]), np.array([sy, -cy, 0.0])
    down = np.cross(forward, right)
    c, s = np.cos(roll), np.sin(roll)
    T_wc = np.eye(4)
    T_wc[:3, :3] = np.column_stack([c * right + s * down, c * down - s * right, forward])
    T_wc[:3, 3] = position
    return T_wc


TRAJECTORIES: dict[str, Callable[[Motion, float], np.ndarray]] = {
    "walk": walk,
    "loop": loop,
    "rotation": rotation,
    "standstill": standstill,
}
