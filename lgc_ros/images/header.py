"""Image size as declared in the header of an encoded image, read without decoding it.

A decoder allocates memory for the declared size before it reads any pixels. OpenCV allows 2**30
pixels by default and reads its limit (OPENCV_IO_MAX_IMAGE_PIXELS) only once, when cv2 is imported,
so `encoding` compares this size with the limit before it decodes.
"""

from __future__ import annotations

import re
import struct

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
JPEG_SIGNATURE = b"\xff\xd8"
# Start-of-frame markers, which hold the size: 0xC0 to 0xCF without DHT, JPG and DAC.
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers without a segment: TEM, RST0 to RST7, SOI, EOI.
JPEG_STANDALONE = frozenset({0x01, *range(0xD0, 0xDA)})
JPEG_SCAN = 0xDA
TIFF_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
TIFF_WIDTH, TIFF_HEIGHT = 256, 257
# TIFF field types of unsigned integers and their struct formats.
TIFF_INTEGERS = {1: "B", 3: "H", 4: "I"}


def declared_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels that a PNG, JPEG, WebP, TIFF, BMP or PNM header declares.

    Returns None for other formats and for headers that are cut off.
    """
    try:
        if data.startswith(PNG_SIGNATURE):
            return struct.unpack_from(">II", data, 16)
        if data.startswith(JPEG_SIGNATURE):
            return _jpeg_size(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp_size(data)
        if data[:4] in TIFF_BYTE_ORDERS:
            return _tiff_size(data)
        if data.startswith(b"BM"):
            return _bmp_size(data)
        return _pnm_size(data)
    except (struct.error, IndexError):
        return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """The largest size of all frame headers before the first scan."""
    sizes = []
    offset = len(JPEG_SIGNATURE)
    while (offset := data.find(b"\xff", offset)) >= 0:
        marker = data[offset + 1]
        if marker == JPEG_SCAN:
            break
        if marker in (0x00, 0xFF) or marker in JPEG_STANDALONE:
            offset += 1
            continue
        if marker in JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, offset + 5)
            sizes.append((width, height))
        offset += 2 + struct.unpack_from(">H", data, offset + 2)[0]
    return max(sizes, key=lambda size: size[0] * size[1], default=None)


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 ":  # lossy
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":  # lossless
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":  # extended
        width, height = data[24:27], data[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    return None


def _tiff_size(data: bytes) -> tuple[int, int] | None:
    """The size in the first directory of a TIFF file."""
    order = TIFF_BYTE_ORDERS[data[:4]]
    offset = struct.unpack_from(f"{order}I", data, 4)[0]
    entries = struct.unpack_from(f"{order}H", data, offset)[0]
    sides = {}
    for entry in range(offset + 2, offset + 2 + 12 * entries, 12):
        tag, kind = struct.unpack_from(f"{order}HH", data, entry)
        if tag in (TIFF_WIDTH, TIFF_HEIGHT) and kind in TIFF_INTEGERS:
            sides[tag] = struct.unpack_from(f"{order}{TIFF_INTEGERS[kind]}", data, entry + 8)[0]
    return (sides[TIFF_WIDTH], sides[TIFF_HEIGHT]) if len(sides) == 2 else None


def _bmp_size(data: bytes) -> tuple[int, int]:
    header_bytes = struct.unpack_from("<I", data, 14)[0]
    # Height is negative where rows are stored top to bottom.
    width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<ii", data, 18)
    return abs(width), abs(height)


def _pnm_size(data: bytes) -> tuple[int, int] | None:
    """PBM, PGM and PPM: two decimal numbers after the magic, with optional `#` comments."""
    space = rb"(?:\s|#[^\n]*\n)+"
    found = re.match(rb"P[1-6]" + space + rb"(\d{1,10})" + space + rb"(\d{1,10})", data[:4096])
    return (int(found[1]), int(found[2])) if found else None
