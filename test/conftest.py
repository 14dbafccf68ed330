"""Settings, markers and rendered views shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROS_TESTS = Path(__file__).parent / "ros"

# The same examples every time, and no deadline: a test must not fail because a machine is busy.
settings.register_profile("repeatable", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items):
    """Mark the tests that talk over DDS."""
    for item in items:
        if ROS_TESTS in item.path.parents:
            item.add_marker(pytest.mark.ros)


@pytest.fixture(scope="session")
def walk():
    """A noisy walk of 60 frames through a synthetic room."""
    from lgc_ros.sources.synthetic import SyntheticSource

    return SyntheticSource("walk", 60, noise=2.0)


@pytest.fixture(scope="session")
def data_dir():
    """Folder with real data sets, as the environment variable LGC_DATA_DIR says."""
    path = os.environ.get("LGC_DATA_DIR")
    if not path:
        pytest.skip("LGC_DATA_DIR is not set: no real data to read")
    return Path(path)
