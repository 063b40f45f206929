"""The tensors in a debug tree: which of them are one value, the file of each, and its printed statistics."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeGuard

from fxdebug.data.values import Value
from fxdebug.features.debug_trees.parse_statistics import parse_stats, printed_digits, printed_numbers
from fxdebug.files.read_file import is_regular_inside
from fxdebug.files.schema import Damaged, shown, texts
from fxdebug.files.system_errors import system_reason
from fxdebug.store.transformers.printed_statistics import PrintedStats

TENSOR_FILE = re.compile(r"\./([^/\\\0#]+\.safetensors)(?:#(v\d+))?")

_SIZE = re.compile(r"torch\.Size\(\[((?:-?\d{1,18}(?:, -?\d{1,18})*)?),?\]\)")
_DEVICE = re.compile(r"device='([\w.:-]{1,100})'")
_DTYPE = re.compile(r"torch\.\w{1,100}")
_KEYS = ("mean", "std", "min", "max")


def is_tensor(coded: Any) -> TypeGuard[dict[str, Any]]:
    """Is it the JSON of a tensor?

    A mapping of the model's own with the same keys differs: its texts are in quotation marks, as ``repr`` writes them.
    """
    if not isinstance(coded, dict):
        return False
    shape, dtype = coded.get("shape"), coded.get("dtype")
    return (
        isinstance(shape, str)
        and shape.startswith("torch.Size(")
        and isinstance(dtype, str)
        and _DTYPE.fullmatch(dtype) is not None
    )


class TreeValues:
    """The values of one tree. A tensor with data equal to an earlier one is the same value.

    ``tensors`` are the JSON of all tensors in the tree, in the order in which :meth:`value_of` will get them.
    """

    def __init__(self, folder: Path, tensors: Iterable[dict[str, Any]]) -> None:
        self.values: list[Value] = []
        self.printed: dict[int, PrintedStats] = {}  # these three by the number of the value
        self.lines: dict[int, list[str]] = {}
        self.files: dict[int, str] = {}
        self.precision = 4
        self._folder = folder
        names = [name for coded in tensors if (name := _file_named_in(coded)) is not None and "#" not in name]
        self._uses_left = Counter(names)  # how often each file is still to come
        self._overwritten = {name for name, count in self._uses_left.items() if count > 1}
        self._missing: set[str] = set()
        self._refused: Counter[str] = Counter()  # comparisons of two files that the system did not let us read, by why
        self._file_digests: dict[str, bytes | None] = {}
        self._uncounted = 0
        self._text_digests: dict[int, bytes] = {}
        self._alike: dict[Any, list[Value]] = {}  # values by shape, dtype and printed statistics
        self._of_call: list[Value] = []
        self._are_outputs = False

    def begin_inputs(self) -> None:
        """Expect the inputs of the next call: any earlier value may be among them."""
        self._of_call, self._are_outputs = [], False

    def begin_outputs(self) -> None:
        """Expect the outputs of the call: new values, except for its own inputs."""
        self._are_outputs = True

    def value_of(self, coded: dict[str, Any]) -> Value:
        """Return the value of a tensor's JSON: an earlier one where the data is known to be equal."""
        printed = _printed_stats(coded)
        shape, dtype = _parse_shape(coded["shape"]), coded["dtype"].removeprefix("torch.")
        content = coded.get("value")
        lines = content if isinstance(content, list) else None
        if lines is not None:
            texts(lines, lambda i: f"value[{i}]")
        text = None if lines is None else _digest_of_text(lines)
        file = self._own_file(coded)
        alike = self._alike.setdefault((shape, dtype, printed), [])
        for value in reversed(alike):
            if self._is_same(value, printed, text, file) and (not self._are_outputs or value in self._of_call):
                break
        else:
            value = self._new(shape, dtype, printed, lines)
            alike.append(value)
            if text is not None:
                self._text_digests[value.number] = text
        if file is not None and value.saved is None:  # the file of its first occurrence was overwritten
            object.__setattr__(value, "saved", file if "#" in file else f"{file}#data")
            self.files[value.number] = file
        self._of_call.append(value)
        return value

    def _new(self, shape: tuple[int, ...], dtype: str, printed: PrintedStats | None, lines: list[str] | None) -> Value:
        number, stats = len(self.values), parse_stats(shape, dtype, printed, lines)
        device = next((match[1] for text in printed or () if (match := _DEVICE.search(text))), "cpu")
        is_uncounted = stats is None or stats.nan == 1
        if is_uncounted and printed is not None and not all(map(math.isfinite, printed_numbers(printed))):
            self._uncounted += lines is None and math.prod(shape) > 1
        value = Value(number, shape, dtype, device, stats=stats)
        self.values.append(value)
        if printed is not None:
            self.printed[number] = printed
            self.precision = max(printed_digits(text) for text in printed) or self.precision
        if lines is not None:
            self.lines[number] = lines
        return value

    def _is_same(self, value: Value, printed: PrintedStats | None, text: bytes | None, file: str | None) -> bool:
        """Is a tensor of the same shape, dtype and printed statistics this value, by its text or its file?"""
        other_text, other_file = self._text_digests.get(value.number), self.files.get(value.number)
        if text is not None and other_text is not None:
            return text == other_text
        if file is not None and other_file is not None:
            return file == other_file or self._same_bytes(file, other_file)
        return printed is not None

    # Files ---------------------------------------------------------------------------------------

    def _own_file(self, coded: dict[str, Any]) -> str | None:
        """Return the file that holds a tensor; ``None`` if it is missing, or a later tensor has overwritten it."""
        name = _file_named_in(coded)
        if name is None:
            return None
        if "#" not in name:
            self._uses_left[name] -= 1
            if self._uses_left[name]:
                return None
        if name in self._missing or not is_regular_inside(self._folder / name.partition("#")[0], self._folder):
            self._missing.add(name)
            return None
        return name

    def _same_bytes(self, one: str, other: str) -> bool:
        if "#" in one or "#" in other:
            return False  # written by fxdebug: equal data has one name
        a, b = self._folder / one, self._folder / other
        try:
            if a.stat().st_size != b.stat().st_size:
                return False
            return a.samefile(b) or self._digest_of_file(a) == self._digest_of_file(b)
        except OSError as error:
            self._refused[system_reason(error) or str(error)] += 1
            return False

    def _digest_of_file(self, path: Path) -> bytes | None:
        if path.name not in self._file_digests:
            with path.open("rb") as file:
                self._file_digests[path.name] = hashlib.file_digest(file, "blake2b").digest()
        return self._file_digests[path.name]

    def notes(self) -> list[str]:
        """Return notes on tensor files that are overwritten or missing, and on statistics that are unknown."""
        notes = []
        if self._overwritten:
            names = sorted(self._overwritten)
            notes.append(
                f"{len(names)} files stand for several tensors each, of which the debugger kept the last: the data of "
                f"the others is lost ({', '.join(names[:2])}{', …' if len(names) > 2 else ''})"
            )
        if self._missing:
            names = sorted(self._missing)
            notes.append(f"{len(names)} files of tensors are missing: {', '.join(names[:2])}{', …' * (len(names) > 2)}")
        for reason, count in self._refused.items():
            notes.append(
                f"{count} tensors could not be compared with earlier ones, and count as values of their own: {reason}"
            )
        if self._uncounted:
            notes.append(
                f"{self._uncounted} tensors hold NaN or infinities that the file does not count: "
                "with NaN one stands for any number, with infinities alone there are no statistics"
            )
        return notes


def _digest_of_text(lines: list[str]) -> bytes:
    return hashlib.blake2b("\n".join(map(str, lines)).encode("utf-8", "replace")).digest()


def _file_named_in(coded: dict[str, Any]) -> str | None:
    """Return the file, or file and key, that a tensor's JSON refers to; ``None`` for a file in another folder."""
    match = TENSOR_FILE.fullmatch(content) if isinstance(content := coded.get("value"), str) else None
    return None if match is None else match[1] if match[2] is None else f"{match[1]}#{match[2]}"


def _printed_stats(coded: dict[str, Any]) -> PrintedStats | None:
    mean, std, low, high = (coded.get(key) for key in _KEYS)
    if isinstance(mean, str) and isinstance(std, str) and isinstance(low, str) and isinstance(high, str):
        return mean, std, low, high
    return None


def _parse_shape(text: str) -> tuple[int, ...]:
    match = _SIZE.fullmatch(text)
    sizes = () if match is None else tuple([int(size) for size in match[1].split(",") if size.strip()])
    if match is None or not abs(math.prod(sizes)) < 1 << 63:
        raise Damaged(f"{shown(text)} is not the shape of a tensor")
    return sizes
