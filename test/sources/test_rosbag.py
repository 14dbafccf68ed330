"""rosbag2: both storages, raw and compressed images, topics by type, ground truth, damage."""

from functools import partial

import cv2
import numpy as np
import pytest
from sequences import START_NS, STEP_NS, picture, pose
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import CameraError, ConfigError, SourceError
from lgc_ros.images.frame import Frame
from lgc_ros.sources import open_source
from lgc_ros.sources.bag_poses import read_poses
from lgc_ros.sources.bag_writer import write_bag
from lgc_ros.sources.synthetic import default_camera

rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="rosbags is not installed")
typesys = pytest.importorskip("rosbags.typesys")
STORE = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)
STORAGES = ["MCAP", "SQLITE3"]


def make(kind, *fields, **named):
    return STORE.types[kind](*fields, **named)


def header(stamp_ns, frame_id="camera"):
    stamp = make("builtin_interfaces/msg/Time", *divmod(stamp_ns, 10**9))
    return make("std_msgs/msg/Header", stamp, frame_id)


def image_message(image, encoding="bgr8", stamp_ns=START_NS, frame_id="camera"):
    rows = image.reshape(len(image), -1).view(np.uint8)
    return make(
        "sensor_msgs/msg/Image",
        header=header(stamp_ns, frame_id),
        height=image.shape[0],
        width=image.shape[1],
        encoding=encoding,
        is_bigendian=0,
        step=rows.shape[1],
        data=rows.ravel(),
    )


def compressed_message(image, stamp_ns=START_NS):
    data = cv2.imencode(".jpg", image)[1].ravel()
    return make("sensor_msgs/msg/CompressedImage", header(stamp_ns), "jpeg", data)


def info_message(camera, P_focal=None):
    P = np.column_stack([camera.K, np.zeros(3)])
    if P_focal:
        P[0, 0] = P[1, 1] = P_focal
    return make(
        "sensor_msgs/msg/CameraInfo",
        header=header(START_NS),
        height=camera.height,
        width=camera.width,
        distortion_model="plumb_bob",
        d=np.append(camera.D, 0.0),
        k=camera.K.ravel(),
        r=np.eye(3).ravel(),
        p=P.ravel(),
        binning_x=0,
        binning_y=0,
        roi=make("sensor_msgs/msg/RegionOfInterest", 0, 0, 0, 0, False),
    )


def geometry(T, vector="Point"):
    w, x, y, z = mat2quat(T[:3, :3])
    return (
        make(f"geometry_msgs/msg/{vector}", *T[:3, 3]),
        make("geometry_msgs/msg/Quaternion", x, y, z, w),
    )


def pose_message(kind, T, stamp_ns=START_NS, child="camera"):
    top = header(stamp_ns, "world")
    if kind == "geometry_msgs/msg/TransformStamped":
        transform = make("geometry_msgs/msg/Transform", *geometry(T, "Vector3"))
        return make(kind, top, child, transform)
    pose = make("geometry_msgs/msg/Pose", *geometry(T))
    if kind == "geometry_msgs/msg/PoseStamped":
        return make(kind, top, pose)
    pose = make("geometry_msgs/msg/PoseWithCovariance", pose, np.zeros(36))
    if kind == "geometry_msgs/msg/PoseWithCovarianceStamped":
        return make(kind, top, pose)
    zero = make("geometry_msgs/msg/Vector3", 0.0, 0.0, 0.0)
    twist = make("geometry_msgs/msg/Twist", zero, zero)
    twist = make("geometry_msgs/msg/TwistWithCovariance", twist, np.zeros(36))
    return make(kind, top, child, pose, twist)


@pytest.fixture
def record(tmp_path):
    """Writes (topic, time of recording, message) as a bag and returns its folder."""

    def record(messages, storage="MCAP", name="bag"):
        plugin = getattr(rosbag2.StoragePlugin, storage)
        with rosbag2.Writer(tmp_path / name, version=9, storage_plugin=plugin) as writer:
            connections = {}
            for topic, time_ns, message in messages:
                kind = message.__msgtype__
                if topic not in connections:
                    connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
                writer.write(connections[topic], time_ns, STORE.serialize_cdr(message, kind))
        return tmp_path / name

    return record


def camera_topics(camera, count=6, image="/cam/image_raw", info="/cam/camera_info"):
    messages = [(info, START_NS, info_message(camera))] if info else []
    for i in range(count):
        stamp_ns = START_NS + i * STEP_NS
        make_message = compressed_message if image.endswith("/compressed") else image_message
        # Recorded 20 ms late: the header tells when it was taken.
        message = make_message(picture(i), stamp_ns=stamp_ns)
        messages.append((image, stamp_ns + 20_000_000, message))
    return messages


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("topic", ["/cam/image_raw", "/cam/image_raw/compressed"])
def test_images_and_camera_are_found_by_type(record, camera, levels, storage, topic):
    bag = record(camera_topics(camera, image=topic), storage)
    files = [path for path in bag.iterdir() if path.suffix in (".mcap", ".db3")]
    for path in (bag, *files):
        source = open_source(path)
        assert (source.name, len(source), levels(source)) == ("bag", 6, list(range(6)))
        assert [frame.stamp_ns for frame in source] == [START_NS + i * STEP_NS for i in range(6)]
        np.testing.assert_allclose(source.camera.K, camera.K)
        np.testing.assert_allclose(source.camera.D[:4], camera.D)
    assert levels(open_source(bag, every=2, limit=2)) == [0, 2]


def test_raw_images_are_preferred_to_the_same_ones_compressed(record, camera):
    compressed = camera_topics(camera, image="/cam/image_raw/compressed", info=None)
    source = open_source(record(camera_topics(camera) + compressed))
    assert next(iter(source)).name == f"/cam/image_raw {START_NS}"


def test_depth_is_not_taken_for_an_image(record, camera, levels):
    depth = image_message(np.full((48, 64), 900, np.uint16), "16UC1")
    bag = record([("/cam/depth", START_NS, depth), *camera_topics(camera)])
    assert levels(open_source(bag)) == list(range(6))


def test_several_cameras_are_listed(record, camera, levels):
    right = camera_topics(camera, 3, "/right/image", "/right/camera_info")
    bag = record(camera_topics(camera) + right)
    with pytest.raises(SourceError, match=r"--image-topic one of /cam/image_raw, /right/image$"):
        open_source(bag)
    assert levels(open_source(bag, image_topic="/right/image")) == [0, 1, 2]


def test_wrong_topics_are_answered_with_the_right_ones(record, camera):
    bag = record(camera_topics(camera))
    listing = r"/cam/camera_info \(sensor_msgs/msg/CameraInfo\), /cam/image_raw \(sensor_msgs"
    with pytest.raises(SourceError, match=rf"topic /image does not exist; the bag has {listing}"):
        open_source(bag, image_topic="/image")
    with pytest.raises(SourceError, match=r"is sensor_msgs/msg/CameraInfo, not sensor_msgs/msg/I"):
        open_source(bag, image_topic="/cam/camera_info")
    with pytest.raises(SourceError, match=r"topic /info does not exist; the bag has /cam"):
        open_source(bag, camera_info_topic="/info")
    with pytest.raises(SourceError, match=r"topic /gt does not exist; the bag has /cam"):
        open_source(bag, gt="/gt")
    with pytest.raises(SourceError, match=r"gt\.txt is neither a file nor a topic of"):
        open_source(bag, gt="gt.txt")
    bag = record(camera_topics(camera, count=0), name="blind")
    with pytest.raises(SourceError, match=r"has no images .*only /cam/camera_info"):
        open_source(bag)


def test_a_missing_camera_is_asked_for(record, camera):
    bag = record(camera_topics(camera, info=None))
    with pytest.raises(CameraError, match=r"nor any other .*give the camera with --camera CAM"):
        open_source(bag)
    assert open_source(bag, camera).camera is camera
    others = [(f"/{side}/camera_info", START_NS, info_message(camera)) for side in "rl"]
    bag = record(camera_topics(camera, info=None) + others, name="stereo")
    with pytest.raises(CameraError, match=r"only /l/camera_info, /r/camera_info; choose one with"):
        open_source(bag)


def test_an_image_topic_on_which_nothing_was_recorded_is_said_to_be_empty(tmp_path, camera):
    plugin = rosbag2.StoragePlugin.MCAP
    with rosbag2.Writer(tmp_path / "bag", version=9, storage_plugin=plugin) as writer:
        writer.add_connection("/cam/image_raw", "sensor_msgs/msg/Image", typestore=STORE)
    for topic in (None, "/cam/image_raw"):
        with pytest.raises(SourceError, match=r"/cam/image_raw is empty"):
            open_source(tmp_path / "bag", camera, image_topic=topic)


@pytest.mark.parametrize("truth", ["/ground_truth", "/robot/ground_truth/state", "/mocap"])
def test_truth_is_not_taken_for_wheel_odometry(record, camera, tmp_path, caplog, truth):
    caplog.set_level("INFO")
    (tmp_path / "gt.txt").write_text(f"{START_NS / 1e9:.9f} 0 0 0 0 0 0 1\n")
    kind = "nav_msgs/msg/Odometry"
    poses = [(truth, START_NS, pose_message(kind, pose(9)))]
    gt = "/mocap" if truth == "/mocap" else tmp_path / "gt.txt"
    with pytest.raises(SourceError, match="has 0 topics with wheel odometry"):
        open_source(record(camera_topics(camera) + poses), gt=gt, odom_topic="auto")
    poses.append(("/odom", START_NS, pose_message(kind, pose(2))))
    bag = record(camera_topics(camera) + poses, name="both")
    frame = next(iter(open_source(bag, gt=gt, odom_topic="auto")))
    np.testing.assert_allclose(frame.T_oc, pose(2), atol=1e-9)
    assert "images from /cam/image_raw, camera from /cam/camera_info" in caplog.text
    assert f"wheel odometry from /odom, ground truth from {gt}" in caplog.text


def test_a_bag_that_is_not_there_is_said_not_to_be():
    for read in (partial(open_source, kind="rosbag"), partial(read_poses, topic="/odom")):
        with pytest.raises(SourceError, match=r"there is no nowhere\.mcap; check the path"):
            read("nowhere.mcap")


def test_the_only_camera_info_serves_wherever_it_is(record, camera):
    bag = record(camera_topics(camera, info="/driver/calibration"))
    np.testing.assert_allclose(open_source(bag).camera.K, camera.K)


def test_rectified_images_take_the_projection_matrix(record, camera):
    info = ("/cam/camera_info", START_NS, info_message(camera, P_focal=33.0))
    images = camera_topics(camera, image="/cam/image_rect", info=None)
    bag = record([info, *images])
    assert open_source(bag).camera.focal == 33
    assert not open_source(bag).camera.has_distortion
    assert open_source(bag, rectified=False).camera.has_distortion


@pytest.mark.parametrize(
    "kind",
    [
        "geometry_msgs/msg/PoseStamped",
        "geometry_msgs/msg/PoseWithCovarianceStamped",
        "geometry_msgs/msg/TransformStamped",
        "nav_msgs/msg/Odometry",
    ],
)
def test_truth_may_be_any_pose_topic(record, camera, kind):
    truth = []
    for i in np.arange(0, 5.5, 0.5):
        stamp_ns = START_NS + round(i * STEP_NS)
        truth.append(("/mocap", stamp_ns, pose_message(kind, pose(i), stamp_ns)))
    bag = record(camera_topics(camera) + truth)
    assert all(frame.T_wc is None for frame in open_source(bag))
    for frame in open_source(bag, gt="/mocap"):
        np.testing.assert_allclose(frame.T_wc, pose(frame.index), atol=1e-9)


def test_truth_may_be_a_file_and_of_another_body(record, camera, tmp_path):
    bag = record(camera_topics(camera))
    T_bc = pose(4)
    lines = []
    for i in range(6):
        T_wb = pose(i) @ np.linalg.inv(T_bc)
        w, x, y, z = mat2quat(T_wb[:3, :3])
        stamp_ns = START_NS + i * STEP_NS
        numbers = " ".join(f"{n:.12f}" for n in (*T_wb[:3, 3], x, y, z, w))
        lines.append(f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d} {numbers}\n")
    (tmp_path / "gt.txt").write_text("".join(lines))
    for frame in open_source(bag, gt=tmp_path / "gt.txt", T_bc=T_bc):
        np.testing.assert_allclose(frame.T_wc, pose(frame.index), atol=1e-9)
    with pytest.raises(ConfigError, match=r"T_bc must be a 4x4 matrix, .* \(3,\)"):
        open_source(bag, T_bc=[1, 2, 3])


def test_static_transforms_take_the_body_to_the_camera(record, camera, caplog):
    kind = "nav_msgs/msg/Odometry"
    T_base_mast, T_mast_camera = pose(2), pose(5)
    transforms = [
        make(
            "geometry_msgs/msg/TransformStamped",
            header(START_NS, parent),
            child,
            make("geometry_msgs/msg/Transform", *geometry(T, "Vector3")),
        )
        for parent, child, T in (
            ("base_link", "mast", T_base_mast),
            ("mast", "camera", T_mast_camera),
        )
    ]
    tf_static = ("/tf_static", START_NS, make("tf2_msgs/msg/TFMessage", transforms))
    stamps_ns = [START_NS + i * STEP_NS for i in range(6)]
    odometry = [
        ("/odom", stamp_ns, pose_message(kind, pose(i), stamp_ns, "base_link"))
        for i, stamp_ns in enumerate(stamps_ns)
    ]
    bag = record([tf_static, *camera_topics(camera), *odometry])
    for frame in open_source(bag, gt="/odom"):
        expected = pose(frame.index) @ T_base_mast @ T_mast_camera
        np.testing.assert_allclose(frame.T_wc, expected, atol=1e-9)
    assert not caplog.records
    bag = record([*camera_topics(camera), *odometry], name="loose")
    np.testing.assert_allclose(list(open_source(bag, gt="/odom"))[3].T_wc, pose(3), atol=1e-9)
    assert "ground truth has frame 'base_link', images have frame 'camera'" in caplog.text


def test_a_message_without_stamp_gets_the_time_of_recording(record, camera):
    bag = record([("/cam/image", START_NS + 5, image_message(picture(1), stamp_ns=0))])
    assert next(iter(open_source(bag, camera))).stamp_ns == START_NS + 5


def test_a_damaged_message_is_reported_and_skipped(record, camera, levels):
    messages = camera_topics(camera)
    broken = image_message(picture(2)[:20], stamp_ns=START_NS + 2 * STEP_NS)
    broken.height = 48  # more than the data
    messages[3] = ("/cam/image_raw", START_NS + 2 * STEP_NS, broken)
    unknown = image_message(picture(4), "rgb565", START_NS + 4 * STEP_NS)
    messages[5] = ("/cam/image_raw", START_NS + 4 * STEP_NS + 20_000_000, unknown)
    source = open_source(record(messages))
    assert levels(source) == [0, 1, 3, 5]
    assert len(source) == 6
    assert "step 192 and brings 3840 bytes" in source.errors[0]
    assert "'rgb565' is not supported" in source.errors[1]


@pytest.fixture
def large(record, camera):
    """A bag of several megabytes, so that losing some leaves some."""
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)

    def large(storage):
        info = ("/cam/camera_info", START_NS, info_message(camera))
        images = []
        for i in range(6):
            noise[0, 0] = i
            stamp_ns = START_NS + i * STEP_NS
            images.append(("/cam/image", stamp_ns, image_message(noise.copy(), stamp_ns=stamp_ns)))
        return record([info, *images], storage, f"large_{storage}".lower())

    return large


@pytest.fixture
def vga():
    return default_camera()


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_what_is_complete_of_a_cut_off_mcap_is_read(large, vga, whole, caplog):
    bag = large("MCAP")
    file = bag / f"{bag.name}.mcap"
    size = file.stat().st_size
    with file.open("r+b") as cut:
        cut.truncate(size // 2)
    source = open_source(bag if whole else file, vga)
    frames = list(source)
    assert 2 <= len(frames) == len(source) < 6
    assert [int(frame.image[0, 0, 0]) for frame in frames] == list(range(len(frames)))
    assert caplog.text.count("the recording was cut off") == 1
    with file.open("r+b") as cut:
        cut.truncate(50)
    with pytest.raises(SourceError, match=r"large_mcap.*no message was recorded before"):
        open_source(file, vga)


def test_a_folder_that_lost_its_metadata_is_read(large, vga):
    bag = large("MCAP")
    (bag / "metadata.yaml").unlink()
    assert len(list(open_source(bag, vga))) == 6


def test_a_bag_damaged_in_the_middle_gives_what_is_left_and_says_so(large, vga):
    bag = large("MCAP")
    with (bag / f"{bag.name}.mcap").open("r+b") as file:
        file.seek(2_500_000)
        file.write(bytes(1_500_000))
    source = open_source(bag, vga)
    frames = list(source)
    assert 0 < len(frames) < 6
    assert len(source.errors) == 1
    assert "large_mcap" in source.errors[0]


def test_a_cut_off_database_is_to_be_repaired(large, vga):
    bag = large("SQLITE3")
    file = bag / f"{bag.name}.db3"
    with file.open("r+b") as cut:
        cut.truncate(file.stat().st_size // 2)
    with pytest.raises(SourceError, match=r"not a readable bag .*malformed.*sqlite3 .* reindex"):
        open_source(bag, vga)


def test_a_folder_of_bags_is_not_one_bag(large, vga, tmp_path):
    bag = large("MCAP")
    (tmp_path / "bags").mkdir()
    file = bag / f"{bag.name}.mcap"
    (tmp_path / "bags" / "walk_0.mcap").write_bytes(file.read_bytes())
    (tmp_path / "bags" / "run_0.mcap").write_bytes(file.read_bytes())
    with pytest.raises(SourceError, match=r"several bags: give one of run_0\.mcap, walk_0\.mcap"):
        open_source(tmp_path / "bags", vga)


@pytest.mark.parametrize("name", ["empty.mcap", "empty.db3"])
def test_what_is_no_bag_is_refused(tmp_path, name):
    for content in (b"", b"something else"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=rf"{name} is not a readable bag"):
            open_source(tmp_path / name)


def test_bags_of_ros_1_are_to_be_converted(tmp_path):
    (tmp_path / "old.bag").write_bytes(b"#ROSBAG V2.0\n")
    with pytest.raises(SourceError, match=r"ROS 1 bag: convert it with `rosbags-convert --src"):
        open_source(tmp_path / "old.bag")


@pytest.mark.parametrize("compression", [None, "png", "jpeg"])
def test_a_written_bag_reads_as_it_was(tmp_path, frames, camera, compression, levels):
    gray = Frame(10, frames[9].stamp_ns + STEP_NS, picture(10)[..., 0], camera, pose(10))
    frames.append(gray)
    write_bag(frames, tmp_path / "out", compression)
    source = open_source(tmp_path / "out")
    np.testing.assert_array_equal(source.camera.K, camera.K)
    np.testing.assert_array_equal(source.camera.D, camera.D)
    for read, written in zip(source, frames, strict=True):
        assert read.stamp_ns == written.stamp_ns
        np.testing.assert_allclose(read.T_wc, written.T_wc, atol=1e-12)
        assert read.image.shape == written.image.shape
        difference = np.abs(read.image.astype(int) - written.image)
        assert np.median(difference) <= (2 if compression == "jpeg" else 0)


def test_a_written_bag_has_the_topics_of_a_camera(tmp_path, frames):
    write_bag(frames, tmp_path / "out", "jpeg")
    with rosbag2.Reader(tmp_path / "out") as reader:
        topics = {connection.topic: connection for connection in reader.connections}
        assert {topic: c.msgtype for topic, c in topics.items()} == {
            "/camera/camera_info": "sensor_msgs/msg/CameraInfo",
            "/camera/image_raw/compressed": "sensor_msgs/msg/CompressedImage",
            "/ground_truth": "geometry_msgs/msg/PoseStamped",
        }
        for connection, time_ns, data in reader.messages():
            message = STORE.deserialize_cdr(data, connection.msgtype)
            stamp = message.header.stamp
            assert stamp.sec * 10**9 + stamp.nanosec == time_ns
        assert connection.msgcount == 10


def test_writing_a_bag_refuses_what_would_surprise(tmp_path, frames):
    with pytest.raises(SourceError, match="already exists"):
        write_bag(frames, tmp_path)
    with pytest.raises(SourceError, match=r"a bag is a folder with its \.mcap file in it"):
        write_bag(frames, tmp_path / "out.mcap")
    with pytest.raises(ConfigError, match="unknown compression 'gif'; known are jpeg, png"):
        write_bag(frames, tmp_path / "out", "gif")
    assert not (tmp_path / "out").exists()
