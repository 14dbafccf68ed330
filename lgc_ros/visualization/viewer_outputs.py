"""Where the viewer shows a recording: a window, the browser, or a file for later."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lgc_ros.errors import ConfigError, LgcError
from lgc_ros.runtime.output_files import complete_file, piped_file

if TYPE_CHECKING:
    from rerun import RecordingStream

WINDOW, WEB = "window", "web"
PLACES = (WINDOW, WEB)
# Data kept for a browser that connects late.
MEMORY = "1GiB"
GRPC_PORT, WEB_PORT = 9876, 9090
WINDOW_S, ENDING_S, FLUSH_S = 30.0, 2.0, 5.0

log = logging.getLogger(__name__)


@dataclass
class ViewerOutput:
    """An open recording; `url` is its address in the browser, if it is shown there."""

    recording: RecordingStream
    url: str | None = None
    _window: subprocess.Popen | None = None
    _file: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Finish the file, and wait until the window has everything; it stays open.

        Raises:
            LgcError: the window ended with an error. One that the user closed is none.
        """
        self._flush()
        self.recording.disconnect()
        self._file.close()
        if self._window and _exit_code(self._window):  # it may fail after it has received all
            raise LgcError(
                "the window of the viewer ended with the error above: look in a browser (`--view "
                "web`, `lgc view --web`), or at a file later (--save-view run.rrd)"
            )

    def _flush(self) -> None:
        """Wait until everything is received, or cannot be because the window has ended.

        A single flush without a timeout may wait forever for a window that ends meanwhile.
        """
        while True:
            start_s = time.monotonic()
            try:
                return self.recording.flush(timeout_sec=FLUSH_S)
            except RuntimeError as error:
                log.debug("the viewer has not received everything: %s", error)
            timed_out = time.monotonic() - start_s >= FLUSH_S
            if not timed_out or (self._window and self._window.poll() is not None):
                return None


def open_output(
    name: str, place: str | None, save: Path | None, image: str, methods: int = 1
) -> ViewerOutput:
    """Start a recording that goes to a window, to the browser, to a file, or to several of these.

    `image` is the path at which the image will be logged, `methods` the number of methods shown.
    A file is complete when the output is closed. The server for the browser listens on this
    machine only.
    """
    import rerun

    from lgc_ros.visualization.viewer_parts import layout

    if place is not None and place not in PLACES:
        raise ConfigError(f"--view {place} is unknown; use --view {' or --view '.join(PLACES)}")
    recording = rerun.RecordingStream("lgc_ros")
    recording.set_log_time_enabled(False)
    recording.set_log_tick_enabled(False)
    output = ViewerOutput(recording)
    sinks: list = []
    if place == WINDOW:
        _check_display()
        port = _free_port(GRPC_PORT)
        output._window = _open_window(port)
        sinks.append(rerun.GrpcSink(f"rerun+http://127.0.0.1:{port}/proxy"))
    if place == WEB:
        port, web_port = _free_port(GRPC_PORT), _free_port(WEB_PORT)
        sinks.append(
            rerun.GrpcServerSink(bind_ip="127.0.0.1", port=port, server_memory_limit=MEMORY)
        )
        address = f"rerun+http://127.0.0.1:{port}/proxy"
        rerun.serve_web_viewer(web_port=web_port, open_browser=True, connect_to=address)
        output.url = _web_address(port, web_port)
    if save is not None:
        with ExitStack() as file:
            temporary = file.enter_context(complete_file(save))
            # On a full disk, Rerun alone would wait for ever.
            sinks.append(rerun.FileSink(file.enter_context(piped_file(temporary))))
            output._file = file.pop_all()
    recording.set_sinks(*sinks, default_blueprint=layout(image, methods))
    recording.send_recording_name(name)
    return output


def serve_file(path: Path) -> tuple[subprocess.Popen, str]:
    """Show an .rrd file in the browser: the process that serves it, and its address.

    The process leads a group of its own, which the caller ends.
    """
    port, web_port = _free_port(GRPC_PORT), _free_port(WEB_PORT)
    command = [sys.executable, "-m", "rerun", str(path), "--web-viewer", "--bind", "127.0.0.1"]
    ports = ["--port", str(port), "--web-viewer-port", str(web_port)]
    server = subprocess.Popen(
        [*command, *ports],
        env={"RUST_LOG": "error", **os.environ},
        start_new_session=True,
    )
    return server, _web_address(port, web_port)


def _web_address(port: int, web_port: int) -> str:
    """Address of the viewer in the browser that reads from a server."""
    return f"http://127.0.0.1:{web_port}/?url=rerun%2Bhttp://127.0.0.1:{port}/proxy"


def _check_display() -> None:
    """Raise unless windows can be shown; Rerun itself would fail in another process."""
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        raise LgcError(
            "there is no display for a window: use --view web to look in a browser, or "
            "--save-view run.rrd to look later"
        )


def _open_window(port: int) -> subprocess.Popen:
    """Start the viewer, which listens on this machine only and outlives this process.

    `rerun.spawn` would listen on the whole network, and log to this terminal.
    """
    command = [sys.executable, "-m", "rerun", "--port", str(port), "--bind", "127.0.0.1"]
    window = subprocess.Popen(
        [*command, "--hide-welcome-screen"],
        env={"RUST_LOG": "error", **os.environ},
        start_new_session=True,  # Ctrl-C ends the run, not the viewer
    )
    deadline_s = time.monotonic() + WINDOW_S
    while window.poll() is None and time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return window
        time.sleep(0.05)
    raise LgcError(
        "the window of the viewer did not open: use --view web to look in a browser, or "
        "--save-view run.rrd to look later"
    )


def _exit_code(process: subprocess.Popen) -> int | None:
    """How a process ended that may just be ending; None if it goes on."""
    try:
        return process.wait(timeout=ENDING_S)
    except subprocess.TimeoutExpired:
        return None


def _free_port(preferred: int) -> int:
    """The preferred port of this machine, or another one if it is taken."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise LgcError("no free port for the viewer")
