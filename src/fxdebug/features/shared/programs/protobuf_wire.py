"""Messages of protobuf as bytes: graphs of 100,000 nodes are written in seconds, which is too many for its objects.

The format: protobuf.dev, "Encoding". A field is its number and kind, then a number, or a length and that many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable


def varint(number: int) -> bytes:
    """Return a whole number from 0 in groups of seven bits, the lowest first.

    >>> varint(1), varint(300)
    (b'\\x01', b'\\xac\\x02')
    """
    if number < 128:
        return _SHORT[number]
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_SHORT = [bytes([number]) for number in range(128)]


def data(field: int, content: bytes) -> bytes:
    """Return a field of bytes, or of a message.

    >>> data(2, b"ab")
    b'\\x12\\x02ab'
    """
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Return a field of text.

    >>> text(1, "é")
    b'\\n\\x02\\xc3\\xa9'
    """
    return data(field, content.encode("utf-8", "replace"))


def texts(field: int, contents: Iterable[str]) -> bytes:
    """Return a repeated field of texts."""
    return b"".join([text(field, content) for content in contents])


def number(field: int, content: int) -> bytes:
    """Return a field of a whole number; a negative one is written as 64 bits.

    >>> number(2, 300), number(1, -1) == b"\\x08" + 9 * b"\\xff" + b"\\x01"
    (b'\\x10\\xac\\x02', True)
    """
    return varint(field << 3) + varint(content & 0xFFFFFFFFFFFFFFFF)


def double(field: int, content: float) -> bytes:
    """Return a field of a number in float64.

    >>> double(1, 1.0)
    b'\\t\\x00\\x00\\x00\\x00\\x00\\x00\\xf0?'
    """
    return varint(field << 3 | 1) + struct.pack("<d", content)


def fixed(field: int, content: int) -> bytes:
    """Return a field of a whole number from 0 that always takes 64 bits.

    >>> fixed(1, 258)
    b'\\t\\x02\\x01\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    return varint(field << 3 | 1) + struct.pack("<Q", content)
