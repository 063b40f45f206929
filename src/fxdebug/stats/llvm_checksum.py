"""A checksum of a tensor's memory in one pass, by machine code that llvmlite compiles (the extra ``fast``).

A checksum consists of the sum of the elements and the sum of their codes (their bits as integers). Compared with an
earlier one, it tells whether data changed. The program is built as in :mod:`fxdebug.stats.llvm_sums`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

from fxdebug.stats.llvm import Engine
from fxdebug.stats.llvm_sums import ANY_ORDER, KINDS, LANES, Kind, vector

ChecksumCode = Callable[[int, int], bytes]
_Results = ctypes.c_int64 * 2


@functools.cache
def compile_checksum(dtype: torch.dtype) -> ChecksumCode | None:
    """Compile a function (address, count) → sixteen bytes, both sums; ``None`` for a dtype that has no program.

    The sums are returned as bytes so that a NaN equals itself.
    Raises the exceptions of :func:`~fxdebug.stats.llvm_sums.compile_sums`.

    >>> x = torch.tensor([1.0, 2.0])
    >>> compile_checksum(x.dtype)(x.data_ptr(), 2) == compile_checksum(x.dtype)(x.data_ptr(), 2)
    True
    """
    kind = KINDS.get(dtype)
    if kind is None:
        return None
    code = Engine(_program(kind)).code("checksum", _Results)

    def checksum(address: int, count: int) -> bytes:
        results = _Results()
        code(address, count, results)
        return bytes(results)

    return checksum


def _program(kind: Kind) -> str:
    """``void checksum(address, count, two results)``: wide steps as long as they fit, then one element at a time."""
    words, doubles = vector("i64", LANES), vector("double", LANES)
    return f"""
declare double @llvm.vector.reduce.fadd.v{LANES}f64(double, {doubles})
declare i64 @llvm.vector.reduce.add.v{LANES}i64({words})

define void @checksum(i64 %address, i64 %count, ptr %results) {{
start:
  br label %wide
{_rounds(kind, "wide", LANES, "start", "0", "zeroinitializer", "zeroinitializer")}
  %total = call {ANY_ORDER} double @llvm.vector.reduce.fadd.v{LANES}f64(double 0.0, {doubles} %wide.total)
  %codes = call i64 @llvm.vector.reduce.add.v{LANES}i64({words} %wide.codes)
  br label %narrow
{_rounds(kind, "narrow", 1, "wide.after", "%wide.place", "%total", "%codes")}
  store i64 %narrow.codes, ptr %results
  %second = getelementptr i64, ptr %results, i64 1
  store double %narrow.total, ptr %second
  ret void
}}
"""


def _rounds(kind: Kind, name: str, lanes: int, before: str, place: str, total: str, codes: str) -> str:
    """Return a loop over ``lanes`` elements at a time, as long as they fit; it ends at the label ``<name>.after``."""
    whole, words, doubles = vector(f"i{kind.bits}", lanes), vector("i64", lanes), vector("double", lanes)
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
  %{name}.total.next = fadd {ANY_ORDER} {doubles} %{name}.total, %{name}.number
  %{name}.wider = {widened} {whole} %{name}.code to {words}
  %{name}.codes.next = add {words} %{name}.codes, %{name}.wider
  br label %{name}
{name}.after:"""
