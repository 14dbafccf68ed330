"""Depth images of bags are paired with the images nearest in time."""

import numpy as np
import pytest
from bag_messages import camera_topics, image_message
from sequences import START_NS, STEP_NS

from lgc_ros.errors import SourceError
from lgc_ros.sources import open_source


def depth_messages(offsets_ns, recorded_after_ns=0, topic="/cam/depth"):
    """One depth image of i + 1 meters for each image i, stamped with an offset to the image."""
    messages = []
    for i, offset_ns in enumerate(offsets_ns):
        stamp_ns = START_NS + i * STEP_NS + offset_ns
        depth_mm = np.full((48, 64), 1000 * (i + 1), np.uint16)
        message = image_message(depth_mm, "16UC1", stamp_ns)
        messages.append((topic, stamp_ns + recorded_after_ns, message))
    return messages


def depths_m(source):
    return [None if f.depth is None else round(float(f.depth[0, 0]), 3) for f in source]


@pytest.mark.parametrize("recorded_after_ns", [0, 40_000_000])
@pytest.mark.parametrize("topic", ["auto", "/cam/depth"])
def test_each_image_has_its_depth_whichever_is_recorded_first(
    record, camera, levels, topic, recorded_after_ns
):
    depth = depth_messages([0] * 6, recorded_after_ns)
    source = open_source(record(camera_topics(camera) + depth), depth_topic=topic)
    assert levels(source) == list(range(6))
    assert depths_m(source) == [1, 2, 3, 4, 5, 6]


def test_depth_more_than_20_ms_away_is_not_used(record, camera):
    depth = depth_messages([0, 20_000_000, 20_000_001, -20_000_000, -20_000_001, 0])
    source = open_source(record(camera_topics(camera) + depth), depth_topic="auto")
    assert depths_m(source) == [1, 2, None, 4, None, 6]


def test_an_image_with_damaged_depth_is_read_without_depth(record, camera, caplog):
    depth = depth_messages([0] * 6)
    depth[2][2].height = 4800  # more rows than data
    source = open_source(record(camera_topics(camera) + depth), depth_topic="/cam/depth")
    assert depths_m(source) == [1, 2, None, 4, 5, 6]
    assert "has no depth" in caplog.text


def test_the_error_for_several_depth_topics_explains_how_to_choose(record, camera):
    depth = depth_messages([0]) + depth_messages([0], topic="/other/depth")
    with pytest.raises(SourceError, match=r"2 topics with depth images: choose .* --depth-topic"):
        open_source(record(camera_topics(camera) + depth), depth_topic="auto")
