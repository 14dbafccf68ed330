"""Stamps of messages are exact to the nanosecond, also without deserializing the message."""

import struct
from types import SimpleNamespace

import pytest

from lgc_ros.images.stamps import serialized_stamp_ns, stamp_ns


def test_a_stamp_is_exact_to_the_nanosecond():
    assert stamp_ns(SimpleNamespace(sec=1_700_000_000, nanosec=1)) == 1_700_000_000_000_000_001


@pytest.mark.parametrize(("order", "mark"), [("<", 1), (">", 0)])
@pytest.mark.parametrize("sec", [1_700_000_000, -5])
def test_the_stamp_of_a_serialized_message_is_read_in_its_byte_order(order, mark, sec):
    data = bytes([0, mark, 0, 0]) + struct.pack(f"{order}iI", sec, 7) + b"frame"
    assert serialized_stamp_ns(data) == sec * 10**9 + 7


def test_a_message_too_short_for_a_header_has_no_stamp():
    assert serialized_stamp_ns(b"\x00\x01\x00\x00\x01") == 0
