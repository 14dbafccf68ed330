"""What stands in for cv_bridge and message_filters, and which of both worlds is chosen."""

import importlib.util
import logging
import os
import sys
import time

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from builtin_interfaces.msg import Time as TimeMessage
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header

from lgc_ros.images.encoding import IMAGE_ENCODINGS
from lgc_ros.ros import compat, conversion, message_filters_fallback

PACKAGES = ("cv_bridge", "message_filters", "tf2_ros")
HEIGHT, WIDTH = 24, 32


def installed(package):
    """The package of a full ROS install, to compare with."""
    if package in compat.ABSENT:
        pytest.skip(compat.ABSENT[package])
    return importlib.import_module(package)


def both(package, fallback):
    """The fallback, and where it is installed the original: both are held to the same tests."""
    if package in compat.ABSENT:
        return [pytest.param(fallback, id="fallback")]
    original = importlib.import_module(package)
    return [pytest.param(fallback, id="fallback"), pytest.param(original, id="installed")]


@pytest.fixture
def load_compat(monkeypatch, tmp_path):
    """Loads a copy of compat that finds the given packages, by file and source, and no others."""

    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]

    def load(sources):
        for package in PACKAGES:
            if package not in sources:
                monkeypatch.setitem(sys.modules, package, None)
        for package, files in sources.items():
            for name, text in files.items():
                path = tmp_path / package / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        importlib.invalidate_caches()
        spec = importlib.util.spec_from_file_location("a_compat", compat.__file__)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    known = {name: sys.modules[name] for name in sys.modules if name.partition(".")[0] in PACKAGES}
    forget()
    monkeypatch.syspath_prepend(tmp_path)
    yield load
    monkeypatch.undo()
    forget()
    sys.modules.update(known)


def test_missing_packages_are_replaced_without_a_warning(load_compat, caplog):
    module = load_compat({})
    assert module.CvBridge is conversion.CvBridge
    assert module.Subscriber is message_filters_fallback.Subscriber
    assert module.tf2_ros is None
    for name in PACKAGES:
        assert module.ABSENT[name] == f"{name} is not installed"
    assert not caplog.records


def test_installed_packages_are_used(load_compat):
    classes = ("SimpleFilter", "Subscriber")
    module = load_compat(
        {
            "cv_bridge": {
                "__init__.py": "class CvBridge: pass\nclass CvBridgeError(TypeError): pass",
                "boost/__init__.py": "",
                "boost/cv_bridge_boost.py": "",
            },
            "message_filters": {
                "__init__.py": "\n".join(f"class {name}: pass" for name in classes)
            },
            "tf2_ros": {"__init__.py": ""},
        }
    )
    assert not module.ABSENT
    assert module.CvBridge is sys.modules["cv_bridge"].CvBridge
    assert module.CvBridgeError is sys.modules["cv_bridge"].CvBridgeError
    assert module.tf2_ros is sys.modules["tf2_ros"]
    for name in classes:
        assert getattr(module, name) is getattr(sys.modules["message_filters"], name)


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ("raise ImportError('built for numpy 1')", "built for numpy 1"),
        ("raise AttributeError('_ARRAY_API not found')", "_ARRAY_API not found"),
        ("import a_library_that_is_gone", "a_library_that_is_gone"),
    ],
)
@pytest.mark.parametrize("place", ["__init__.py", "boost/cv_bridge_boost.py"])
def test_a_package_that_cannot_be_imported_counts_as_absent_and_is_logged_once(
    load_compat, caplog, place, failure, cause
):
    files = {
        "__init__.py": "class CvBridge: pass\nclass CvBridgeError(TypeError): pass",
        "boost/__init__.py": "",
    }
    with caplog.at_level(logging.WARNING):
        module = load_compat({"cv_bridge": {**files, place: failure}})
    assert module.CvBridge is conversion.CvBridge
    assert module.CvBridgeError is conversion.CvBridgeError
    [record] = caplog.records
    assert "cv_bridge is installed but cannot be imported" in record.getMessage()
    assert cause in record.getMessage()
    assert cause in module.ABSENT["cv_bridge"]


@pytest.fixture(params=both("message_filters", message_filters_fallback))
def filters(request):
    return request.param


def test_callbacks_get_the_message_then_their_own_arguments(filters):
    source, calls = filters.SimpleFilter(), []
    assert source.registerCallback(lambda *args: calls.append(args), "a", 1) == 0
    assert source.registerCallback(lambda *args: calls.append(args)) == 1
    source.signalMessage("left", "right")
    assert calls == [("left", "right", "a", 1), ("left", "right")]


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes that find each other and nobody else, and a way to wait while both spin."""
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = Context()
    context.init(domain_id=1 + os.getpid() % 100)
    namespace = f"/compat_{os.getpid()}"
    pair = [Node(name, context=context, namespace=namespace) for name in ("camera", "listener")]
    executor = SingleThreadedExecutor(context=context)
    for node in pair:
        executor.add_node(node)

    def wait_for(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "waited a minute in vain"
            executor.spin_once(timeout_sec=0.1)

    yield *pair, wait_for
    executor.shutdown()
    for node in pair:
        node.destroy_node()
    context.try_shutdown()


def test_a_subscriber_passes_on_messages_received_over_dds(nodes, filters):
    camera, listener, wait_for = nodes
    group = ReentrantCallbackGroup()
    image = filters.Subscriber(
        listener, Image, "image", qos_profile=QoSProfile(depth=20), callback_group=group
    )
    assert image.getTopic() == "image"
    assert image.topic_name == f"{listener.get_namespace()}/image", "asked of the subscription"
    assert image.qos_profile.depth == 20
    assert filters.Subscriber(listener, CameraInfo, "info").qos_profile.depth == 10
    heard = []
    image.registerCallback(lambda message, name: heard.append((message, name)), "front")
    publisher = camera.create_publisher(Image, "image", 10)
    wait_for(publisher.get_subscription_count)
    header = Header(stamp=TimeMessage(sec=1), frame_id="camera")
    sent = np.full((HEIGHT, WIDTH, 3), 7, np.uint8)
    publisher.publish(conversion.CvBridge().cv2_to_imgmsg(sent, "bgr8", header))
    wait_for(lambda: heard)
    [(message, name)] = heard
    assert (message.header, name) == (header, "front")
    np.testing.assert_array_equal(conversion.CvBridge().imgmsg_to_cv2(message), sent)


def test_a_subscriber_takes_the_options_of_a_subscription(nodes, filters):
    _, listener, _ = nodes
    group = ReentrantCallbackGroup()
    subscriber = filters.Subscriber(
        listener, Image, "image", qos_profile=qos_profile_sensor_data, callback_group=group
    )
    assert subscriber.sub in list(listener.subscriptions)
    assert subscriber.callback_group is group
    assert subscriber.qos_profile.reliability == qos_profile_sensor_data.reliability


@pytest.fixture(params=both("cv_bridge", conversion))
def bridge(request):
    return request.param.CvBridge()


@pytest.fixture
def picture():
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    channels = 60 + 4 * x, 200 - 5 * y, 40 + 2 * x + 3 * y
    return np.stack(channels, -1).astype(np.uint8)


def message_of(encoding, pixels, padding=0, big_endian=False):
    """An Image as a driver would pack it, with bytes after each row."""
    pixels = pixels.astype(pixels.dtype.newbyteorder(">" if big_endian else "<"))
    rows = np.frombuffer(pixels.tobytes(), np.uint8).reshape(len(pixels), -1)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    message = Image(encoding=encoding, step=rows.shape[1], is_bigendian=int(big_endian))
    message.height, message.width = pixels.shape[:2]
    message.data.frombytes(rows.tobytes())
    return message


TYPES = {
    "mono8": np.uint8,
    "mono16": np.uint16,
    "8SC2": np.int8,
    "16UC1": np.uint16,
    "16SC3": np.int16,
    "32SC4": np.int32,
    "32FC1": np.float32,
    "64FC3": np.float64,
    "rgb16": np.uint16,
    "bayer_rggb8": np.uint8,
    "yuv422": np.uint8,
}
CHANNELS = {"8SC2": 2, "16SC3": 3, "32SC4": 4, "64FC3": 3, "rgb16": 3, "yuv422": 2}


def pixels_for(encoding):
    channels = CHANNELS.get(encoding)
    shape = (HEIGHT, WIDTH) if channels is None else (HEIGHT, WIDTH, channels)
    return np.random.default_rng(7).integers(0, 120, shape).astype(TYPES[encoding])


@pytest.mark.parametrize("encoding", TYPES)
def test_an_image_survives_conversion_to_a_message_and_back(bridge, encoding):
    image, header = pixels_for(encoding), Header(frame_id="camera")
    message = bridge.cv2_to_imgmsg(image, encoding, header)
    assert (message.height, message.width) == image.shape[:2]
    assert message.encoding == encoding
    assert message.step == image.strides[0]
    assert message.header == header
    back = bridge.imgmsg_to_cv2(message)
    assert back.dtype == image.dtype
    np.testing.assert_array_equal(back, image)


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("encoding", TYPES)
def test_padding_and_byte_order_do_not_change_pixels(encoding, big_endian):
    image = pixels_for(encoding)
    message = message_of(encoding, image, padding=5, big_endian=big_endian)
    back = conversion.CvBridge().imgmsg_to_cv2(message)
    assert back.dtype == image.dtype
    assert back.flags.c_contiguous
    assert back.flags.writeable
    np.testing.assert_array_equal(back, image)


def test_slices_and_foreign_byte_order_are_converted_correctly(bridge):
    image = pixels_for("mono16")
    part = image[2:-3, 5:-4]
    np.testing.assert_array_equal(bridge.imgmsg_to_cv2(bridge.cv2_to_imgmsg(part)), part)
    message = bridge.cv2_to_imgmsg(image.astype(">u2"))
    assert message.is_bigendian
    np.testing.assert_array_equal(conversion.CvBridge().imgmsg_to_cv2(message), image)


@pytest.mark.parametrize(
    ("image", "encoding"),
    [
        (np.zeros((2, 3), np.uint8), "8UC1"),
        (np.zeros((2, 3, 3), np.uint8), "8UC3"),
        (np.zeros((2, 3), np.uint16), "16UC1"),
        (np.zeros((2, 3, 2), np.float32), "32FC2"),
    ],
)
def test_passthrough_names_the_type_of_the_array(bridge, image, encoding):
    assert bridge.cv2_to_imgmsg(image).encoding == encoding


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("bgr8", "mono8", cv2.COLOR_BGR2GRAY),
        ("bgr8", "rgb8", cv2.COLOR_BGR2RGB),
        ("bgr8", "rgba8", cv2.COLOR_BGR2RGBA),
        ("rgb8", "bgr8", cv2.COLOR_RGB2BGR),
        ("rgb8", "mono8", cv2.COLOR_RGB2GRAY),
        ("mono8", "bgr8", cv2.COLOR_GRAY2BGR),
        ("bgra8", "mono8", cv2.COLOR_BGRA2GRAY),
        ("rgba8", "bgr8", cv2.COLOR_RGBA2BGR),
        ("bayer_rggb8", "bgr8", cv2.COLOR_BayerBG2BGR),
        ("bayer_bggr8", "rgb8", cv2.COLOR_BayerRG2RGB),
        ("bayer_gbrg8", "mono8", cv2.COLOR_BayerGR2GRAY),
        ("bayer_grbg8", "bgr8", cv2.COLOR_BayerGB2BGR),
        ("yuv422", "bgr8", cv2.COLOR_YUV2BGR_UYVY),
        ("yuv422", "mono8", cv2.COLOR_YUV2GRAY_UYVY),
        ("yuv422_yuy2", "rgb8", cv2.COLOR_YUV2RGB_YUY2),
    ],
)
def test_colours_are_converted_as_opencv_does(bridge, picture, source, target, code):
    channels = {"bgr": 3, "rgb": 3, "bgra": 4, "rgba": 4, "yuv422": 2, "yuv422_yuy2": 2}
    channels = channels.get(source.removesuffix("8"), 1)
    pixels = np.dstack([picture, picture[..., :1]])[..., :channels]
    if channels == 1:
        pixels = pixels[..., 0]
    image = bridge.imgmsg_to_cv2(message_of(source, pixels), target)
    np.testing.assert_array_equal(image, cv2.cvtColor(np.ascontiguousarray(pixels), code))


@pytest.mark.parametrize("target", ["passthrough", "mono8", "mono16", "bgr8", "rgb8", "bgr16"])
def test_every_encoding_gives_the_image_that_cv_bridge_gives(picture, target):
    original = installed("cv_bridge").CvBridge()
    for encoding in IMAGE_ENCODINGS.keys() - {"uyvy", "yuyv"}:  # names that came later
        layout = IMAGE_ENCODINGS[encoding]
        pixels = np.dstack([picture, picture[..., :1]])[..., : layout.channels]
        scale = 257 if layout.dtype == "u2" else 1
        message = message_of(encoding, pixels.astype(layout.dtype) * scale)
        try:
            expected = original.imgmsg_to_cv2(message, target)
        except TypeError:
            with pytest.raises(TypeError):
                conversion.CvBridge().imgmsg_to_cv2(message, target)
        else:
            image = conversion.CvBridge().imgmsg_to_cv2(message, target)
            np.testing.assert_array_equal(image, expected, encoding)


def test_white_stays_white_at_another_depth(bridge, picture):
    deep = bridge.imgmsg_to_cv2(message_of("bgr8", picture), "rgb16")
    np.testing.assert_array_equal(deep, picture[..., ::-1].astype(np.uint16) * 257)
    gray = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    back = bridge.imgmsg_to_cv2(message_of("mono16", gray), "mono8")
    np.testing.assert_array_equal(back, np.rint(gray / 257))


def test_values_without_a_colour_are_not_rescaled(bridge):
    millimetres = np.array([[0, 1500, 65535]], np.uint16)
    image = bridge.imgmsg_to_cv2(message_of("16UC1", millimetres), "32FC1")
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, millimetres)
    image = bridge.imgmsg_to_cv2(message_of("32FC1", np.float32([[-1, 1.6, 1e6]])), "16UC1")
    np.testing.assert_array_equal(image, [[0, 2, 65535]])


@pytest.mark.parametrize(
    ("source", "target"),
    [("8UC3", "bgr8"), ("16UC1", "mono16"), ("bgr8", "8UC1"), ("mono8", "bayer_rggb8")],
)
def test_meaningless_conversions_are_refused(bridge, source, target):
    message = Image(encoding=source, height=2, width=2, step=6, data=bytes(12))
    with pytest.raises(TypeError, match=target):
        bridge.imgmsg_to_cv2(message, target)


def test_invalid_messages_are_refused_with_the_reason():
    bridge, error = conversion.CvBridge(), conversion.CvBridgeError
    for encoding in ("bgr7", "mono", "16UC0", ""):
        message = Image(encoding=encoding, height=1, width=1, step=3, data=bytes(3))
        with pytest.raises(error, match=rf"'{encoding}' is not known: .*mono8.*32FC1"):
            bridge.imgmsg_to_cv2(message)
    good = Image(encoding="bgr8", height=1, width=1, step=3, data=bytes(3))
    with pytest.raises(error, match="'bgr9' is not known"):
        bridge.imgmsg_to_cv2(good, "bgr9")
    with pytest.raises(error, match="has step 5 and 40 bytes of data"):
        bridge.imgmsg_to_cv2(Image(encoding="bgr8", height=8, width=6, step=5, data=bytes(40)))
    with pytest.raises(error, match="empty"):
        bridge.imgmsg_to_cv2(Image(encoding="bgr8"))
    odd = Image(encoding="yuyv", height=2, width=3, step=6, data=bytes(12))
    with pytest.raises(error, match="'yuyv' cannot be converted to 'bgr8'"):
        bridge.imgmsg_to_cv2(odd, "bgr8")


@pytest.mark.parametrize(
    ("image", "encoding", "reason"),
    [
        ([[1, 2]], "mono8", "not a list"),
        (np.zeros((2, 2), bool), "mono8", "type bool is not an image"),
        (np.zeros((2, 2), np.float16), "passthrough", "type float16 is not an image"),
        (np.zeros(4, np.uint8), "mono8", "shape \\(4,\\)"),
        (np.zeros((0, 2), np.uint8), "mono8", "shape \\(0, 2\\)"),
        (np.zeros((2, 2), np.uint8), "bgr8", "type 8UC1 does not fit the encoding 'bgr8'"),
        (np.zeros((2, 2), np.uint8), "mono16", "type 8UC1 does not fit the encoding 'mono16'"),
        (np.zeros((2, 2), np.uint8), "bgr9", "'bgr9' is not known"),
    ],
)
def test_arrays_that_do_not_fit_the_encoding_are_refused(image, encoding, reason):
    with pytest.raises(conversion.CvBridgeError, match=reason):
        conversion.CvBridge().cv2_to_imgmsg(image, encoding)


def test_compressed_images_survive_a_round_trip(bridge, picture):
    message = bridge.cv2_to_compressed_imgmsg(picture, "png")
    assert message.format == "png"
    np.testing.assert_array_equal(bridge.compressed_imgmsg_to_cv2(message), picture)
    gray = bridge.compressed_imgmsg_to_cv2(message, "mono8")
    np.testing.assert_array_equal(gray, cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY))
    depth = pixels_for("16UC1") * 500
    message = bridge.cv2_to_compressed_imgmsg(depth, "png")
    np.testing.assert_array_equal(bridge.compressed_imgmsg_to_cv2(message), depth)
    jpeg = bridge.compressed_imgmsg_to_cv2(bridge.cv2_to_compressed_imgmsg(picture))
    assert np.abs(jpeg.astype(int) - picture).mean() < 4


def test_a_compressed_gray_image_can_be_converted_to_colour(picture):
    bridge = conversion.CvBridge()
    message = bridge.cv2_to_compressed_imgmsg(picture[..., 0], "png")
    image = bridge.compressed_imgmsg_to_cv2(message, "bgr8")
    np.testing.assert_array_equal(image, np.repeat(picture[..., :1], 3, axis=2))


def test_invalid_compressed_images_are_refused(picture):
    bridge, error = conversion.CvBridge(), conversion.CvBridgeError
    message = bridge.cv2_to_compressed_imgmsg(picture)
    message.data = message.data[:10]
    with pytest.raises(error, match="10 bytes of a compressed image cannot be decoded"):
        bridge.compressed_imgmsg_to_cv2(message)
    message.data = b""
    with pytest.raises(error, match="0 bytes"):
        bridge.compressed_imgmsg_to_cv2(message)
    with pytest.raises(error, match="'poem'"):
        bridge.cv2_to_compressed_imgmsg(picture, "poem")
