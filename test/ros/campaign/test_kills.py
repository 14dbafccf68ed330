"""kill -9 of the player, the node and the recorder in turns: the others go on."""

import time

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.campaign.harness import MOUNTED, NODE, bench, ended_by, played, reliable
from ros.campaign.invariants import exceptions, violations
from ros.campaign.summary import SUMMARY, scaled
from ros.processes import lgc_command

from lgc_ros.sources.bag_reader import open_bag
from lgc_ros.sources.mcap_salvage import is_cut_off

pytestmark = pytest.mark.campaign

ROUNDS = 10
ANSWERS = 5
IMAGES, ODOMETRY = "/image", f"{NODE}/odometry"
# A recorder writes in chunks of about this many bytes.
CHUNK = 2**20


def part_size(out):
    """Bytes on disk of a recording under way."""
    return sum(file.stat().st_size for file in out.parent.glob(f"{out.name}.part/*.mcap"))


def recorded_ns(path, topic):
    """When the messages of a topic were recorded."""
    with open_bag(path) as reader:
        wanted = [connection for connection in reader.connections if connection.topic == topic]
        return [now_ns for _, now_ns, _ in reader.messages(wanted)]


class Processes:
    """Three processes, each of which can be killed and started again."""

    def __init__(self, watching, views, folder):
        self._watching, self._folder = watching, folder
        self._play = lgc_command("play", *played(views, folder / "bag"), "--loop", "--reliable")
        self._recordings = 0
        self.start_node()
        self.start_player()
        self.start_recorder()

    def start_node(self):
        self.node = self._watching.start_node(**MOUNTED, **reliable("image", "camera_info"))

    def start_player(self):
        self.player = self._watching.start(self._play)

    def start_recorder(self):
        self._recordings += 1
        self.out = self._folder / f"recording_{self._recordings}.mcap"
        self.recorder = self._watching.start(lgc_command("record", self.out, IMAGES, ODOMETRY))

    def kill(self, process):
        process.kill()
        process.wait()

    def answers(self):
        """More answers come, and whoever was not killed is still there."""
        start = len(self._watching.odometry)
        self._watching.spin_until(
            lambda: len(self._watching.odometry) >= start + ANSWERS, "answers"
        )
        for process in (self.node, self.player, self.recorder):
            assert process.poll() is None, process.log.read_text()

    def is_recorded(self):
        """Images, which fill a chunk on disk now and then."""
        before = part_size(self.out)
        self._watching.spin_until(lambda: part_size(self.out) > before + CHUNK, "a chunk")


def test_killing_one_process_leaves_the_others_running(views, tmp_path):
    rounds = scaled(ROUNDS)
    with SUMMARY.phase("kill -9") as row, bench(tmp_path, row) as watching:
        robot = Processes(watching, views, tmp_path)
        robot.answers()
        for _ in range(rounds):
            robot.kill(robot.player)
            watching.reports.clear()
            watching.spin_until(
                lambda: any("/image" in report.message for report in watching.reports),
                "the node's complaint about the missing camera",
            )
            robot.start_player()
            robot.answers()

            log = watching.log
            robot.kill(robot.node)
            assert not exceptions(log), log
            robot.start_node()
            robot.answers()
            restarted_ns = time.time_ns()
            robot.answers()
            robot.is_recorded()

            robot.kill(robot.recorder)
            left = tmp_path / f"{robot.out.name}.part"
            assert recorded_ns(left, IMAGES)[-1] > restarted_ns
            robot.start_recorder()
            robot.answers()
        robot.is_recorded()
        row.hangs = sum(map(ended_by, (robot.recorder, robot.player, robot.node)))
        assert not is_cut_off(robot.out)
        assert recorded_ns(robot.out, ODOMETRY)
        for process in (robot.recorder, robot.player, robot.node):
            assert not exceptions(process.log.read_text()), process.log.read_text()
        assert not violations(watching.odometry)
