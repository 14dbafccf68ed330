"""What stands in for cv_bridge and message_filters, and which of both worlds is chosen."""

import importlib.util
import logging
import sys
import time

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from builtin_interfaces.msg import Time as TimeMessage
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from ros.processes import free_domain
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header

from lgc_ros.images.encoding import IMAGE_ENCODINGS, image_from_message
from lgc_ros.ros import compat, cv_bridge_fallback, message_filters_fallback

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
    assert module.CvBridge is cv_bridge_fallback.CvBridge
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
                "__init__.py": "class CvBridge: pass",
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
        "__init__.py": "class CvBridge: pass",
        "boost/__init__.py": "",
    }
    with caplog.at_level(logging.WARNING):
        module = load_compat({"cv_bridge": {**files, place: failure}})
    assert module.CvBridge is cv_bridge_fallback.CvBridge
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
    context.init(domain_id=free_domain())
    pair = [Node(name, context=context) for name in ("camera", "listener")]
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
    assert image.sub.qos_profile.depth == 20
    assert filters.Subscriber(listener, CameraInfo, "info").sub.qos_profile.depth == 10
    heard = []
    image.registerCallback(lambda message, name: heard.append((message, name)), "front")
    publisher = camera.create_publisher(Image, "image", 10)
    wait_for(publisher.get_subscription_count)
    header = Header(stamp=TimeMessage(sec=1), frame_id="camera")
    sent = np.full((HEIGHT, WIDTH, 3), 7, np.uint8)
    publisher.publish(cv_bridge_fallback.CvBridge().cv2_to_imgmsg(sent, "bgr8", header))
    wait_for(lambda: heard)
    [(message, name)] = heard
    assert (message.header, name) == (header, "front")
    np.testing.assert_array_equal(image_from_message(message), sent)


def test_a_subscriber_takes_the_options_of_a_subscription(nodes, filters):
    _, listener, _ = nodes
    group = ReentrantCallbackGroup()
    subscriber = filters.Subscriber(
        listener, Image, "image", qos_profile=qos_profile_sensor_data, callback_group=group
    )
    assert subscriber.sub in list(listener.subscriptions)
    assert subscriber.sub.callback_group is group
    assert subscriber.sub.qos_profile.reliability == qos_profile_sensor_data.reliability


def message_of(encoding, pixels):
    """An Image as a driver would pack it."""
    message = Image(encoding=encoding, step=pixels.strides[0])
    message.height, message.width = pixels.shape[:2]
    message.data.frombytes(pixels.tobytes())
    return message


@pytest.fixture
def picture():
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    channels = 60 + 4 * x, 200 - 5 * y, 40 + 2 * x + 3 * y
    return np.stack(channels, -1).astype(np.uint8)


@pytest.fixture(params=both("cv_bridge", cv_bridge_fallback))
def bridge(request):
    return request.param.CvBridge()


@pytest.mark.parametrize(
    ("encoding", "dtype", "channels"),
    [("bgr8", np.uint8, 3), ("mono8", np.uint8, None), ("16UC1", np.uint16, None)],
)
def test_an_array_becomes_a_message_with_its_pixels(bridge, encoding, dtype, channels):
    shape = (HEIGHT, WIDTH) if channels is None else (HEIGHT, WIDTH, channels)
    pixels = np.random.default_rng(7).integers(0, 120, shape).astype(dtype)
    header = Header(stamp=TimeMessage(sec=1), frame_id="camera")
    for part in (pixels, pixels[2:-3, 5:-4]):  # a slice is not contiguous
        message = bridge.cv2_to_imgmsg(part, encoding, header)
        assert (message.height, message.width, message.encoding) == (*part.shape[:2], encoding)
        assert message.header == header
        assert message.step == message.width * pixels.strides[1]
        assert bytes(message.data) == part.tobytes()


@pytest.mark.parametrize(("dtype", "encoding"), [(np.uint8, "bgr8"), (np.uint8, "mono16")])
def test_an_array_that_does_not_fit_the_encoding_is_refused(bridge, dtype, encoding):
    with pytest.raises(TypeError):
        bridge.cv2_to_imgmsg(np.zeros((2, 2), dtype), encoding)


def test_every_encoding_is_decoded_as_cv_bridge_does(picture):
    original = installed("cv_bridge").CvBridge()
    for encoding in IMAGE_ENCODINGS.keys() - {"uyvy", "yuyv"}:  # names that came later
        layout = IMAGE_ENCODINGS[encoding]
        pixels = np.dstack([picture, picture[..., :1]])[..., : layout.channels]
        scale = 257 if layout.dtype == "u2" else 1
        message = message_of(encoding, pixels.astype(layout.dtype) * scale)
        image = image_from_message(message)
        target = "mono8" if image.ndim == 2 else "bgr8"
        np.testing.assert_array_equal(image, original.imgmsg_to_cv2(message, target), encoding)
