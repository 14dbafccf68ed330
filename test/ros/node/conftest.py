"""Rendered views and a running node, shared by the tests of the node.

ROS is imported by the fixtures: without it, the tests are skipped rather than broken.
"""

import signal

import numpy as np
import pytest

from lgc_ros.geometry.camera import Camera
from lgc_ros.sources.synthetic import SyntheticSource


@pytest.fixture(scope="module")
def source(walk):
    """Views of a walk, five a second."""
    from ros.node.connected import RATE_HZ

    K = np.array([[262.0, 0, 159.5], [0, 262.0, 119.5], [0, 0, 1]])
    camera = Camera.from_K(K, 320, 240)
    return SyntheticSource("walk", 6, rate_hz=RATE_HZ, camera=camera, world=walk.world)


@pytest.fixture(scope="module")
def frames(source):
    return list(source)


@pytest.fixture(scope="module")
def connected(tmp_path_factory, frames):
    """A camera that loses nothing, and a node that answers it, for most tests."""
    from ros.node.connected import CHANGED, OVERRIDES, QUEUE, ShownCamera
    from ros.processes import running_node

    folder = tmp_path_factory.mktemp("node")
    parameters = OVERRIDES | {"sync_queue": QUEUE, **CHANGED}
    with running_node(folder, **parameters) as robot:
        camera = ShownCamera(robot, frames)
        yield camera
        for frame in frames:  # a signal comes while the node is at work
            camera.send(frame)
        assert robot.end(signal.SIGINT) == 0
        assert "Traceback" not in robot.log


@pytest.fixture
def camera(connected):
    connected.reset()
    return connected


@pytest.fixture
def robot(connected):
    return connected.robot


@pytest.fixture(params=[False, True], ids=["one after the other", "pipelined"])
def with_and_without_pipeline(request, connected):
    from ros.node.connected import changed

    with changed(connected.robot, pipelined=request.param):
        yield
