"""Sums and extremes of floats in the CPU's memory in one pass, by machine code that llvmlite compiles (extra ``fast``).

Each element is read once and used twice: as a float, and as its code (its bits as an integer). Sums of floats and
comparisons of integers are vectorised; comparisons of floats, which may be NaN, would not be. Sums are in float64.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fxdebug.stats.cpu_sums import Sums
from fxdebug.stats.llvm import METH_FASTCALL, Engine

SumsCode = Callable[[int, int], Sums]

QUICK = 1 << 16  # elements, read in some microseconds: while more are read, other threads may run
LANES = 32  # elements in a step: four of the widest registers, so that no sum waits for the one before
_Results = ctypes.c_double * 5


@functools.cache
def compile_sums(dtype: torch.dtype) -> SumsCode | None:
    """Compile a function (address, count) → :data:`~fxdebug.stats.cpu_sums.Sums`; ``None`` for another dtype.

    One of the extremes is NaN if an element is. Compiling takes some 40 ms, once in a process. Raises
    ``ImportError`` without llvmlite, ``RuntimeError`` for a system or a processor that llvmlite cannot serve.

    >>> x = torch.tensor([1.0, -2.0, 0.0])
    >>> compile_sums(x.dtype)(x.data_ptr(), 3)
    (-1.0, 5.0, -2.0, 1.0, 1)
    """
    kind = KINDS.get(dtype)
    if kind is None:
        return None
    engine = Engine(_program(kind))
    builtin = engine.function("sums_builtin", METH_FASTCALL)
    code = engine.code("sums", _Results)

    def sums(address: int, count: int) -> Sums:
        if count <= QUICK:
            quick: Sums = builtin(address, count)
            return quick
        results = _Results()
        code(address, count, results)
        total, squares, low, high, zeros = results
        return total, squares, low, high, int(zeros)

    return sums


# Kinds of floats ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of float: how many bits it has, and the program that widens it.

    ``number(of, lanes)`` is the program that turns the codes ``%<of>.code`` into float64 ``%<of>.number``.
    """

    bits: int
    number: Callable[[str, int], str]


def vector(kind: str, lanes: int) -> str:
    """Return the LLVM type of a vector of ``lanes`` elements; a single one is a scalar."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def _constant(kind: str, number: int | str, lanes: int) -> str:
    """Return a constant in every lane."""
    return str(number) if lanes == 1 else f"splat ({kind} {number})"


def _from_float64(of: str, lanes: int) -> str:
    return f"%{of}.number = bitcast {vector('i64', lanes)} %{of}.code to {vector('double', lanes)}"


def _from_float32(of: str, lanes: int) -> str:
    return f"""
  %{of}.float = bitcast {vector("i32", lanes)} %{of}.code to {vector("float", lanes)}
  %{of}.number = fpext {vector("float", lanes)} %{of}.float to {vector("double", lanes)}"""


def _from_bfloat16(of: str, lanes: int) -> str:
    """Widen bfloat16, the upper half of a float32."""
    whole = vector("i32", lanes)
    return f"""
  %{of}.word = zext {vector("i16", lanes)} %{of}.code to {whole}
  %{of}.upper = shl {whole} %{of}.word, {_constant("i32", 16, lanes)}
  %{of}.float = bitcast {whole} %{of}.upper to {vector("float", lanes)}
  %{of}.number = fpext {vector("float", lanes)} %{of}.float to {vector("double", lanes)}"""


def _from_float16(of: str, lanes: int) -> str:
    """Widen float16: move its bits to float32's places and scale by 2 to the 112, as exponents begin 112 apart.

    The last exponent belongs to infinity and NaN, which are selected afterwards.
    """
    whole, double, choice = vector("i32", lanes), vector("double", lanes), vector("i1", lanes)
    scale, infinity, nan = "0x46F0000000000000", "0x7FF0000000000000", "0x7FF8000000000000"  # as float64
    return f"""
  %{of}.wide = zext {vector("i16", lanes)} %{of}.code to {whole}
  %{of}.size = and {whole} %{of}.wide, {_constant("i32", 0x7FFF, lanes)}
  %{of}.moved = shl {whole} %{of}.size, {_constant("i32", 13, lanes)}
  %{of}.float = bitcast {whole} %{of}.moved to {vector("float", lanes)}
  %{of}.small = fpext {vector("float", lanes)} %{of}.float to {double}
  %{of}.scaled = fmul {double} %{of}.small, {_constant("double", scale, lanes)}
  %{of}.at_end = icmp eq {whole} %{of}.size, {_constant("i32", 0x7C00, lanes)}
  %{of}.beyond = icmp ugt {whole} %{of}.size, {_constant("i32", 0x7C00, lanes)}
  %{of}.ordered = select {choice} %{of}.at_end, {double} {_constant("double", infinity, lanes)}, {double} %{of}.scaled
  %{of}.positive = select {choice} %{of}.beyond, {double} {_constant("double", nan, lanes)}, {double} %{of}.ordered
  %{of}.minus = fneg {double} %{of}.positive
  %{of}.sign = icmp ugt {whole} %{of}.wide, {_constant("i32", 0x7FFF, lanes)}
  %{of}.number = select {choice} %{of}.sign, {double} %{of}.minus, {double} %{of}.positive"""


KINDS = {
    torch.float64: Kind(64, _from_float64),
    torch.float32: Kind(32, _from_float32),
    torch.bfloat16: Kind(16, _from_bfloat16),
    torch.float16: Kind(16, _from_float16),
}


# Loops -------------------------------------------------------------------------------------------

ANY_ORDER = "reassoc contract nsz"  # sums may be reordered; NaN and infinity stay what they are
_CARRIED = ("total", "squares", "low", "high", "zeros")  # the loop's variables besides the place


def _program(kind: Kind) -> str:
    """``void sums(address, count, five results)``: wide steps as long as they fit, then one element at a time.

    ``sums_builtin`` is the same as a builtin of Python's.
    """
    whole, keys, doubles = f"i{kind.bits}", vector(f"i{kind.bits}", LANES), vector("double", LANES)
    least, most = -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1
    zero = _constant("double", "0.0", LANES)
    wide = dict(zip(_CARRIED, (zero, zero, _constant(whole, most, LANES), _constant(whole, least, LANES), "0")))
    ways = {"total": "fadd", "squares": "fadd", "low": "smin", "high": "smax"}
    names = {"fadd": f"fadd.v{LANES}f64", "smin": f"smin.v{LANES}{whole}", "smax": f"smax.v{LANES}{whole}"}
    joined = [
        f"%{name} = call {ANY_ORDER} double @llvm.vector.reduce.{names[way]}(double 0.0, {doubles} %wide.{name})"
        if way == "fadd"
        else f"%{name} = call {whole} @llvm.vector.reduce.{names[way]}({keys} %wide.{name})"
        for name, way in ways.items()
    ]
    narrow = {name: f"%{name}" for name in ways} | {"zeros": "%wide.zeros"}
    results = ("%narrow.total", "%narrow.squares", "%least.number", "%most.number", "%none")
    stored = [
        f"%to.{i} = getelementptr double, ptr %results, i64 {i}\n  store double {result}, ptr %to.{i}"
        for i, result in enumerate(results)
    ]
    items = [_item(i, is_count=i == len(results) - 1) for i in range(len(results))]
    return f"""
declare double @llvm.vector.reduce.{names["fadd"]}(double, {doubles})
declare {whole} @llvm.vector.reduce.{names["smin"]}({keys})
declare {whole} @llvm.vector.reduce.{names["smax"]}({keys})
declare i{LANES} @llvm.ctpop.i{LANES}(i{LANES})

define void @sums(i64 %address, i64 %count, ptr %results) {{
start:
  br label %wide
{_rounds(kind, "wide", LANES, "start", {"place": "0"} | wide)}
  {_lines(joined)}
  br label %narrow
{_rounds(kind, "narrow", 1, "wide.after", {"place": "%wide.place"} | narrow)}
  {_key_of_code("least.code", "%narrow.low", kind.bits, 1)}
  {kind.number("least", 1)}
  {_key_of_code("most.code", "%narrow.high", kind.bits, 1)}
  {kind.number("most", 1)}
  %none = sitofp i64 %narrow.zeros to double
  {_lines(stored)}
  ret void
}}

define ptr @sums_builtin(ptr %self, ptr %arguments, i64 %many) {{
  %first = load ptr, ptr %arguments
  %address = call i64 @PyLong_AsLongLong(ptr %first)
  %at.second = getelementptr ptr, ptr %arguments, i64 1
  %second = load ptr, ptr %at.second
  %count = call i64 @PyLong_AsLongLong(ptr %second)
  %results = alloca [{len(results)} x double]
  call void @sums(i64 %address, i64 %count, ptr %results)
  %made = call ptr @PyTuple_New(i64 {len(results)})
  {_lines(items)}
  ret ptr %made
}}
"""


def _item(i: int, is_count: bool) -> str:
    """Return the program that puts a result into the tuple."""
    number = f"call ptr @PyFloat_FromDouble(double %number.{i})"
    if is_count:
        number = "call ptr @PyLong_FromLongLong(i64 %whole)"
    return f"""
  %at.{i} = getelementptr double, ptr %results, i64 {i}
  %number.{i} = load double, ptr %at.{i}
  {f"%whole = fptosi double %number.{i} to i64" if is_count else ""}
  %item.{i} = {number}
  %set.{i} = call i32 @PyTuple_SetItem(ptr %made, i64 {i}, ptr %item.{i})"""


def _rounds(kind: Kind, name: str, lanes: int, before: str, start: dict[str, str]) -> str:
    """Return a loop over ``lanes`` elements at a time, as long as they fit; it ends at the label ``<name>.after``."""
    whole, double, choice = vector(f"i{kind.bits}", lanes), vector("double", lanes), vector("i1", lanes)
    kinds = dict(zip(("place", *_CARRIED), ("i64", double, double, whole, whole, "i64")))
    carried = [
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
    rest = _constant(f"i{kind.bits}", 2 ** (kind.bits - 1) - 1, lanes)
    return f"""
{name}:
  {_lines(carried)}
  %{name}.place.next = add i64 %{name}.place, {lanes}
  %{name}.fits = icmp sle i64 %{name}.place.next, %count
  br i1 %{name}.fits, label %{name}.body, label %{name}.after
{name}.body:
  %{name}.bytes = mul i64 %{name}.place, {kind.bits // 8}
  %{name}.at = add i64 %address, %{name}.bytes
  %{name}.here = inttoptr i64 %{name}.at to ptr
  %{name}.code = load {whole}, ptr %{name}.here, align 1
  {kind.number(name, lanes)}
  %{name}.total.next = fadd {ANY_ORDER} {double} %{name}.total, %{name}.number
  %{name}.square = fmul {ANY_ORDER} {double} %{name}.number, %{name}.number
  %{name}.squares.next = fadd {ANY_ORDER} {double} %{name}.squares, %{name}.square
  {_key_of_code(f"{name}.key", f"%{name}.code", kind.bits, lanes)}
  %{name}.lower = icmp slt {whole} %{name}.key, %{name}.low
  %{name}.low.next = select {choice} %{name}.lower, {whole} %{name}.key, {whole} %{name}.low
  %{name}.higher = icmp sgt {whole} %{name}.key, %{name}.high
  %{name}.high.next = select {choice} %{name}.higher, {whole} %{name}.key, {whole} %{name}.high
  %{name}.magnitude = and {whole} %{name}.code, {rest}
  %{name}.none = icmp eq {whole} %{name}.magnitude, {_constant(f"i{kind.bits}", 0, lanes)}
  {_lines(counted)}
  %{name}.zeros.next = add i64 %{name}.zeros, %{name}.many
  br label %{name}
{name}.after:"""


def _key_of_code(name: str, code: str, bits: int, lanes: int) -> str:
    """Return the program that turns a code into a key, or a key into a code.

    Keys sort as the floats do: negative floats have all bits but the sign flipped.
    """
    whole = vector(f"i{bits}", lanes)
    return f"""
  %{name}.signs = ashr {whole} {code}, {_constant(f"i{bits}", bits - 1, lanes)}
  %{name}.turns = and {whole} %{name}.signs, {_constant(f"i{bits}", 2 ** (bits - 1) - 1, lanes)}
  %{name} = xor {whole} {code}, %{name}.turns"""


def _lines(lines: list[str]) -> str:
    return "\n  ".join(lines)
