"""Damaged and malicious files: each is read correctly or refused with an LgcError.

Reading never raises another exception and never allocates much memory. Each test changes one thing
in a valid file: a byte, the length, or the type of a value.
"""

import binascii
import copy
import resource
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
import yaml
from calibrations import FILES
from hypothesis import given
from hypothesis import strategies as st
from sequences import START_NS, STEP_NS, picture, pose

from lgc_ros.errors import CameraError, CheckpointError, ConfigError, ImageError, LgcError
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import IMAGE_ENCODINGS, depth_from_message, image_from_message
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.profiles import dump_profile, load_profile
from lgc_ros.runtime.safe_yaml import parse_yaml
from lgc_ros.sources import open_source
from lgc_ros.sources.bag_writer import write_bag

MAX_GROWTH_KB = 300_000
SMALL = NetworkConfig(blocks=1, width=8, side=1)

# Replacements for a value in a text file.
wrong_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**18, max_value=10**400),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.fixture(scope="module", autouse=True)
def little_memory():
    """Fails if the tests of this module allocate much memory, whatever a file declares."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MAX_GROWTH_KB


@st.composite
def damages(draw):
    """A function that flips a bit, truncates the data, or overwrites a few bytes."""
    kind = draw(st.sampled_from(["flip", "cut", "overwrite"]))
    place, bit = draw(st.floats(0, 1, exclude_max=True)), draw(st.integers(0, 7))
    junk = draw(st.binary(min_size=1, max_size=12))

    def damage(data: bytes) -> bytes:
        at = int(place * len(data))
        if kind == "cut":
            return data[:at]
        if kind == "overwrite":
            return data[:at] + junk + data[at + len(junk) :]
        return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]

    return damage


def read_or_refused(error, read, *arguments):
    """The result of `read`, or None if it raises this error with a short message."""
    try:
        return read(*arguments)
    except error as refusal:
        message = str(refusal)
    assert 0 < len(message) < 2000
    return None


def places(content, path=()):
    """Paths to all values of nested mappings and lists."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def replaced(content, path, value):
    """A copy with one value replaced."""
    content = copy.deepcopy(content)
    target = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return content


# Models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "tiny.safetensors"
    save_checkpoint(
        path, CorrespondenceNetwork(SMALL), ModelInfo("tiny", "orb", SMALL, ("ratio",))
    )
    return path, path.read_bytes(), load_checkpoint(path)


@given(damage=damages())
def test_a_damaged_model_is_refused_or_loaded_unchanged(model, damage):
    path, data, (network, info) = model
    path.write_bytes(damage(data))
    try:
        loaded, loaded_info = load_checkpoint(path)
    except CheckpointError:
        return
    assert loaded_info == info
    for name, value in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


# Calibrations and settings


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "camera.yaml"
    K = [[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]
    Camera.from_K(K, 640, 480, [-0.3, 0.1, 0, 0]).to_yaml(path)
    return path, path.read_bytes()


def check_camera(path):
    for rectified in (False, True):
        camera = read_or_refused(CameraError, Camera.from_yaml, path, rectified)
        assert camera is None or np.isfinite([*camera.K.ravel(), *camera.D]).all()


@given(damage=damages())
def test_a_damaged_calibration_is_refused_or_finite(calibration, damage):
    path, data = calibration
    path.write_bytes(damage(data))
    check_camera(path)


@given(data=st.data(), value=wrong_values)
def test_a_calibration_with_a_wrong_value_is_refused_or_finite(calibration, data, value):
    path, text = calibration
    content = yaml.safe_load(text)
    place = data.draw(st.sampled_from(list(places(content))))
    path.write_text(yaml.safe_dump(replaced(content, place, value)))
    check_camera(path)


@pytest.mark.parametrize("name", FILES)
@given(data=st.data(), value=wrong_values, damage=damages())
def test_a_damaged_calibration_of_another_program_is_refused_or_finite(
    tmp_path_factory, name, data, value, damage
):
    path = tmp_path_factory.getbasetemp() / "foreign.yaml"
    content = parse_yaml(FILES[name])
    place = data.draw(st.sampled_from(list(places(content))))
    for text in (damage(FILES[name].encode()), yaml.safe_dump(replaced(content, place, value))):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        check_camera(path)


@given(data=st.data(), value=wrong_values)
def test_a_profile_with_a_wrong_value_is_refused_or_finite(tmp_path_factory, data, value):
    content = dump_profile(OdometryOptions())
    place = data.draw(st.sampled_from(list(places(content))))
    path = tmp_path_factory.getbasetemp() / "profile.yaml"
    path.write_text(yaml.safe_dump(replaced(content, place, value)))
    loaded = read_or_refused(ConfigError, load_profile, path)
    settings = dump_profile(loaded) if loaded else {}
    assert all(np.isfinite(v) for v in settings.values() if isinstance(v, int | float))


@given(data=st.data(), value=wrong_values)
def test_a_training_configuration_with_a_wrong_value_is_refused_or_built(
    tmp_path_factory, data, value
):
    from training.config import read_train_config

    content = {
        "name": "tiny",
        "sources": [{"kind": "simulation", "weight": 1.0}],
        "validation": ["dump"],
        "side": ["ratio"],
        "blocks": 2,
        "init": "",
        "learning_rate": 1e-3,
        "loss": "hybrid",
    }
    place = data.draw(st.sampled_from(list(places(content))))
    path = tmp_path_factory.getbasetemp() / "train.yaml"
    path.write_text(yaml.safe_dump(replaced(content, place, value)))
    config = read_or_refused(ConfigError, read_train_config, path)
    assert config is None or np.isfinite(config.learning_rate)


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "aliases": (BOMB + "image_width: *i\nwindow: *i\n", "aliases"),
    "depth": ("window: " + "[" * 50_000, "levels"),
    "size": ("window: 1 #" + "x" * (1 << 20), "larger than"),
    "tag": ("window: !!bool maybe", "cannot be read"),
    "encoding": (b"window: \xff", "UTF-8"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("reader", ["camera", "profile", "training", "euroc"])
def test_hostile_yaml_is_refused_in_one_sentence(tmp_path, name, reader):
    from lgc_ros.sources.euroc import _read_sensor
    from training.settings import read_mapping

    readers = {
        "camera": Camera.from_yaml,
        "profile": load_profile,
        "training": read_mapping,
        "euroc": _read_sensor,
    }
    content, reason = HOSTILE[name]
    path = tmp_path / "file.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LgcError, match=reason) as caught:
        readers[reader](path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


# Bags


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    """A bag of three small images with camera and ground truth, and the bytes of its files."""
    pytest.importorskip("rosbags", reason="rosbags is not installed")
    camera = Camera.from_K([[50.0, 0, 32], [0, 50, 24], [0, 0, 1]], 64, 48)
    frames = [Frame(i, START_NS + i * STEP_NS, picture(i), camera, pose(i)) for i in range(3)]
    folder = tmp_path_factory.mktemp("fuzz") / "bag"
    write_bag(frames, folder, "jpeg")
    return folder, {file.name: file.read_bytes() for file in folder.iterdir()}


def check_bag(path):
    """Frames are read with valid values, or the bag is refused."""

    def read():
        return [(frame.image.dtype, frame.T_wc) for frame in open_source(path)]

    for dtype, T_wc in read_or_refused(LgcError, read) or ():
        assert dtype == np.uint8
        assert T_wc is None or np.isfinite(T_wc).all()


@given(damage=damages())
def test_a_damaged_bag_is_refused_or_read_up_to_the_damage(bag, damage):
    folder, files = bag
    for name, data in files.items():
        (folder / name).write_bytes(damage(data) if name.endswith(".mcap") else data)
    check_bag(folder)
    check_bag(folder / "bag.mcap")


@given(damage=damages())
def test_damaged_bag_metadata_is_refused_or_harmless(bag, damage):
    folder, files = bag
    for name, data in files.items():
        (folder / name).write_bytes(damage(data) if name.endswith(".yaml") else data)
    check_bag(folder)


@given(data=st.data(), value=wrong_values)
def test_bag_metadata_with_a_wrong_value_is_refused_or_harmless(bag, data, value):
    folder, files = bag
    for name, content in files.items():
        (folder / name).write_bytes(content)
    content = yaml.safe_load(files["metadata.yaml"])
    place = data.draw(st.sampled_from(list(places(content))))
    (folder / "metadata.yaml").write_text(yaml.safe_dump(replaced(content, place, value)))
    check_bag(folder)


def test_an_alias_bomb_in_bag_metadata_is_refused(bag):
    folder, files = bag
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "metadata.yaml").write_text(BOMB + "rosbag2_bagfile_information: {version: *i}\n")
    with pytest.raises(LgcError, match="aliases"):
        open_source(folder)


# Messages


@given(
    encoding=st.sampled_from([*IMAGE_ENCODINGS, "16UC1", "32FC1", "", "bgr7"]),
    height=st.integers(0, 2**32 - 1) | st.integers(0, 9),
    width=st.integers(0, 2**32 - 1) | st.integers(0, 9),
    step=st.integers(0, 2**32 - 1) | st.integers(0, 40),
    big_endian=st.booleans(),
    data=st.binary(max_size=300),
)
def test_a_raw_image_message_is_decoded_or_refused(
    encoding, height, width, step, big_endian, data
):
    message = SimpleNamespace(
        encoding=encoding,
        height=height,
        width=width,
        step=step,
        is_bigendian=big_endian,
        data=data,
    )
    for decode in (image_from_message, depth_from_message):
        pixels = read_or_refused(ImageError, decode, message)
        assert pixels is None or pixels.shape[:2] == (height, width)


@given(suffix=st.sampled_from([".jpg", ".png", ".tiff", ".webp"]), damage=damages())
def test_a_compressed_image_message_is_decoded_or_refused(suffix, damage):
    data = damage(cv2.imencode(suffix, picture(1))[1].tobytes())
    message = SimpleNamespace(format="", data=data)
    pixels = read_or_refused(ImageError, image_from_message, message)
    assert pixels is None or pixels.dtype == np.uint8


@pytest.mark.parametrize("side_px", [12_000, 30_000, 40_000])
def test_a_small_file_that_declares_a_huge_image_is_refused(side_px):
    data = bytearray(cv2.imencode(".png", np.zeros((8, 8, 3), np.uint8))[1].tobytes())
    data[16:24] = side_px.to_bytes(4, "big") * 2
    data[29:33] = binascii.crc32(data[12:29]).to_bytes(4, "big")
    with pytest.raises(ImageError):
        image_from_message(SimpleNamespace(format="png", data=bytes(data)))
