"""Ten thousand malformed messages of each kind, mixed with good ones, and the node goes on."""

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.campaign import mutations
from ros.campaign.harness import bench, reliable
from ros.campaign.sender import CampaignCamera, checked
from ros.campaign.summary import SUMMARY, scaled

pytestmark = pytest.mark.campaign

MALFORMED = 10_000
BATCH = 20
INTERVAL_NS = 10_000_000
# The node looks into an image that is damaged within this time, most of the time.
PACE_S = 0.003
SEED = 20180618


def spoiled_image(rng, camera):
    """The calibration has the stamp of the image, so that they meet, in most cases."""
    image, info = camera.pair(camera.next_view())
    kinds = mutations.COMPRESSED if camera.compressed else mutations.IMAGE
    mutations.spoil(rng, image, kinds)
    if rng.random() < 0.95:
        info.header.stamp = image.header.stamp
    camera.publish(image, info)


def spoiled_info(rng, camera):
    image, info = camera.pair(camera.next_view())
    mutations.spoil(rng, info, mutations.CAMERA_INFO)
    if rng.random() < 0.95:
        image.header.stamp = info.header.stamp
    camera.publish(image, info)


def spoiled_odom(rng, camera):
    message = camera.wheels(camera.next_view())
    mutations.spoil(rng, message, mutations.ODOM)
    camera.publish_scale(message)


def spoiled_depth(rng, camera):
    """Shown in step: a depth image is looked into when the image of its stamp is there."""

    def send():
        camera.now_ns += INTERVAL_NS
        view = camera.next_view()
        depth = camera.depth(view)
        mutations.spoil(rng, depth, mutations.DEPTH)
        camera.publish_scale(depth)
        camera.publish(*camera.pair(view))
        return view.stamp_ns

    camera.show_good(send)


def examined(camera, counts):
    """Malformed messages that were looked into, at least; a newer image may replace one before."""
    if camera.scale_topic:
        return counts.scale - camera.sent.good_scale
    return max(0, counts.examined - camera.sent.good)


KINDS = {
    "image": (spoiled_image, {}, {}),
    "compressed image": (
        spoiled_image,
        {"compressed": True},
        {"image_transport": "compressed", **reliable("image/compressed", "camera_info")},
    ),
    "camera_info": (spoiled_info, {}, {}),
    "odom": (spoiled_odom, {"scale_topic": "odom"}, {"scale.source": "odom"}),
    "depth": (spoiled_depth, {"scale_topic": "depth"}, {"scale.source": "depth"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_node_survives_malformed_messages(kind, views, tmp_path):
    spoiled, of_camera, parameters = KINDS[kind]
    rng, wanted = np.random.default_rng(SEED), scaled(MALFORMED)
    lossless = reliable("image", "camera_info", "odom", "depth")
    with SUMMARY.phase(f"malformed: {kind}") as row, bench(tmp_path, row) as watching:
        watching.start_node(**(lossless | parameters))
        camera = CampaignCamera(watching, views, **of_camera)
        with checked(watching, camera):
            before = camera.begin()
            now = before
            while examined(camera, now.since(before)) < wanted:
                for _ in range(BATCH):
                    camera.now_ns += INTERVAL_NS
                    spoiled(rng, camera)
                    camera.wait_a_moment(PACE_S)
                camera.show_good()
                now = camera.newest_counts() or now
            done = camera.settle(before)
            row.examined = examined(camera, done)
            row.good = camera.sent.good
            row.malformed = done.scale - camera.sent.good_scale
            if not camera.scale_topic:
                row.malformed = done.images - camera.sent.good
        assert row.examined >= wanted


HUGE = [(8000, 8000), (30_000, 30_000), (65_535, 16_000), (65_535, 65_535)]


def test_a_damaged_size_of_a_compressed_image_allocates_no_memory(views, tmp_path):
    """A few bytes that claim to be a billion pixels: OpenCV would allocate and fill them."""
    _, of_camera, parameters = KINDS["compressed image"]
    with SUMMARY.phase("compressed, huge size") as row, bench(tmp_path, row) as watching:
        watching.start_node(**parameters)
        camera = CampaignCamera(watching, views, **of_camera)
        with checked(watching, camera):
            before = camera.begin()
            for claim in (mutations.png_of_size, mutations.jpeg_of_size):
                for width, height in HUGE:
                    camera.shown += 1 - camera.shown % 2  # the next one is a JPEG
                    camera.now_ns += INTERVAL_NS
                    image, info = camera.pair(camera.next_view())
                    claim(image, width, height)
                    camera.publish(image, info)
                    camera.show_good()
            done = camera.settle(before)
            row.examined, row.good = examined(camera, done), camera.sent.good
            row.malformed = done.images - camera.sent.good
