"""Truncated MCAP files, read up to their last complete record.

An MCAP file is a chain of records (one byte of type, eight of length) between two magic numbers;
the index at its end is optional. A file truncated by a crash becomes valid when the incomplete
record is replaced by an end without an index; this happens in memory while reading.
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, Literal

MAGIC = b"\x89MCAP0\r\n"
HEADER = struct.Struct("<BQ")
DATA_END, FOOTER = 0x0F, 0x02
# Zeros mean "no checksum" and "no index".
END = HEADER.pack(DATA_END, 4) + bytes(4) + HEADER.pack(FOOTER, 20) + bytes(20) + MAGIC


class SalvagedMcap:
    """The complete records of a file, with the part of the Path interface that rosbags uses."""

    def __init__(self, path: Path):
        self._path = path
        self.suffix = path.suffix
        self.length = _complete_length(path)

    def __str__(self) -> str:
        return str(self._path)

    def exists(self) -> bool:
        return self._path.exists()

    def is_dir(self) -> bool:
        return False

    def open(self, mode: Literal["rb"] = "rb") -> BinaryIO:
        return io.BufferedReader(_Spliced(self._path.open(mode), self.length, END))


def is_cut_off(path: Path) -> bool:
    """Whether a file starts like an MCAP file but does not end like one."""
    with path.open("rb") as file:
        starts = file.read(len(MAGIC)) == MAGIC
        file.seek(max(file.seek(0, os.SEEK_END) - len(MAGIC), 0))
        return starts and file.read() != MAGIC


def _complete_length(path: Path) -> int:
    """Length in bytes up to the first incomplete record, or to the end of the data section."""
    size = path.stat().st_size
    with path.open("rb") as file:
        offset = len(MAGIC)
        while offset + HEADER.size <= size:
            file.seek(offset)
            kind, length = HEADER.unpack(file.read(HEADER.size))
            end = offset + HEADER.size + length
            if kind in (DATA_END, FOOTER) or end > size:
                break
            offset = end
    return offset


class _Spliced(io.RawIOBase):
    """The first `length` bytes of a file, then `tail`."""

    def __init__(self, file: BinaryIO, length: int, tail: bytes):
        self._file, self._length, self._tail = file, length, tail
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}.get(
            whence, self._length + len(self._tail)
        )
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        left = self._length - self._position
        if left > 0:
            self._file.seek(self._position)
            data = self._file.read(min(len(buffer), left))
        else:
            data = self._tail[-left : -left + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
