"""All faults and equal pairs: importing this module collects them."""

from __future__ import annotations

from . import (
    equal_families,
    equal_pairs,
    in_families,
    in_images,
    in_pairs,
    in_ports_families,
    in_ports_flat,
    in_ports_images,
    in_ports_pairs,
    in_ports_rotary,
    in_ports_text,
    in_real,
    in_rotary,
    in_text,
)
from .case import EQUAL, FAULTS

__all__ = ["EQUAL", "FAULTS"]

assert all((equal_pairs, in_pairs, in_ports_pairs, in_ports_rotary, in_ports_text, in_real, in_rotary, in_text))
assert all((equal_families, in_families, in_images, in_ports_families, in_ports_flat, in_ports_images))
