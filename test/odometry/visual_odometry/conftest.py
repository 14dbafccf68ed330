"""A walk, rendered and followed once for all tests."""

import pytest
from walks import CAMERA, process

from lgc_ros.sources.synthetic import SyntheticSource


@pytest.fixture(scope="session")
def source():
    """Three seconds of walking."""
    return SyntheticSource("walk", 30, rate_hz=10.0, camera=CAMERA, noise=1.5)


@pytest.fixture(scope="session")
def walk(source):
    """Its frames, rendered once for all tests."""
    return list(source)


@pytest.fixture(scope="session")
def walked(walk):
    return process(walk)
