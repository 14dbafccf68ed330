"""Settings, markers and rendered views shared by all tests."""

import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from shared_memory import remove_abandoned, segments

ROS_TESTS = Path(__file__).parent / "ros"

# The same examples every time, and no deadline: a test must not fail because a machine is busy.
settings.register_profile("repeatable", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items):
    """Mark the tests that talk over DDS."""
    for item in items:
        if ROS_TESTS in item.path.parents:
            item.add_marker(pytest.mark.ros)


def pytest_sessionstart(session):
    session.config.segments_before = segments()


def pytest_sessionfinish(session):
    """Free the memory that nodes killed by tests have left, once all workers are done."""
    if not hasattr(session.config, "workerinput"):
        remove_abandoned(segments() - session.config.segments_before)


@pytest.fixture
def little_room():
    """Writing more than 4 KiB to a file fails, as on a full disk, here and in child processes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="session")
def walk(world):
    """A noisy walk of 60 frames through a synthetic room."""
    from lgc_ros.sources.synthetic import SyntheticSource

    return SyntheticSource("walk", 60, noise=2.0, world=world)


@pytest.fixture(scope="session")
def short_walk(world):
    """14 small frames of a walk, in memory."""
    from runs import CAMERA, Frames

    from lgc_ros.sources.synthetic import SyntheticSource

    options = {"rate_hz": 10.0, "camera": CAMERA, "noise": 1.5, "world": world}
    return Frames(SyntheticSource("walk", 14, **options))


@pytest.fixture(scope="session")
def finished_run(short_walk):
    """Odometry over the short walk."""
    from runs import OPTIONS

    from lgc_ros.evaluation.runner import run_odometry

    return run_odometry(short_walk, OPTIONS)


@pytest.fixture
def ctrl_c():
    """Sends Ctrl-C to this process, and Python handles it, though shells ignore it in jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def tum_folder(short_walk, tmp_path_factory):
    """The short walk as a TUM folder."""
    from lgc_ros.sources.tum import write_tum

    folder = tmp_path_factory.mktemp("tum") / "walk"
    write_tum(short_walk, folder)
    return folder


@pytest.fixture(scope="session")
def world():
    """A synthetic room; painting it takes seconds."""
    from lgc_ros.synthetic import World

    return World(seed=0)


@pytest.fixture(scope="session")
def small_camera():
    """A camera with few pixels, for fast rendering."""
    from lgc_ros.geometry.camera import Camera

    return Camera.from_K([[131.0, 0, 79.5], [0, 131.0, 59.5], [0, 0, 1]], 160, 120)


@pytest.fixture(scope="session")
def data_dir():
    """Folder with real data sets, from the environment variable LGC_DATA_DIR."""
    path = os.environ.get("LGC_DATA_DIR")
    if not path:
        pytest.skip("LGC_DATA_DIR is not set: no real data to read")
    return Path(path)


@pytest.fixture
def heads_model(tmp_path):
    """A function that writes a small extractor with raw heads, see `write_heads_model`."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from extractors import write_heads_model

    return lambda name="a", **options: write_heads_model(tmp_path / f"{name}.onnx", **options)
