"""Keypoints of the next frame are extracted during this one; nothing else changes."""

import threading
import tracemalloc
from dataclasses import replace

import cv2
import numpy as np
import pytest

from lgc_ros.errors import ImageError
from lgc_ros.features.base import make_extractor
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.prefetch import prefetch_features
from lgc_ros.odometry.visual_odometry import VisualOdometry

OPTIONS = OdometryOptions(features="orb", method="poselib+ratio", max_keypoints=500)


@pytest.fixture(scope="module")
def frames(world):
    from lgc_ros.sources.synthetic import SyntheticSource

    return list(SyntheticSource("walk", 12, noise=2.0, world=world))


def states(frames, threads):
    odometry = VisualOdometry(OPTIONS)
    ahead = prefetch_features(frames, odometry.extract, threads)
    return [odometry.process(frame, None, features) for frame, features in ahead]


@pytest.mark.slow
def test_states_are_those_of_one_frame_after_the_other(frames):
    odometry = VisualOdometry(OPTIONS)
    expected = [odometry.process(frame) for frame in frames]
    for threads in (2, 1):
        for state, other in zip(states(frames, threads), expected, strict=True):
            assert (state.status, state.counts) == (other.status, other.counts)
            assert np.array_equal(state.T_wc, other.T_wc)
            assert np.array_equal(state.covariance, other.covariance)


def test_the_next_frames_are_extracted_while_this_one_is_worked_on(frames):
    begun = [threading.Event() for _ in frames]

    def extract(image):
        index = next(i for i, frame in enumerate(frames) if frame.image is image)
        begun[index].set()
        return index

    for index, (frame, features) in enumerate(prefetch_features(frames, extract, 2)):
        assert frame is frames[index]
        assert features() == index
        assert all(event.wait(timeout=60) for event in begun[index + 1 : index + 3])
        assert not any(event.is_set() for event in begun[index + 3 :])


def test_with_one_thread_features_are_extracted_on_demand(frames):
    extracted = []
    ahead = prefetch_features(frames, lambda image: extracted.append(threading.get_ident()), 1)
    _, features = next(ahead)
    assert extracted == []
    features()
    assert extracted == [threading.get_ident()]


def test_an_unusable_image_is_reported_when_its_frame_is_processed(frames):
    blank = replace(frames[1], image=np.zeros((0, 0), np.uint8))
    sequence = [frames[0], blank, *frames[2:5]]
    statuses = [state.status for state in states(sequence, 2)]
    assert statuses == [state.status for state in states(sequence, 1)]
    assert statuses[1] in ("few_matches", "lost")


def test_an_error_of_the_extractor_is_raised_where_features_are_used(frames):
    def extract(image):
        raise ImageError("broken")

    for _, features in prefetch_features(frames[:3], extract, 2):
        with pytest.raises(ImageError, match="broken"):
            features()


def test_leaving_early_ends_the_threads_and_lifts_the_limit(frames):
    before = cv2.getNumThreads()
    ahead = prefetch_features(frames, make_extractor("orb"), 2)
    next(ahead)
    assert cv2.getNumThreads() == 1
    ahead.close()
    assert cv2.getNumThreads() == before
    assert not any(thread.name.startswith("extraction") for thread in threading.enumerate())


@pytest.mark.slow
def test_memory_stays_steady_over_many_frames(frames):
    """Back and forth over the same frames; the map forgets, images and features are let go."""
    odometry = VisualOdometry(replace(OPTIONS, max_keypoints=200, max_keyframes=6))
    there_and_back = frames + frames[-2:0:-1]

    def endless(count):
        for index in range(count):
            frame = there_and_back[index % len(there_and_back)]
            yield replace(frame, stamp_ns=(index + 1) * 50_000_000)

    tracemalloc.start()
    try:
        held = []
        ahead = prefetch_features(endless(160), odometry.extract, 2)
        for index, (frame, features) in enumerate(ahead):
            odometry.process(frame, None, features)
            if index in (60, 159):
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < frames[0].image.nbytes
