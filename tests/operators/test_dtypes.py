"""What is known of dtypes by name is what torch knows of them."""

from __future__ import annotations

import math

import pytest
import torch

from fxdebug.operators.dtypes import DTYPES, EPS, FLOATS

THEIRS = {str(x).removeprefix("torch."): x for x in vars(torch).values() if isinstance(x, torch.dtype)}
WRONG = {"float8_e5m2fnuz"}  # before torch 2.15, torch.finfo has the eps of another dtype: its numbers are below


def test_every_dtype_is_known() -> None:
    assert set(THEIRS) <= set(DTYPES)


@pytest.mark.parametrize("name", sorted(set(THEIRS) & set(DTYPES)))
def test_a_dtype_is_what_torch_says(name: str) -> None:
    ours, theirs = DTYPES[name], THEIRS[name]
    assert ours.bits == 8 * theirs.itemsize
    if ours.kind in ("float", "complex"):
        known = torch.finfo(theirs)
        assert theirs.is_complex is (ours.kind == "complex")
        assert (ours.max, ours.tiny) == (known.max, known.tiny) and known.bits * (1 + theirs.is_complex) == ours.bits
        assert ours.eps == known.eps or name in WRONG
        assert EPS[name] == ours.eps
    else:
        assert name not in EPS and name not in FLOATS
        if ours.kind in ("integer", "quantized"):
            assert torch.iinfo(theirs).bits == ours.bits
        elif ours.kind == "storage":
            with pytest.raises(TypeError):
                torch.iinfo(theirs)
        else:
            assert (name, ours.kind) == ("bool", "bool")


@pytest.mark.parametrize("name", [name for name, dtype in FLOATS.items() if dtype.bits <= 16 and name in THEIRS])
def test_the_numbers_of_a_narrow_dtype_are_so_far_apart(name: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8) if FLOATS[name].bits == 8 else torch.arange(-(2**15), 2**15).short()
    numbers = sorted(x for x in codes.view(THEIRS[name]).double().tolist() if math.isfinite(x) and x > 0)
    assert numbers[0] == FLOATS[name].least and numbers[-1] == FLOATS[name].max
    assert numbers[numbers.index(1.0) + 1] - 1 == FLOATS[name].eps
    assert numbers[numbers.index(FLOATS[name].tiny) + 1] / FLOATS[name].tiny - 1 == FLOATS[name].eps
    below = numbers[numbers.index(FLOATS[name].tiny) - 1]
    assert FLOATS[name].tiny - below == FLOATS[name].least
