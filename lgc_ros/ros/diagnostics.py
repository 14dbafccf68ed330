"""Diagnostics of the node: its state, and why there is no output and how to fix it."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.impl.rcutils_logger import RcutilsLogger

from lgc_ros.odometry.options import FLOW, MATCH, OdometryOptions
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.odometry.scale import UNKNOWN_SIGMA
from lgc_ros.odometry.state import (
    DEGENERATE,
    FEW_MATCHES,
    INITIALIZING,
    LOST,
    OdometryState,
)
from lgc_ros.ros.node_parameters import NodeParameters
from lgc_ros.ros.scale_input import DepthImages, ScaleInput

if TYPE_CHECKING:
    from lgc_ros.ros.inputs import TopicWatch

# Numbers, but not digits of names such as mono16 or /cam1.
NUMBERS = re.compile(r"(?<!\d)(?<![A-Za-z_/][A-Za-z_])\d+")
# A topic without messages for this long is silent.
SILENT_S = 2.0
# A message is logged again if its cause was absent for this long.
FORGET_S = 10.0
LEVELS = {
    INITIALIZING: DiagnosticStatus.WARN,
    FEW_MATCHES: DiagnosticStatus.WARN,
    LOST: DiagnosticStatus.ERROR,
}
LOGGED_STATUSES = (FEW_MATCHES, LOST, DEGENERATE)
# Stamps further apart than this come from different clocks, which no slop can bridge.
OTHER_CLOCK_NS = 10**9
ONE_CLOCK = "use the same clock for both"
# With fewer keypoints, tracking fails before the machine is fast enough.
FEW_KEYPOINTS = 500


class Log:
    """Logs a message once while its cause persists, however often it is reported.

    Messages that differ only in their numbers count as the same.
    """

    def __init__(self, logger: RcutilsLogger) -> None:
        self._logger = logger
        self._happened_s: dict[str, float] = {}

    def warn(self, message: str) -> bool:
        """Log a warning unless it persists; returns whether it was logged."""
        is_new = self._is_new(message)
        if is_new:
            self._logger.warning(message)
        return is_new

    def error(self, message: str, details: str = "") -> None:
        """Log an error unless it persists, with details such as a traceback."""
        if self._is_new(message):
            self._logger.error(f"{message}\n{details}".rstrip())

    def _is_new(self, message: str) -> bool:
        what, now_s = NUMBERS.sub("#", message), time.monotonic()
        recently = now_s - self._happened_s.get(what, float("-inf")) < FORGET_S
        if len(self._happened_s) > 100:
            self._happened_s.clear()
        self._happened_s[what] = now_s
        return not recently


class Monitor:
    """Counts messages, frames and errors, and summarizes them for /diagnostics.

    Args:
        images, camera_info: the required topics.
        logger: receives each problem once.
    """

    def __init__(self, images: TopicWatch, camera_info: TopicWatch, logger: RcutilsLogger) -> None:
        self.images, self.camera_info = images, camera_info
        self.scale_watch: TopicWatch | None = None
        self.scale_input: ScaleInput | None = None
        self._logger, self._log = logger, Log(logger)
        self._matched_s = self._fault_s = self._view_failure_s = float("-inf")
        self._done_s = self._failed_s = float("-inf")  # of the last frame, and of a failed one
        self._fault = self._why = self._view_failure = ""
        self._silence_logged = False
        self._state: OdometryState | None = None
        self._pairs = self._frames = self._faults = 0
        self._tracked_by = {FLOW: 0, MATCH: 0}
        self._times_ms: list[Mapping[str, float]] = []  # per frame since the last report
        self._mean_ms: dict[str, str] = {}
        self._last_report = time.monotonic(), 0, 0

    def matched(self) -> None:
        """An image was paired with its camera_info."""
        self._pairs += 1
        self._matched_s = time.monotonic()

    def fault(self, message: str, details: str = "") -> None:
        """A frame could not be processed."""
        self._note_fault(message)
        self._done_s = self._failed_s = self._fault_s
        self._log.error(message, details)

    def refused(self, message: str) -> None:
        """A message was rejected, and the following ones probably will be, too."""
        self._note_fault(message)
        self._log.warn(message)

    def _note_fault(self, message: str) -> None:
        self._faults += 1
        self._fault, self._fault_s = message, time.monotonic()

    def processed(self, state: OdometryState, latency_ms: float) -> None:
        """A frame was processed and published `latency_ms` after its arrival."""
        self._frames += 1
        self._done_s = time.monotonic()
        self._tracked_by[state.tracking] += 1
        self._times_ms.append(state.ms | {"latency": latency_ms})
        self._state, self._fault = state, ""
        if state.status in LOGGED_STATUSES:
            self._log.warn(_status_text(state))

    def view_failed(self, message: str, details: str) -> None:
        """A view for RViz could not be drawn; odometry is published regardless."""
        self._view_failure, self._view_failure_s = message, time.monotonic()
        self._log.error(message, details)

    def why_no_output(self, p: NodeParameters) -> str:
        """The first missing prerequisite and its remedy; empty if there is output."""
        now_s = time.monotonic()
        # While a frame is processed, or has just failed, silence is not the reason: a player may
        # hold the next image until this one is answered.
        if self._matched_s > self._done_s or now_s - self._failed_s < SILENT_S:
            return self._fault
        complaint = self.images.complaint() or self.camera_info.complaint()
        unmatched = now_s - self._matched_s > SILENT_S
        if not complaint and unmatched and now_s - self._fault_s > SILENT_S:
            complaint = _no_pairs(self.camera_info, self.images, p)
        return complaint or self._fault

    def why_no_scale(self, p: NodeParameters) -> str:
        """Why the scale source provides no measurements, and the remedy; empty if it does."""
        watch, source = self.scale_watch, self.scale_input
        if watch is None or source is None:
            return ""
        complaint = watch.complaint()
        if not complaint and time.monotonic() - source.met_s > SILENT_S:
            between_ns = watch.smallest_difference_ns(self.images)
            is_depth = source.name == DepthImages.name
            remedy = _stamp_remedy(between_ns, p) if is_depth else ONE_CLOCK
            complaint = _never_match(watch, self.images, remedy)
        complaint = complaint or source.fault
        consequence = _without_scale(self._state)
        return complaint and f"no scale from {source.name}, {consequence}: {complaint}"

    def report(
        self, name: str, setup: Mapping[str, str], dropped: int, p: NodeParameters
    ) -> DiagnosticStatus:
        """The diagnostic status; rates and times cover the period since the last report.

        Args:
            name: name of the status.
            setup: values to include unchanged.
            dropped: number of images dropped so far.
            p: parameters of the node; remedies that are already in use are not suggested.
        """
        status = DiagnosticStatus(name=name, hardware_id=self.images.topic)
        (then_s, frames, drops), now_s = self._last_report, time.monotonic()
        self._last_report = now_s, self._frames, dropped
        # The first frame may wait for TF or compilation, so its drops say nothing about the rate.
        drops = dropped - drops if frames else 0
        frames = self._frames - frames
        state = self._state  # the worker thread may replace it
        status.level, status.message = self._summary(state, frames, drops, p)
        values = {
            "fps": f"{frames / max(now_s - then_s, 1e-3):.1f}",
            "frames": self._frames,
            **{f"frames_by_{path}": count for path, count in self._tracked_by.items()},
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

    def _summary(
        self, state: OdometryState | None, frames: int, drops: int, p: NodeParameters
    ) -> tuple[bytes, str]:
        why = self.why_no_output(p)
        # Silence is logged if it lasts for two reports, because startup takes a moment. An error
        # of a frame was logged when it happened.
        if why and self._why:
            self._silence_logged |= why == self._fault or self._log.warn(why)
        elif self._silence_logged and not why:
            self._logger.info("output has resumed")
            self._silence_logged = False
        self._why = why
        if why:
            return DiagnosticStatus.ERROR, why
        if state is None:
            return DiagnosticStatus.WARN, "processing the first frame"
        notes = [note for note in (self.why_no_scale(p), _too_slow(frames, drops, p)) if note]
        for note in notes:
            self._log.warn(note)
        if time.monotonic() - self._view_failure_s < SILENT_S:  # already logged
            notes.append(self._view_failure)
        level = LEVELS.get(state.status, DiagnosticStatus.OK)
        if notes:
            level = max(level, DiagnosticStatus.WARN)
        return level, "; ".join([_status_text(state), *notes])

    def _scale_messages(self) -> dict[str, int]:
        watch, source = self.scale_watch, self.scale_input
        if watch is None or source is None:
            return {}
        return {f"{source.name}_messages": watch.count}

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


def _status_text(state: OdometryState) -> str:
    return f"{state.status}: {state.message}" if state.message else state.status


def _without_scale(state: OdometryState | None) -> str:
    """Effect on the published positions while the scale source measures nothing."""
    if state is not None and state.scale_sigma < UNKNOWN_SIGMA:
        return "the last scale is kept"
    held = state is None or state.status == INITIALIZING
    return f"positions are {'held' if held else 'not metric'} until the first measurement"


def _no_pairs(camera_info: TopicWatch, images: TopicWatch, p: NodeParameters) -> str:
    """Why no camera_info can be paired with an image, and the remedy."""
    between_ns = camera_info.smallest_difference_ns(images)
    if between_ns <= round(p.slop_s * 1e9):
        return (
            f"messages of {images.topic} and {camera_info.topic} with matching stamps arrive more "
            f"than {p.sync_queue} messages apart: restart the node with a larger sync_queue"
        )
    return _never_match(camera_info, images, _stamp_remedy(between_ns, p))


def _never_match(watch: TopicWatch, images: TopicWatch, remedy: str) -> str:
    between_ms = watch.smallest_difference_ns(images) * 1e-6
    return (
        f"the stamps of {images.topic} and {watch.topic} never match: they differ by "
        f"at least {between_ms:.3f} ms; {remedy}"
    )


def _stamp_remedy(between_ns: int, p: NodeParameters) -> str:
    """Remedy for stamps that differ by this much."""
    if between_ns > OTHER_CLOCK_NS:
        return ONE_CLOCK
    if p.approximate_sync:
        return f"restart the node with a larger sync_slop_s (it is {p.sync_slop_s:g} s)"
    return (
        "give both the same stamp in the driver, or restart the node with approximate_sync:=true "
        "and a larger sync_slop_s"
    )


def _too_slow(frames: int, drops: int, p: NodeParameters) -> str:
    if drops <= frames:
        return ""
    return (
        f"{drops} of {drops + frames} images dropped because the machine is too slow for their "
        f"rate: use {', or '.join(_faster(p))}"
    )


def _faster(p: NodeParameters) -> list[str]:
    """Settings that would make the node faster and are not in use yet."""
    options, fast = p.odometry, _fast_profile()
    remedies = []
    if options.features != fast.features or options.max_keypoints > fast.max_keypoints:
        remedies.append("the profile fast")
    if options.max_keypoints > FEW_KEYPOINTS:
        remedies.append(f"fewer max_keypoints than {options.max_keypoints}")
    if options.tracking != FLOW:
        remedies.append("tracking flow")
        if not p.pipelined and options.threads != 1 and os.cpu_count() != 1:
            remedies.append("pipelined")
    return [*remedies, "smaller images"]


@functools.cache
def _fast_profile() -> OdometryOptions:
    return load_profile("fast")
