"""Compressed bags read as others do; one that expands without end is refused, and soon."""

import resource
import struct

import pytest
from bag_messages import STORE, camera_topics, write_messages
from sequences import START_NS

from lgc_ros.errors import SourceError
from lgc_ros.sources import open_source
from lgc_ros.sources.mcap_salvage import END, MAGIC

rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="rosbags is not installed")
frame = pytest.importorskip("lz4.frame")
compression = pytest.importorskip("lgc_ros.sources.bag_compression")
zstd = compression.zstd

# Larger than every limit, and than what these tests may allocate.
BOMB_BYTES = 2 << 30
MAX_GROWTH_KB = 200_000
CHUNK, CHUNK_INDEX = 0x06, 0x08


@pytest.fixture(autouse=True)
def little_memory():
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MAX_GROWTH_KB


@pytest.fixture(scope="module")
def bombs():
    """Zeros that expand to BOMB_BYTES, by codec."""
    zeros, blocks = bytes(1 << 20), BOMB_BYTES >> 20
    by_zstd, by_lz4 = zstd.ZstdCompressor(), frame.LZ4FrameCompressor(block_size=7)
    return {
        "zstd": b"".join(by_zstd.compress(zeros) for _ in range(blocks)) + by_zstd.flush(),
        "lz4": by_lz4.begin()
        + b"".join(by_lz4.compress(zeros) for _ in range(blocks))
        + by_lz4.flush(),
    }


def records(data):
    """Opcode and content of all records of an MCAP file."""
    offset = len(MAGIC)
    while offset < len(data) - len(MAGIC):
        opcode, length = struct.unpack_from("<BQ", data, offset)
        yield opcode, data[offset + 9 : offset + 9 + length]
        offset += 9 + length


def record_bytes(opcode, content):
    return struct.pack("<BQ", opcode, len(content)) + content


def with_chunk(data, codec, compressed, declared):
    """The file with this content in place of its first chunk, and without an index."""
    start, end = struct.unpack_from("<QQ", next(c for o, c in records(data) if o == CHUNK))
    head = struct.pack("<QQQII", start, end, declared, 0, len(codec)) + codec.encode()
    chunk = head + struct.pack("<Q", len(compressed)) + compressed
    header = next(record_bytes(o, c) for o, c in records(data))
    return MAGIC + header + record_bytes(CHUNK, chunk) + END


@pytest.mark.parametrize(
    ("storage", "mode"),
    [
        ("MCAP", "FILE"),
        ("MCAP", "MESSAGE"),
        ("MCAP", "STORAGE"),
        ("SQLITE3", "FILE"),
        ("SQLITE3", "MESSAGE"),
    ],
)
def test_compressed_bags_are_read_as_others(tmp_path, camera, levels, storage, mode):
    write_messages(tmp_path / "bag", camera_topics(camera), storage, mode)
    assert levels(open_source(tmp_path / "bag")) == list(range(6))


def test_a_plain_copy_beside_a_compressed_file_is_ignored(tmp_path, camera, levels):
    bag = tmp_path / "bag"
    write_messages(bag, camera_topics(camera), compression="FILE")
    (bag / "bag.mcap").write_bytes(zstd.decompress((bag / "bag.mcap.zstd").read_bytes()))
    assert levels(open_source(bag)) == levels(open_source(bag / "bag.mcap")) == list(range(6))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("declared", [1000, BOMB_BYTES])
def test_a_chunk_that_expands_without_end_is_refused(record, camera, bombs, codec, declared):
    file = record(camera_topics(camera)) / "bag.mcap"
    file.write_bytes(with_chunk(file.read_bytes(), codec, bombs[codec], declared))
    with pytest.raises(SourceError, match=r"not a readable bag \(.*(mismatch|declares 2048 MB)"):
        open_source(file)


def test_chunks_that_together_fill_the_memory_are_refused(record, camera):
    file = record(camera_topics(camera)) / "bag.mcap"
    data = file.read_bytes()
    index = next(record_bytes(o, c) for o, c in records(data) if o == CHUNK_INDEX)
    # The declared size is the last field.
    large = index[:-8] + struct.pack("<Q", compression.MAX_BYTES)
    file.write_bytes(data.replace(index, 3 * large))
    with pytest.raises(SourceError, match="declares 1536 MB of messages for the same time"):
        open_source(file)


def test_a_file_that_expands_without_end_is_refused(tmp_path, camera, bombs, monkeypatch):
    monkeypatch.setattr(compression, "SMALL_FILE_BYTES", 1 << 26)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    write_messages(tmp_path / "bag", camera_topics(camera), "SQLITE3", "FILE")
    (tmp_path / "bag" / "bag.db3.zstd").write_bytes(bombs["zstd"])
    with pytest.raises(SourceError, match=r"bag\.db3\.zstd expands to more than 64 MB"):
        open_source(tmp_path / "bag")
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]


def test_a_message_that_expands_without_end_is_refused(tmp_path, camera, bombs, monkeypatch):
    monkeypatch.setattr(compression, "MAX_BYTES", 1 << 20)
    kind = "sensor_msgs/msg/Image"
    with rosbag2.Writer(tmp_path / "bag", version=9) as writer:
        connection = writer.add_connection("/cam/image", kind, typestore=STORE)
        writer.write(connection, START_NS, bombs["zstd"])
    file = tmp_path / "bag" / "metadata.yaml"
    text = file.read_text().replace("compression_mode: ''", "compression_mode: MESSAGE")
    file.write_text(text.replace("compression_format: ''", "compression_format: zstd"))
    with pytest.raises(SourceError, match="a message expands to more than 1 MB"):
        list(open_source(tmp_path / "bag", camera))
