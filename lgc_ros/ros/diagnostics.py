"""What the node tells about itself, above all why there is no output and what to do about it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.impl.rcutils_logger import RcutilsLogger

from lgc_ros.odometry.state import DEGENERATE, FEW_MATCHES, INITIALIZING, LOST, OdometryState
from lgc_ros.ros.scale_input import ScaleInput
from lgc_ros.ros.topic_watch import SILENT_S, TopicWatch, never_match

# What did not happen for so long is worth a line in the log when it happens again.
FORGET_S = 10.0
LEVELS = {
    INITIALIZING: DiagnosticStatus.WARN,
    FEW_MATCHES: DiagnosticStatus.WARN,
    LOST: DiagnosticStatus.ERROR,
}
SAID_OF_STATES = (FEW_MATCHES, LOST, DEGENERATE)


class Log:
    """A log that does not repeat itself: what goes on is said once."""

    def __init__(self, logger: RcutilsLogger) -> None:
        self._logger = logger
        self._happened_s: dict[str, float] = {}

    def warn(self, message: str) -> bool:
        """Say it, unless the same, but for numbers, was going on already; whether it was said."""
        is_new = self._is_new(re.sub(r"\d+", "#", message))
        if is_new:
            self._logger.warning(message)
        return is_new

    def error(self, message: str, details: str = "") -> None:
        """Say it, unless the very same was going on; with details that are for the log alone."""
        if self._is_new(message):
            self._logger.error(f"{message}\n{details}".rstrip())

    def _is_new(self, what: str) -> bool:
        now_s = time.monotonic()
        recently = now_s - self._happened_s.get(what, float("-inf")) < FORGET_S
        if len(self._happened_s) > 100:
            self._happened_s.clear()
        self._happened_s[what] = now_s
        return not recently


class Monitor:
    """Collects what happens, and sums it up.

    Args:
        images, camera_info: the topics without which there is no output.
        logger: told what is wrong, once.
    """

    def __init__(self, images: TopicWatch, camera_info: TopicWatch, logger: RcutilsLogger) -> None:
        self.images, self.camera_info = images, camera_info
        self.scale_watch: TopicWatch | None = None
        self.scale_input: ScaleInput | None = None
        self._logger, self._log = logger, Log(logger)
        self._matched_s = float("-inf")
        self._fault = self._why = ""
        self._silence_said = False
        self._state: OdometryState | None = None
        self._pairs = self._frames = self._faults = 0
        self._times_ms: list[Mapping[str, float]] = []  # of the frames since the last report
        self._mean_ms: dict[str, str] = {}
        self._last_report = time.monotonic(), 0, 0

    def matched(self) -> None:
        """An image met its camera_info."""
        self._pairs += 1
        self._matched_s = time.monotonic()

    def fault(self, message: str, details: str = "") -> None:
        """A frame could not be used."""
        self._faults += 1
        self._fault = message
        self._log.error(message, details)

    def processed(self, state: OdometryState, latency_ms: float) -> None:
        """A frame was answered, `latency_ms` after its arrival."""
        self._frames += 1
        self._times_ms.append(state.ms | {"latency": latency_ms})
        self._state, self._fault = state, ""
        if state.status in SAID_OF_STATES:
            self._log.warn(_verdict(state))

    def why_no_output(self) -> str:
        """The first thing that is missing, with its remedy; empty if there is output."""
        complaint = self.images.complaint() or self.camera_info.complaint()
        if not complaint and time.monotonic() - self._matched_s > SILENT_S:
            complaint = (
                f"{never_match(self.camera_info, self.images)}; let the driver stamp both "
                "alike, or set approximate_sync to true and sync_slop_s to more than that"
            )
        return complaint or self._fault

    def why_no_scale(self) -> str:
        """What keeps the source of scale from being used, with its remedy; empty if it is."""
        if self.scale_watch is None:
            return ""
        complaint = self.scale_watch.complaint()
        if not complaint and time.monotonic() - self.scale_input.met_s > SILENT_S:
            complaint = (
                f"{never_match(self.scale_watch, self.images)}; let both take the time from one "
                "clock"
            )
        complaint = complaint or self.scale_input.fault
        return complaint and f"no scale from {self.scale_input.name}, the last holds: {complaint}"

    def report(self, name: str, setup: Mapping[str, str], dropped: int) -> DiagnosticStatus:
        """The whole picture; rates and times are since the last report."""
        status = DiagnosticStatus(name=name, hardware_id=self.images.topic)
        (then_s, frames, drops), now_s = self._last_report, time.monotonic()
        self._last_report = now_s, self._frames, dropped
        frames, drops = self._frames - frames, dropped - drops
        state = self._state  # the worker thread may replace it meanwhile
        status.level, status.message = self._summary(state, frames, drops)
        values = {
            "fps": f"{frames / max(now_s - then_s, 1e-3):.1f}",
            "frames": self._frames,
            "dropped": dropped,
            "faults": self._faults,
            "images": self.images.count,
            "camera_infos": self.camera_info.count,
            "pairs": self._pairs,
            **self._scale_messages(),
            **self._measurements(state),
            **setup,
        }
        status.values = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        return status

    def _summary(self, state: OdometryState | None, frames: int, drops: int) -> tuple[bytes, str]:
        why = self.why_no_output()
        # Starting takes a moment: silence is worth a line when it lasts from report to report.
        # A fault of a frame was said when it happened.
        if why and self._why:
            self._silence_said |= why == self._fault or self._log.warn(why)
        elif self._silence_said and not why:
            self._logger.info("there is output again")
            self._silence_said = False
        self._why = why
        if why:
            return DiagnosticStatus.ERROR, why
        if state is None:
            return DiagnosticStatus.WARN, "the first frame is in work"
        notes = [note for note in (self.why_no_scale(), _too_slow(frames, drops)) if note]
        for note in notes:
            self._log.warn(note)
        level = LEVELS.get(state.status, DiagnosticStatus.OK)
        if notes:
            level = max(level, DiagnosticStatus.WARN)
        return level, "; ".join([_verdict(state), *notes])

    def _scale_messages(self) -> dict[str, int]:
        watch, source = self.scale_watch, self.scale_input
        return {} if watch is None else {f"{source.name}_messages": watch.count}

    def _measurements(self, state: OdometryState | None) -> dict[str, object]:
        if state is None:
            return {}
        times_ms, self._times_ms = self._times_ms, []
        if times_ms:
            stages = dict.fromkeys(stage for times in times_ms for stage in times)
            self._mean_ms = {
                f"{stage}_ms": f"{np.mean([times.get(stage, 0.0) for times in times_ms]):.1f}"
                for stage in stages
            }
        counts = state.counts | {"keypoints": state.counts.get("features", 0)}
        return {"status": state.status, **counts, **self._mean_ms}


def _verdict(state: OdometryState) -> str:
    return f"{state.status}: {state.message}" if state.message else state.status


def _too_slow(frames: int, drops: int) -> str:
    if drops <= frames:
        return ""
    return (
        f"{drops} of {drops + frames} images dropped, the newest one is used: the machine is too "
        "slow for their rate; use the profile fast, or fewer max_keypoints"
    )
