"""Two sums of a tensor's memory in one pass, by machine code that llvmlite makes (the extra ``fast``).

They tell whether data changed: the sum of the elements, and of their codes as whole numbers. The program is
written as for :mod:`fxdebug.stats.llvm_sums`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

from fxdebug.stats.llvm import Engine
from fxdebug.stats.llvm_sums import KINDS, LANES, LOOSE, Kind, many

Marking = Callable[[int, int], bytes]
_Found = ctypes.c_int64 * 2


@functools.cache
def marking(dtype: torch.dtype) -> Marking | None:
    """Both sums, as sixteen bytes, of so many elements from an address on; ``None`` for dtypes without code.

    As bytes: a NaN is then equal to itself. Raises what :func:`~fxdebug.stats.llvm_sums.loop` raises.

    >>> x = torch.tensor([1.0, 2.0])
    >>> marking(x.dtype)(x.data_ptr(), 2) == marking(x.dtype)(x.data_ptr(), 2)
    True
    """
    kind = KINDS.get(dtype)
    if kind is None:
        return None
    code = Engine(_program(kind)).code("mark", _Found)

    def mark(address: int, count: int) -> bytes:
        found = _Found()
        code(address, count, found)
        return bytes(found)

    return mark


def _program(kind: Kind) -> str:
    """``void mark(address, count, two results)``: wide steps as long as they fit, then one element at a time."""
    words, doubles = many("i64", LANES), many("double", LANES)
    return f"""
declare double @llvm.vector.reduce.fadd.v{LANES}f64(double, {doubles})
declare i64 @llvm.vector.reduce.add.v{LANES}i64({words})

define void @mark(i64 %address, i64 %count, ptr %found) {{
start:
  br label %wide
{_rounds(kind, "wide", LANES, "start", "0", "zeroinitializer", "zeroinitializer")}
  %total = call {LOOSE} double @llvm.vector.reduce.fadd.v{LANES}f64(double 0.0, {doubles} %wide.total)
  %codes = call i64 @llvm.vector.reduce.add.v{LANES}i64({words} %wide.codes)
  br label %narrow
{_rounds(kind, "narrow", 1, "wide.after", "%wide.place", "%total", "%codes")}
  store i64 %narrow.codes, ptr %found
  %second = getelementptr i64, ptr %found, i64 1
  store double %narrow.total, ptr %second
  ret void
}}
"""


def _rounds(kind: Kind, name: str, lanes: int, before: str, place: str, total: str, codes: str) -> str:
    """A loop over as many times ``lanes`` elements as there are from a place on; it ends in ``<name>.after``."""
    whole, words, doubles = many(f"i{kind.bits}", lanes), many("i64", lanes), many("double", lanes)
    widened = "bitcast" if kind.bits == 64 else "zext"
    return f"""
{name}:
  %{name}.place = phi i64 [ {place}, %{before} ], [ %{name}.next, %{name}.body ]
  %{name}.total = phi {doubles} [ {total}, %{before} ], [ %{name}.total.next, %{name}.body ]
  %{name}.codes = phi {words} [ {codes}, %{before} ], [ %{name}.codes.next, %{name}.body ]
  %{name}.next = add i64 %{name}.place, {lanes}
  %{name}.fits = icmp sle i64 %{name}.next, %count
  br i1 %{name}.fits, label %{name}.body, label %{name}.after
{name}.body:
  %{name}.bytes = mul i64 %{name}.place, {kind.bits // 8}
  %{name}.at = add i64 %address, %{name}.bytes
  %{name}.here = inttoptr i64 %{name}.at to ptr
  %{name}.code = load {whole}, ptr %{name}.here, align 1
  {kind.number(name, lanes)}
  %{name}.total.next = fadd {LOOSE} {doubles} %{name}.total, %{name}.number
  %{name}.wider = {widened} {whole} %{name}.code to {words}
  %{name}.codes.next = add {words} %{name}.codes, %{name}.wider
  br label %{name}
{name}.after:"""
