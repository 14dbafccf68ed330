"""Compressed bags, read without letting a small file fill memory or disk.

A few kilobytes of zstd or lz4 can expand to gigabytes. rosbags expands the chunks of MCAP files,
compressed files and compressed messages without a limit; here each has one.

Import this module where a bag is opened: rosbags is optional.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lz4.frame import LZ4FrameDecompressor
from rosbags.highlevel import AnyReader
from rosbags.interfaces import Connection
from rosbags.rosbag2 import storage_mcap
from rosbags.typesys.store import Typestore

from lgc_ros.errors import SourceError

try:
    from compression import zstd  # from Python 3.14 on
except ImportError:
    from backports import zstd

# Of a chunk or a message; the largest image that is decoded needs 400 MB.
MAX_BYTES = 1 << 29
# Of all chunks that are open at the same time, because their messages overlap in time.
MAX_OPEN_BYTES = 1 << 30
# Of a file compared to the compressed one: images shrink to a third, flat ones to a hundredth.
MAX_FILE_RATIO = 200
# A file of this size may have any ratio.
SMALL_FILE_BYTES = 1 << 28
COPIED_BYTES = 1 << 20


class BagReader(AnyReader):
    """The reader of rosbags, with limits on what compressed data may expand to.

    Args:
        paths: folder with metadata.yaml, or storage files.
        store: message definitions for bags without their own.
        compressed_messages: whether messages are compressed one by one; `paths` must then be
            files, because rosbags expands the messages of a folder itself.
    """

    def __init__(
        self, paths: Sequence[Any], store: Typestore, compressed_messages: bool = False
    ) -> None:
        super().__init__(paths, default_typestore=store)
        self._compressed_messages = compressed_messages
        storage_mcap.DECOMPRESSORS |= {"zstd": _expand_zstd, "lz4": _expand_lz4}

    def open(self) -> None:
        super().open()
        try:
            _check_chunks(self)
        except ValueError:
            self.close()
            raise

    def messages(
        self,
        connections: Collection[Connection] = (),
        start: int | None = None,
        stop: int | None = None,
    ) -> Generator[tuple[Connection, int, bytes], None, None]:
        for connection, recorded_ns, data in super().messages(connections, start, stop):
            yield connection, recorded_ns, self._expanded(data)

    def _expanded(self, data: bytes) -> bytes:
        if not self._compressed_messages:
            return data
        expanded = _expand_zstd(data, MAX_BYTES)
        if len(expanded) > MAX_BYTES:
            raise ValueError(f"a message expands to more than {MAX_BYTES >> 20} MB")
        return expanded


def _check_chunks(reader: AnyReader) -> None:
    """Raise ValueError if the chunks that overlap in time would not fit in memory."""
    changes = []
    for chunk in _indexed_chunks(reader):
        changes.append((chunk.message_start_time, chunk.uncompressed_size))
        changes.append((chunk.message_end_time, -chunk.uncompressed_size))
    open_bytes = 0
    # At equal times, chunks open before others close.
    for _, change in sorted(changes, key=lambda change: (change[0], -change[1])):
        open_bytes += change
        if open_bytes > MAX_OPEN_BYTES:
            raise ValueError(f"it declares {open_bytes >> 20} MB of messages for the same time")


def _indexed_chunks(reader: AnyReader) -> Iterator[Any]:
    for part in reader.readers:
        storage = getattr(part, "storage", part)
        for file in getattr(storage, "storages", [storage]):
            yield from getattr(file, "chunks", ())


def _expand_zstd(data: bytes, size: int) -> bytes:
    """At most `size` bytes, and one more if there are more, which rosbags takes for damage."""
    return zstd.ZstdDecompressor().decompress(data, _allowed(size) + 1)


def _expand_lz4(data: bytes, size: int) -> bytes:
    return LZ4FrameDecompressor().decompress(data, _allowed(size) + 1)


def _allowed(size: int) -> int:
    if size > MAX_BYTES:
        raise ValueError(f"a chunk declares {size >> 20} MB, more than {MAX_BYTES >> 20} MB")
    return size


def expand_files(files: Iterable[Path], folder: Path) -> list[Path]:
    """Expand the compressed files of a bag into a folder.

    Raises:
        SourceError: a file is not zstd, expands too far, or does not fit on the disk.
    """
    return [_expand_file(file, folder / file.stem) for file in files]


def _expand_file(file: Path, target: Path) -> Path:
    limit = max(SMALL_FILE_BYTES, MAX_FILE_RATIO * file.stat().st_size)
    written = 0
    try:
        with zstd.open(file, "rb") as compressed, target.open("wb") as output:
            while part := compressed.read(COPIED_BYTES):
                written += output.write(part)
                if written > limit:
                    raise SourceError(
                        f"{file} expands to more than {limit >> 20} MB, unlike a recording: copy "
                        f"it again; if you trust it, run `zstd -d {file}` and read the result"
                    )
    except (OSError, EOFError, zstd.ZstdError) as error:
        raise SourceError(
            f"{file} cannot be expanded ({error}): copy it again, or set TMPDIR to a folder with "
            "more room"
        ) from error
    return target
