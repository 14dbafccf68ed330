"""A hundred starts and stops: every one ends in time and well, idle or at work."""

import itertools
import signal

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.campaign.harness import bench, reliable
from ros.campaign.invariants import exceptions, violations
from ros.campaign.sender import CampaignCamera
from ros.campaign.summary import SUMMARY, scaled

pytestmark = pytest.mark.campaign

CYCLES = 100
SIGNALS = {
    "SIGINT": (signal.SIGINT,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
    "SIGTERM": (signal.SIGTERM,),
}
# Cycles out of a hundred in which Fast DDS may keep the process from leaving
# (eProsima/Fast-DDS#6513, see `harness.ended_by`). More than these are another bug.
HANGS_PER_CENT = 5


def test_every_start_is_followed_by_a_clean_shutdown(views, tmp_path):
    """The node is ended right after its start, or while it works on an image, in turns."""
    ends = itertools.cycle(itertools.product((False, True), SIGNALS.values()))
    cycles = scaled(CYCLES, at_least=6)
    with SUMMARY.phase("start and stop") as row, bench(tmp_path, row) as watching:
        camera = None
        for at_work, signals in itertools.islice(ends, cycles):
            watching.start_node(**reliable("image", "camera_info"))
            watching.spin_until(lambda: "waiting for /image" in watching.log, "the node")
            camera = camera or CampaignCamera(watching, views)
            if at_work:
                camera.show_good()
                camera.send_good()
            watching.end_node(*signals)
            assert not exceptions(watching.log), watching.log
        row.good = camera.sent.good
        assert row.hangs <= max(1, HANGS_PER_CENT * cycles / 100), f"{row.hangs} of {cycles} hung"
        assert not violations(watching.odometry)
