"""Sums and extremes of floats in a CPU's memory in one pass, by machine code for this very processor.

llvmlite makes it, the extra ``fast``. Each element is read once and looked at as a number and as its code: sums of
numbers and comparisons of whole numbers go through wide registers; comparisons of floats, one of which may be NaN, do
not. Sums are in float64.

The programs are as :mod:`fxdebug.stats.llvm` takes them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fxdebug.stats.cpu_sums import Sums
from fxdebug.stats.llvm import MANY_ARGUMENTS, Engine

Loop = Callable[[int, int], Sums]

QUICK = 1 << 16  # elements, some microseconds: of more than these other threads are not kept waiting
LANES = 32  # elements a step: four of the widest registers there are, so that no sum waits for the one before
_Found = ctypes.c_double * 5


@functools.cache
def loop(dtype: torch.dtype) -> Loop | None:
    """The :data:`~fxdebug.stats.cpu_sums.Sums` of so many elements from an address on; ``None`` for dtypes without code.

    One of the extremes is NaN where an element is. Making it takes some 40 ms, once in a process. Raises
    ``ImportError`` without llvmlite, ``RuntimeError`` on a system or a processor that it can write nothing for.

    >>> x = torch.tensor([1.0, -2.0, 0.0])
    >>> loop(x.dtype)(x.data_ptr(), 3)
    (-1.0, 5.0, -2.0, 1.0, 1)
    """
    kind = KINDS.get(dtype)
    if kind is None:
        return None
    engine = Engine(_program(kind))
    at_once = engine.function("sums_at_once", MANY_ARGUMENTS)
    code = engine.code("sums", _Found)

    def sums(address: int, count: int) -> Sums:
        if count <= QUICK:
            quick: Sums = at_once(address, count)
            return quick
        found = _Found()
        code(address, count, found)
        total, squares, low, high, zeros = found
        return total, squares, low, high, int(zeros)

    return sums


# Kinds of floats ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """The bits of a float's code, and what makes the float64 ``%<of>.number`` of ``lanes`` codes ``%<of>.code``."""

    bits: int
    number: Callable[[str, int], str]


def many(kind: str, lanes: int) -> str:
    """A type of so many lanes, as a program has it."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def _all(kind: str, number: int | str, lanes: int) -> str:
    """A constant, in every lane."""
    return str(number) if lanes == 1 else f"splat ({kind} {number})"


def _from_float64(of: str, lanes: int) -> str:
    return f"%{of}.number = bitcast {many('i64', lanes)} %{of}.code to {many('double', lanes)}"


def _from_float32(of: str, lanes: int) -> str:
    return f"""
  %{of}.float = bitcast {many("i32", lanes)} %{of}.code to {many("float", lanes)}
  %{of}.number = fpext {many("float", lanes)} %{of}.float to {many("double", lanes)}"""


def _from_bfloat16(of: str, lanes: int) -> str:
    """bfloat16 is the upper half of float32."""
    whole = many("i32", lanes)
    return f"""
  %{of}.word = zext {many("i16", lanes)} %{of}.code to {whole}
  %{of}.upper = shl {whole} %{of}.word, {_all("i32", 16, lanes)}
  %{of}.float = bitcast {whole} %{of}.upper to {many("float", lanes)}
  %{of}.number = fpext {many("float", lanes)} %{of}.float to {many("double", lanes)}"""


def _from_float16(of: str, lanes: int) -> str:
    """The bits are moved to where float32 has them; exponents begin 112 apart, and the last one is of no number."""
    whole, double, choice = many("i32", lanes), many("double", lanes), many("i1", lanes)
    scale, infinity, nan = "0x46F0000000000000", "0x7FF0000000000000", "0x7FF8000000000000"  # of float64; 2 to the 112
    return f"""
  %{of}.wide = zext {many("i16", lanes)} %{of}.code to {whole}
  %{of}.size = and {whole} %{of}.wide, {_all("i32", 0x7FFF, lanes)}
  %{of}.moved = shl {whole} %{of}.size, {_all("i32", 13, lanes)}
  %{of}.float = bitcast {whole} %{of}.moved to {many("float", lanes)}
  %{of}.small = fpext {many("float", lanes)} %{of}.float to {double}
  %{of}.scaled = fmul {double} %{of}.small, {_all("double", scale, lanes)}
  %{of}.at_end = icmp eq {whole} %{of}.size, {_all("i32", 0x7C00, lanes)}
  %{of}.beyond = icmp ugt {whole} %{of}.size, {_all("i32", 0x7C00, lanes)}
  %{of}.ordered = select {choice} %{of}.at_end, {double} {_all("double", infinity, lanes)}, {double} %{of}.scaled
  %{of}.positive = select {choice} %{of}.beyond, {double} {_all("double", nan, lanes)}, {double} %{of}.ordered
  %{of}.minus = fneg {double} %{of}.positive
  %{of}.sign = icmp ugt {whole} %{of}.wide, {_all("i32", 0x7FFF, lanes)}
  %{of}.number = select {choice} %{of}.sign, {double} %{of}.minus, {double} %{of}.positive"""


KINDS = {
    torch.float64: Kind(64, _from_float64),
    torch.float32: Kind(32, _from_float32),
    torch.bfloat16: Kind(16, _from_bfloat16),
    torch.float16: Kind(16, _from_float16),
}


# Loops -------------------------------------------------------------------------------------------

LOOSE = "reassoc contract nsz"  # sums in any order; NaN and infinity stay what they are
_ROUND = ("total", "squares", "low", "high", "zeros")  # what goes round with the place


def _program(kind: Kind) -> str:
    """``void sums(address, count, five results)``: wide steps as long as they fit, then one element at a time.

    ``sums_at_once`` is the same as a function of Python's.
    """
    whole, keys, doubles = f"i{kind.bits}", many(f"i{kind.bits}", LANES), many("double", LANES)
    least, most = -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1
    zero = _all("double", "0.0", LANES)
    wide = dict(zip(_ROUND, (zero, zero, _all(whole, most, LANES), _all(whole, least, LANES), "0")))
    ways = {"total": "fadd", "squares": "fadd", "low": "smin", "high": "smax"}
    names = {"fadd": f"fadd.v{LANES}f64", "smin": f"smin.v{LANES}{whole}", "smax": f"smax.v{LANES}{whole}"}
    joined = [
        f"%{name} = call {LOOSE} double @llvm.vector.reduce.{names[way]}(double 0.0, {doubles} %wide.{name})"
        if way == "fadd"
        else f"%{name} = call {whole} @llvm.vector.reduce.{names[way]}({keys} %wide.{name})"
        for name, way in ways.items()
    ]
    narrow = {name: f"%{name}" for name in ways} | {"zeros": "%wide.zeros"}
    results = ("%narrow.total", "%narrow.squares", "%least.number", "%most.number", "%none")
    stored = [
        f"%to.{i} = getelementptr double, ptr %found, i64 {i}\n  store double {result}, ptr %to.{i}"
        for i, result in enumerate(results)
    ]
    passed_on = [_item(i, is_count=i == len(results) - 1) for i in range(len(results))]
    return f"""
declare double @llvm.vector.reduce.{names["fadd"]}(double, {doubles})
declare {whole} @llvm.vector.reduce.{names["smin"]}({keys})
declare {whole} @llvm.vector.reduce.{names["smax"]}({keys})
declare i{LANES} @llvm.ctpop.i{LANES}(i{LANES})

define void @sums(i64 %address, i64 %count, ptr %found) {{
start:
  br label %wide
{_rounds(kind, "wide", LANES, "start", {"place": "0"} | wide)}
  {_lines(joined)}
  br label %narrow
{_rounds(kind, "narrow", 1, "wide.after", {"place": "%wide.place"} | narrow)}
  {_turned("least.code", "%narrow.low", kind.bits, 1)}
  {kind.number("least", 1)}
  {_turned("most.code", "%narrow.high", kind.bits, 1)}
  {kind.number("most", 1)}
  %none = sitofp i64 %narrow.zeros to double
  {_lines(stored)}
  ret void
}}

define ptr @sums_at_once(ptr %self, ptr %arguments, i64 %many) {{
  %first = load ptr, ptr %arguments
  %address = call i64 @PyLong_AsLongLong(ptr %first)
  %at.second = getelementptr ptr, ptr %arguments, i64 1
  %second = load ptr, ptr %at.second
  %count = call i64 @PyLong_AsLongLong(ptr %second)
  %found = alloca [{len(results)} x double]
  call void @sums(i64 %address, i64 %count, ptr %found)
  %made = call ptr @PyTuple_New(i64 {len(results)})
  {_lines(passed_on)}
  ret ptr %made
}}
"""


def _item(i: int, is_count: bool) -> str:
    """A result → an item of the tuple."""
    number = f"call ptr @PyFloat_FromDouble(double %number.{i})"
    if is_count:
        number = "call ptr @PyLong_FromLongLong(i64 %whole)"
    return f"""
  %at.{i} = getelementptr double, ptr %found, i64 {i}
  %number.{i} = load double, ptr %at.{i}
  {f"%whole = fptosi double %number.{i} to i64" if is_count else ""}
  %item.{i} = {number}
  %set.{i} = call i32 @PyTuple_SetItem(ptr %made, i64 {i}, ptr %item.{i})"""


def _rounds(kind: Kind, name: str, lanes: int, before: str, start: dict[str, str]) -> str:
    """A loop over as many times ``lanes`` elements as there are from a place on; it ends in ``<name>.after``."""
    whole, double, choice = many(f"i{kind.bits}", lanes), many("double", lanes), many("i1", lanes)
    kinds = dict(zip(("place", *_ROUND), ("i64", double, double, whole, whole, "i64")))
    round_ = [
        f"%{name}.{what} = phi {kinds[what]} [ {first}, %{before} ], [ %{name}.{what}.next, %{name}.body ]"
        for what, first in start.items()
    ]
    counted = [f"%{name}.many = zext i1 %{name}.none to i64"]
    if lanes > 1:
        counted = [
            f"%{name}.mask = bitcast {choice} %{name}.none to i{lanes}",
            f"%{name}.ones = call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} %{name}.mask)",
            f"%{name}.many = zext i{lanes} %{name}.ones to i64",
        ]
    rest = _all(f"i{kind.bits}", 2 ** (kind.bits - 1) - 1, lanes)
    return f"""
{name}:
  {_lines(round_)}
  %{name}.place.next = add i64 %{name}.place, {lanes}
  %{name}.fits = icmp sle i64 %{name}.place.next, %count
  br i1 %{name}.fits, label %{name}.body, label %{name}.after
{name}.body:
  %{name}.bytes = mul i64 %{name}.place, {kind.bits // 8}
  %{name}.at = add i64 %address, %{name}.bytes
  %{name}.here = inttoptr i64 %{name}.at to ptr
  %{name}.code = load {whole}, ptr %{name}.here, align 1
  {kind.number(name, lanes)}
  %{name}.total.next = fadd {LOOSE} {double} %{name}.total, %{name}.number
  %{name}.square = fmul {LOOSE} {double} %{name}.number, %{name}.number
  %{name}.squares.next = fadd {LOOSE} {double} %{name}.squares, %{name}.square
  {_turned(f"{name}.key", f"%{name}.code", kind.bits, lanes)}
  %{name}.lower = icmp slt {whole} %{name}.key, %{name}.low
  %{name}.low.next = select {choice} %{name}.lower, {whole} %{name}.key, {whole} %{name}.low
  %{name}.higher = icmp sgt {whole} %{name}.key, %{name}.high
  %{name}.high.next = select {choice} %{name}.higher, {whole} %{name}.key, {whole} %{name}.high
  %{name}.magnitude = and {whole} %{name}.code, {rest}
  %{name}.none = icmp eq {whole} %{name}.magnitude, {_all(f"i{kind.bits}", 0, lanes)}
  {_lines(counted)}
  %{name}.zeros.next = add i64 %{name}.zeros, %{name}.many
  br label %{name}
{name}.after:"""


def _turned(name: str, code: str, bits: int, lanes: int) -> str:
    """Code → key, and key → code. Keys are in the order of the floats: of negative ones all bits but the sign turn."""
    whole = many(f"i{bits}", lanes)
    return f"""
  %{name}.signs = ashr {whole} {code}, {_all(f"i{bits}", bits - 1, lanes)}
  %{name}.turns = and {whole} %{name}.signs, {_all(f"i{bits}", 2 ** (bits - 1) - 1, lanes)}
  %{name} = xor {whole} {code}, %{name}.turns"""


def _lines(lines: list[str]) -> str:
    return "\n  ".join(lines)
