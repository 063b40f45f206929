"""Questions that a build must answer as Python does before it is used."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fxdebug.errors import NativeError

Check = Callable[[ModuleType], None]
"""Ask a build one kind of questions; raise :class:`~fxdebug.errors.NativeError` for a wrong answer."""


def require_right_answers(core: ModuleType) -> None:
    """Raise :class:`~fxdebug.errors.NativeError` if a build gives an answer that is not Python's."""
    for check in CHECKS:
        check(core)


def _require(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise NativeError(f"its self-test fails: {what} is {found!r}, not {expected!r}")


def _tensors() -> list[Any]:
    """Return small tensors of the core's kinds: each dtype, dense, strided, repeated, not finite."""
    import torch

    plain = torch.arange(12, dtype=torch.float32, device="cpu").view(3, 4) - 4
    kinds = [plain, plain.T, plain[:, 1:3], plain[1:2].expand(5, 4), torch.nn.Parameter(plain.clone())]
    kinds += [plain.to(dtype) for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32)]
    kinds += [plain.abs().to(torch.uint8), plain > 0, plain / 0.0, plain.new_full((70,), 3.0), plain.abs() * 0]
    return kinds


def _facts(core: ModuleType) -> None:
    state_of = core.state_of(_layout, _State)
    for tensor in _tensors():
        storage = tensor.untyped_storage()
        expected = _State((_layout(tensor), storage._cdata, tensor.data_ptr(), tensor._version))
        _require(f"the state of {tuple(tensor.shape)} {tensor.dtype}", state_of(tensor), expected)
    for other in _tensors()[0].to_sparse(), _tensors()[0].to("meta"), 1:
        _require(f"the state of {other!r}", state_of(other), NotImplemented)


class _State(tuple[Any, ...]):
    """Stands for TensorState."""


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype


def _statistics(core: ModuleType) -> None:
    statistics = core.statistics(lambda *numbers: numbers)
    for tensor in _tensors():
        found = statistics(tensor)
        _require(f"the statistics of {tensor.tolist()}", _rounded(found), _rounded(_expected(tensor)))


def _threads(core: ModuleType) -> None:
    """Ask about a tensor that torch's threads share, if there are several."""
    import torch

    statistics = core.statistics(lambda *numbers: numbers)
    ones = torch.ones(1 << 17, dtype=torch.int8, device="cpu")
    _require("the statistics of many ones", statistics(ones)[:5], (1 << 17, 1.0, 0.0, 1, 1))


def _expected(tensor: Any) -> tuple[Any, ...]:
    """Return the numbers of Stats in the arithmetic of Python."""
    numbers = [number * 1 for number in tensor.reshape(-1).tolist()]
    finite = [number for number in numbers if math.isfinite(number)]
    counts = sum(x != x for x in numbers), numbers.count(math.inf), numbers.count(-math.inf), numbers.count(0)
    if not finite:
        return (len(numbers), None, None, None, None, None, *counts)
    mean = math.fsum(finite) / len(finite)
    std = math.sqrt(math.fsum([(x - mean) ** 2 for x in finite]) / (len(finite) - 1))
    low, high = min(finite), max(finite)
    return (len(numbers), mean, std, low, high, max(-low, high), *counts)


def _rounded(numbers: Any) -> Any:
    if not isinstance(numbers, tuple):
        return numbers
    return tuple([float(f"{x:.12e}") if isinstance(x, float) else x for x in numbers])


def _checksums(core: ModuleType) -> None:
    checksum = core.checksum()
    for size in 3, 61 * 8, 61 * 8 * 3 + 5:
        data = bytes([index * 7 % 256 for index in range(size)])
        held = ctypes.create_string_buffer(data, size)
        whole = size - size % (61 * 8)
        words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)]
        sums = [sum(words[column::61]) % 2**64 for column in range(61)]
        expected = b"".join(total.to_bytes(8, "little") for total in sums) + data[whole:]
        _require(f"the checksum of {size} bytes", checksum(ctypes.addressof(held), size), expected)


CHECKS: tuple[Check, ...] = (_facts, _statistics, _threads, _checksums)
