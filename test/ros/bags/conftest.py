"""Bags to play."""

import pytest


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """The example bag, by storage."""
    from ros.bags.bag_commands import write_example_bag  # which needs ROS

    folder = tmp_path_factory.mktemp("bags")
    paths = {storage: folder / storage for storage in ("mcap", "sqlite3")}
    for storage, path in paths.items():
        write_example_bag(path, storage)
    return paths


@pytest.fixture
def bag(bags):
    return bags["mcap"]
