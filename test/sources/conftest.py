"""A small camera, distinguishable frames and image files for the tests of sources."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from sequences import START_NS, STEP_NS, picture, pose

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame


@pytest.fixture
def camera():
    K = np.array([[40.0, 0, 31.5], [0, 41.0, 23.5], [0, 0, 1]])
    return Camera.from_K(K, 64, 48, (-0.28, 0.07, 0.0002, 1e-5))


@pytest.fixture
def frames(camera):
    """Ten frames; the middle of frame i has the gray level 20 i."""
    return [
        Frame(i, START_NS + i * STEP_NS, picture(i), camera, pose(i), name=str(i))
        for i in range(10)
    ]


@pytest.fixture
def write_images():
    """Writes picture i under the i-th name."""

    def write(folder, names):
        folder.mkdir(parents=True, exist_ok=True)
        for i, name in enumerate(names):
            (folder / name).write_bytes(cv2.imencode(Path(name).suffix, picture(i))[1].tobytes())

    return write


@pytest.fixture
def levels():
    """The numbers i of the pictures that a source yields."""

    def levels(source):
        return [round(float(np.median(frame.image)) / 20) for frame in source]

    return levels


@pytest.fixture
def record(tmp_path):
    """Writes (topic, recording time in ns, message) as a bag and returns its folder."""

    def record(messages, storage="MCAP", name="bag"):
        from bag_messages import write_messages

        write_messages(tmp_path / name, messages, storage)
        return tmp_path / name

    return record
