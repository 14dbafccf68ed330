"""Deadlines of the phases, and the table at the end of the campaign."""

import faulthandler
import signal

import pytest
from ros.campaign.summary import SCALE, SUMMARY

from lgc_ros.sources.synthetic import SyntheticSource

# Nothing is waited for this long, unless a process hangs.
DEADLINE_S = 2400
# A test that does not even end then hangs in C: the whole run is ended with a stack trace.
GRACE_S = 300


@pytest.fixture(autouse=True)
def deadline(request):
    """Ends a campaign test that takes too long."""
    if request.node.get_closest_marker("campaign") is None:
        yield
        return

    def too_long(*_):
        raise TimeoutError(f"not done after {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(DEADLINE_S)
    faulthandler.dump_traceback_later(DEADLINE_S + GRACE_S, exit=True)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def views(walk):
    """Some steps of a walk, seen by a small camera."""
    from ros.campaign.sender import CAMERA

    return list(SyntheticSource("walk", 12, rate_hz=5, camera=CAMERA, world=walk.world))


def pytest_terminal_summary(terminalreporter):
    if SUMMARY.rows:
        terminalreporter.section(f"campaign at scale {SCALE:g}")
        terminalreporter.write_line(SUMMARY.table())
