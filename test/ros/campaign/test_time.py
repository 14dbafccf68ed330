"""Clocks that jump, and a bag in a loop: odometry starts again, and goes on."""

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.campaign.harness import MOUNTED, NODE, bench, ended_by, played, reliable
from ros.campaign.sender import SECOND_NS, START_NS, CampaignCamera, checked
from ros.campaign.summary import SUMMARY, scaled
from ros.processes import lgc_command, stamp
from rosgraph_msgs.msg import Clock

from lgc_ros.images.stamps import stamp_ns

pytestmark = pytest.mark.campaign

JUMPS, LOOPS = 300, 30
DAY_NS = 24 * 3600 * SECOND_NS
FAR_NS = 2**31 * SECOND_NS - DAY_NS  # a day before stamps of ROS end
SEED = 20180618


def test_the_node_survives_jumps_of_the_clock_and_of_stamps(views, tmp_path):
    """Simulated time and stamps jump by seconds to years, together or one without the other."""
    rng, jumps = np.random.default_rng(SEED), scaled(JUMPS, at_least=12)
    targets_ns = (SECOND_NS, START_NS - DAY_NS, START_NS, START_NS + DAY_NS, FAR_NS)
    with SUMMARY.phase("clock jumps") as row, bench(tmp_path, row) as watching:
        watching.start_node(use_sim_time="true", **reliable("image", "camera_info"))
        camera = CampaignCamera(watching, views)
        clock = watching.speak(Clock, "/clock")
        clock.publish(Clock(clock=stamp(START_NS)))
        reported_ns = watching.reported_ns
        with checked(watching, camera):
            for number in range(jumps):
                target_ns = int(rng.choice(targets_ns)) + int(rng.integers(DAY_NS // 2))
                both, of_clock, of_stamps = (number % 3 == kind for kind in range(3))
                if both or of_stamps:
                    camera.now_ns = target_ns
                if both or of_clock:
                    clock.publish(Clock(clock=stamp(target_ns)))
                camera.show_good()
                camera.show_good()
            clock.publish(Clock(clock=stamp(START_NS)))
            watching.spin_until(lambda: START_NS in reported_ns, "a report at the clock's time")
            row.good = camera.sent.good
            camera.now_ns = START_NS


def test_a_looped_bag_starts_again_every_time(views, tmp_path):
    """With /clock, which goes back as the stamps do; every image of every round is answered."""
    loops = scaled(LOOPS, at_least=3)
    in_step = "--wait-for-subscribers", "/image", "--in-step-with", f"{NODE}/odometry"
    play = "--loop", "--clock", "--reliable", "--rate", 2, *in_step
    with SUMMARY.phase("looped bag") as row, bench(tmp_path, row) as watching:
        watching.start_node(use_sim_time="true", **MOUNTED, **reliable("image", "camera_info"))
        camera = CampaignCamera(watching, views, now_ns=1000 * SECOND_NS)
        with checked(watching, camera):
            said = watching.log.count("stamps jumped back by")
            first = len(watching.odometry)
            player = watching.start(lgc_command("play", *played(views, tmp_path / "bag"), *play))

            def rounds():
                """Answers of each round that is over."""
                stamps_ns = [stamp_ns(m.header.stamp) for m in watching.odometry[first:]]
                starts = np.flatnonzero(np.diff(stamps_ns) < -SECOND_NS) + 1
                return np.diff([0, *starts])

            watching.spin_until(lambda: len(rounds()) >= loops, f"{loops} rounds")
            assert player.poll() is None, player.log.read_text()
            row.hangs += ended_by(player)
            assert set(rounds()) == {len(views)}
            assert watching.log.count("stamps jumped back by") - said >= loops - 1
            camera.now_ns = START_NS + 10 * DAY_NS
