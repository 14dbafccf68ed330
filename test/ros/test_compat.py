"""What stands in for cv_bridge and message_filters, and which of both worlds is chosen."""

import importlib.util
import itertools
import logging
import os
import sys
import time

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from builtin_interfaces.msg import Time as TimeMessage
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import ClockType, ROSClock
from rclpy.context import Context
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header, String

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


def test_what_is_not_installed_is_replaced_without_a_warning(load_compat, caplog):
    module = load_compat({})
    assert module.CvBridge is conversion.CvBridge
    assert module.Subscriber is message_filters_fallback.Subscriber
    assert module.tf2_ros is None
    for name in PACKAGES:
        assert module.ABSENT[name] == f"{name} is not installed"
    assert not caplog.records


def test_what_is_installed_is_used(load_compat):
    names = ("SimpleFilter", "Subscriber", "Cache", "TimeSynchronizer")
    classes = [*names, "ApproximateTimeSynchronizer"]
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
def test_what_cannot_be_imported_counts_as_absent_and_is_said_once(
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


class Stamped:
    """A message with a header, its stamp as messages hold it."""

    def __init__(self, stamp_s):
        seconds, nanoseconds = divmod(round(stamp_s * 1e9), 10**9)
        self.header = Header(stamp=TimeMessage(sec=seconds, nanosec=nanoseconds))

    def __repr__(self):
        return f"Stamped({self.header.stamp.sec + self.header.stamp.nanosec * 1e-9})"


def stamped(*stamps_s):
    return [Stamped(stamp_s) for stamp_s in stamps_s]


def synchronize(module, size, queue_size=10, slop_s=None, **options):
    """Filters to feed, and the list of sets that come out of a synchronizer of them."""
    inputs = [module.SimpleFilter() for _ in range(size)]
    if slop_s is None:
        synchronizer = module.TimeSynchronizer(inputs, queue_size)
    else:
        synchronizer = module.ApproximateTimeSynchronizer(inputs, queue_size, slop_s, **options)
    sets = []
    synchronizer.registerCallback(lambda *messages: sets.append(messages))
    return [source.signalMessage for source in inputs], sets


def test_callbacks_get_the_message_then_their_own_arguments(filters):
    source, calls = filters.SimpleFilter(), []
    assert source.registerCallback(lambda *args: calls.append(args), "a", 1) == 0
    assert source.registerCallback(lambda *args: calls.append(args)) == 1
    source.signalMessage("left", "right")
    assert calls == [("left", "right", "a", 1), ("left", "right")]


def test_equal_stamps_make_a_set_whichever_comes_first(filters):
    (first, second, third), sets = synchronize(filters, 3)
    a, b, c = stamped(1, 1, 1)
    second(b)
    third(c)
    assert sets == []
    first(a)
    assert sets == [(a, b, c)]
    first(a)
    assert sets == [(a, b, c)], "a message belongs to one set"


def test_one_stream_may_run_ahead_by_the_length_of_the_queue(filters):
    (first, second), sets = synchronize(filters, 2, queue_size=3)
    ahead, behind = stamped(0, 1, 2, 3, 4), stamped(0, 1, 2, 3, 4)
    for message in ahead:
        first(message)
    for message in behind:
        second(message)
    assert sets == list(zip(ahead[2:], behind[2:], strict=True))


@pytest.mark.parametrize("slop_s", [None, 0.1])
def test_a_late_stream_may_come_in_any_order(slop_s):
    for order in itertools.permutations(range(4)):
        (first, second), sets = synchronize(message_filters_fallback, 2, 4, slop_s)
        waiting, late = stamped(0, 1, 2, 3), stamped(0, 1, 2, 3)
        for message in waiting:
            first(message)
        for index in order:
            second(late[index])
        assert sets == [(waiting[index], late[index]) for index in order]


def test_what_the_other_streams_have_passed_is_dropped():
    (first, second), sets = synchronize(message_filters_fallback, 2)
    old, new, partner, straggler = stamped(0, 1, 1, 0)
    first(old)
    second(partner)
    first(new)
    second(straggler)
    assert sets == [(new, partner)]


@pytest.mark.parametrize("slop_s", [None, 0.1])
def test_synchronizing_goes_on_after_stamps_jumped_back(slop_s):
    (first, second), sets = synchronize(message_filters_fallback, 2, queue_size=2, slop_s=slop_s)
    for message in stamped(100, 101, 102):
        first(message)
    for message in stamped(200, 201, 202):
        second(message)
    for a, b in zip(stamped(1, 2), stamped(1, 2), strict=True):
        first(a)
        second(b)
        assert sets.pop() == (a, b)


def test_a_callback_that_fails_does_not_block_the_next_set():
    inputs = [message_filters_fallback.SimpleFilter() for _ in range(2)]
    stamps_s = []

    def fail_at_first(a, b):
        stamps_s.append(a.header.stamp.sec)
        if len(stamps_s) == 1:
            raise RuntimeError("no luck")

    message_filters_fallback.TimeSynchronizer(inputs, 5).registerCallback(fail_at_first)
    inputs[0].signalMessage(Stamped(1))
    with pytest.raises(RuntimeError, match="no luck"):
        inputs[1].signalMessage(Stamped(1))
    for source in inputs:
        source.signalMessage(Stamped(2))
    assert stamps_s == [1, 2]


def test_near_stamps_make_a_set_of_the_nearest(filters):
    (image, info), sets = synchronize(filters, 2, slop_s=0.1)
    far, near, nearest = stamped(0.91, 1.04, 0.98)
    message = Stamped(1)
    for waiting in (far, near, nearest):
        info(waiting)
    image(message)
    assert sets == [(message, nearest)]


def test_the_whole_set_lies_within_the_slop(filters):
    (first, second, third), sets = synchronize(filters, 3, slop_s=0.1)
    first(Stamped(0.94))
    second(Stamped(1.06))
    third(Stamped(1.0))
    assert sets == [], "0.94 and 1.06 are too far apart, though both are near 1.0"
    first(Stamped(1.01))
    assert len(sets) == 1
    (first, second), sets = synchronize(filters, 2, slop_s=0.1)
    first(Stamped(1.0))
    second(Stamped(1.1))
    assert sets == [], "stamps apart by just the slop"


def test_stamps_may_be_times_of_rclpy(filters):
    (first, second), sets = synchronize(filters, 2, slop_s=0.1)
    a, b = stamped(1, 1)
    for message in (a, b):
        message.header = type("Header", (), {"stamp": Time(seconds=1)})()
    first(a)
    second(b)
    assert sets == [(a, b)]


def test_messages_without_header_are_refused_or_get_their_time_of_arrival(filters):
    (first, second), sets = synchronize(filters, 2, slop_s=30)
    now = Image(header=Header(stamp=ROSClock().now().to_msg()))
    first(now)
    second(String(data="when?"))
    assert sets == []
    (first, second), sets = synchronize(filters, 2, slop_s=30, allow_headerless=True)
    first(now)
    second(String(data="now"))
    assert sets == [(now, String(data="now"))]


streams = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), max_size=40)


@given(steps=streams, queue_size=st.integers(1, 6), slop_s=st.sampled_from([None, 0.05, 0.3]))
def test_streams_in_order_give_the_sets_that_message_filters_gives(steps, queue_size, slop_s):
    original = installed("message_filters")
    clock_s = [0.0, 0.0, 0.0]
    messages, results = [], []
    for stream, step in steps:
        clock_s[stream] += step / 100
        messages.append((stream, Stamped(clock_s[stream])))
    for module in (message_filters_fallback, original):
        inputs, sets = synchronize(module, 3, queue_size, slop_s)
        for stream, message in messages:
            inputs[stream](message)
        results.append(sets)
    assert results[0] == results[1]


def test_cache_answers_by_time(filters):
    source = filters.SimpleFilter()
    cache = filters.Cache(source, 5)
    assert (cache.getLast(), cache.getOldestTime(), cache.getLastestTime()) == (None, None, None)
    messages = stamped(0, 1, 2, 3, 4)
    for message in messages:
        source.signalMessage(message)

    def at(seconds):
        return Time(seconds=seconds, clock_type=ClockType.ROS_TIME)

    assert cache.getInterval(at(2.5), at(3.5)) == messages[3:4]
    assert cache.getInterval(at(2), at(3)) == messages[2:4]
    assert cache.getElemAfterTime(at(1.5)) is messages[2]
    assert cache.getElemAfterTime(at(4.5)) is None
    assert cache.getElemBeforeTime(at(1.5)) is messages[1]
    assert cache.getElemBeforeTime(at(0)) is messages[0]
    assert (cache.getOldestTime(), cache.getLastestTime()) == (at(0), at(4))
    assert cache.getLast() is messages[4]
    source.signalMessage(Stamped(5))
    assert cache.getOldestTime() == at(1), "the oldest makes room"


def test_cache_passes_on_what_it_keeps(filters):
    source, passed = filters.SimpleFilter(), []
    strict, lenient = filters.Cache(source), filters.Cache(source, 2, allow_headerless=True)
    strict.registerCallback(passed.append)
    lenient.registerCallback(passed.append)
    before, message = ROSClock().now(), String(data="no header")
    source.signalMessage(message)
    assert passed == [message]
    assert strict.getLast() is None
    assert lenient.getInterval(before, before + Duration(seconds=60)) == [message]


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


def test_images_and_their_calibration_are_synchronized_over_dds(nodes, filters):
    camera, listener, wait_for = nodes
    image = filters.Subscriber(
        listener,
        Image,
        "image",
        qos_profile=QoSProfile(depth=20),
        callback_group=ReentrantCallbackGroup(),
    )
    info = filters.Subscriber(listener, CameraInfo, "info")
    assert image.getTopic() == "image"
    assert image.topic_name == f"{listener.get_namespace()}/image", "asked of the subscription"
    assert (image.qos_profile.depth, info.qos_profile.depth) == (20, 10)
    pairs = []
    synchronizer = filters.TimeSynchronizer([image, info], 10)
    synchronizer.registerCallback(lambda *messages: pairs.append(messages))

    image_publisher = camera.create_publisher(Image, "image", 10)
    info_publisher = camera.create_publisher(CameraInfo, "info", 10)
    publishers = (image_publisher, info_publisher)
    wait_for(lambda: all(publisher.get_subscription_count() for publisher in publishers))
    bridge = conversion.CvBridge()
    sent = {}
    for second in range(1, 6):
        header = Header(stamp=TimeMessage(sec=second), frame_id="camera")
        sent[second] = np.full((HEIGHT, WIDTH, 3), second, np.uint8)
        image_publisher.publish(bridge.cv2_to_imgmsg(sent[second], "bgr8", header))
        if second != 3:
            info_publisher.publish(CameraInfo(header=header, height=HEIGHT, width=WIDTH))
    wait_for(lambda: len(pairs) >= 4)

    assert [pair[0].header.stamp.sec for pair in pairs] == [1, 2, 4, 5]
    for image_message, info_message in pairs:
        assert image_message.header == info_message.header
        received = bridge.imgmsg_to_cv2(image_message)
        np.testing.assert_array_equal(received, sent[image_message.header.stamp.sec])


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
def test_an_image_comes_back_from_its_message(bridge, encoding):
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


def test_the_message_of_a_part_or_of_foreign_byte_order_holds_its_pixels(bridge):
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


def test_numbers_that_mean_no_colour_keep_their_values(bridge):
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
def test_conversions_without_meaning_are_refused(bridge, source, target):
    message = Image(encoding=source, height=2, width=2, step=6, data=bytes(12))
    with pytest.raises(TypeError, match=target):
        bridge.imgmsg_to_cv2(message, target)


def test_what_is_wrong_with_a_message_is_said():
    bridge, error = conversion.CvBridge(), conversion.CvBridgeError
    for encoding in ("bgr7", "mono", "16UC0", ""):
        message = Image(encoding=encoding, height=1, width=1, step=3, data=bytes(3))
        with pytest.raises(error, match=rf"'{encoding}' is not known: .*mono8.*32FC1"):
            bridge.imgmsg_to_cv2(message)
    good = Image(encoding="bgr8", height=1, width=1, step=3, data=bytes(3))
    with pytest.raises(error, match="'bgr9' is not known"):
        bridge.imgmsg_to_cv2(good, "bgr9")
    with pytest.raises(error, match="says step 5 and brings 40 bytes"):
        bridge.imgmsg_to_cv2(Image(encoding="bgr8", height=8, width=6, step=5, data=bytes(40)))
    with pytest.raises(error, match="empty"):
        bridge.imgmsg_to_cv2(Image(encoding="bgr8"))
    odd = Image(encoding="yuyv", height=2, width=3, step=6, data=bytes(12))
    with pytest.raises(error, match="'yuyv' cannot become 'bgr8'"):
        bridge.imgmsg_to_cv2(odd, "bgr8")


@pytest.mark.parametrize(
    ("image", "encoding", "reason"),
    [
        ([[1, 2]], "mono8", "not a list"),
        (np.zeros((2, 2), bool), "mono8", "type bool is not an image"),
        (np.zeros((2, 2), np.float16), "passthrough", "type float16 is not an image"),
        (np.zeros(4, np.uint8), "mono8", "shape \\(4,\\)"),
        (np.zeros((0, 2), np.uint8), "mono8", "shape \\(0, 2\\)"),
        (np.zeros((2, 2), np.uint8), "bgr8", "type 8UC1 cannot be in encoding 'bgr8'"),
        (np.zeros((2, 2), np.uint8), "mono16", "type 8UC1 cannot be in encoding 'mono16'"),
        (np.zeros((2, 2), np.uint8), "bgr9", "'bgr9' is not known"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(image, encoding, reason):
    with pytest.raises(conversion.CvBridgeError, match=reason):
        conversion.CvBridge().cv2_to_imgmsg(image, encoding)


def test_compressed_images_come_back(bridge, picture):
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


def test_a_compressed_gray_image_can_be_given_colours(picture):
    bridge = conversion.CvBridge()
    message = bridge.cv2_to_compressed_imgmsg(picture[..., 0], "png")
    image = bridge.compressed_imgmsg_to_cv2(message, "bgr8")
    np.testing.assert_array_equal(image, np.repeat(picture[..., :1], 3, axis=2))


def test_compressed_images_that_cannot_be_are_refused(picture):
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
