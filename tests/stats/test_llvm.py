"""The loops that llvmlite makes, held against every code of 16 bits and against float64; and doing without them."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fxdebug.stats import cpu_sums, llvm, llvm_checksum, llvm_sums

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def compiled(dtype: torch.dtype) -> llvm_sums.SumsCode:
    sums = llvm_sums.compile_sums(dtype)
    assert sums is not None
    return sums


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_number_of_16_bits_is_read_as_what_it_is(dtype):
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    run, start = compiled(dtype), numbers.data_ptr()
    for place, number in enumerate(numbers.tolist()):
        total, squares, low, high, zeros = run(start + 2 * place, 1)
        if number != number:
            assert all(math.isnan(found) for found in (total, squares)) and (low != low or high != high), place
        else:
            assert (total, squares, low, high, zeros) == (number, number * number, number, number, number == 0), place
            assert math.copysign(1, low) == math.copysign(1, high) == math.copysign(1, number), place


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64, 65, 95, 1000, 4099])
def test_sums_and_extremes_are_those_of_all_elements_and_of_no_more(dtype, count):
    r = torch.Generator().manual_seed(count)
    kinds = (
        torch.randn(count + 8, generator=r),
        torch.rand(count + 8, generator=r) + 1,
        -torch.rand(count + 8, generator=r),
    )
    for kind in kinds:
        numbers = kind.to(dtype)
        numbers[count:] = math.nan  # what lies behind is not read
        numbers[count // 2] = 0.0
        numbers[count // 3] = -0.0
        wide = numbers[:count].double()
        total, squares, low, high, zeros = compiled(dtype)(numbers.data_ptr(), count)
        assert (low, high, zeros) == (float(wide.min()), float(wide.max()), int((wide == 0).sum()))
        assert total == pytest.approx(math.fsum(wide.tolist()), rel=1e-12, abs=1e-12)
        assert squares == pytest.approx(math.fsum((wide * wide).tolist()), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("place", [0, 31, 32, 70])
def test_an_element_that_is_not_finite_shows_in_the_extremes_wherever_it_is(dtype, place):
    for number in (math.nan, math.inf, -math.inf):
        numbers = torch.ones(71, dtype=dtype)
        numbers[place] = number
        _, _, low, high, _ = compiled(dtype)(numbers.data_ptr(), 71)
        assert (low != low or high != high) if number != number else (number in (low, high))


def test_an_address_that_is_not_aligned_is_read_too():
    data = torch.zeros(4 * 100 + 1, dtype=torch.uint8)
    data[1:] = torch.arange(100).float().view(torch.uint8)
    assert compiled(torch.float32)(data.data_ptr() + 1, 100) == (4950.0, 328350.0, 0.0, 99.0, 1)


def test_several_threads_may_run_a_compiled_loop_at_the_same_time():
    tensors = [torch.full((50_000,), float(number)) for number in range(8)]
    run = compiled(torch.float32)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: run(x.data_ptr(), len(x)), tensors * 5))
    assert [total for total, *_ in found] == [50_000.0 * number for number in range(8)] * 5


def test_other_dtypes_have_no_compiled_loop():
    assert [llvm_sums.compile_sums(dtype) for dtype in (torch.int32, torch.complex64, torch.float8_e5m2)] == [None] * 3


def cannot(engine: llvm.Engine, program: str) -> None:
    raise RuntimeError("no target for this processor")


CACHED = (
    cpu_sums.compiled_sums_of,
    cpu_sums.compiled_checksum_of,
    llvm_sums.compile_sums,
    llvm_checksum.compile_checksum,
)


@pytest.mark.parametrize("why", ["not installed", "no code for this processor"])
def test_without_llvmlite_statistics_are_taken_in_four_passes_and_checksums_in_two(why, monkeypatch):
    before = cpu_sums.sums_of(torch.arange(100.0))
    for cached in CACHED:
        cached.cache_clear()
    with monkeypatch.context() as patched:
        if why == "not installed":
            patched.setitem(sys.modules, "llvmlite", None)
        else:
            patched.setattr(llvm.Engine, "__init__", cannot)
        assert cpu_sums.compiled_sums_of(torch.float32) is None and cpu_sums.compiled_checksum_of(torch.float32) is None
        assert cpu_sums.sums_of(torch.arange(100.0)) == before
    for cached in CACHED:
        cached.cache_clear()
    assert (
        cpu_sums.compiled_sums_of(torch.float32) is not None
        and cpu_sums.compiled_checksum_of(torch.float32) is not None
    )
