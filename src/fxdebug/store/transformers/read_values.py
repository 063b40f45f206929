"""The tensors in a standard tree: their statistics from print, which of them are one value, and their data.

torch prints four digits, so statistics are good to half a unit of the fifth. Where all elements of a tensor are
printed they are counted and measured from there.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeGuard

from fxdebug.data.values import Value
from fxdebug.store.transformers.parse_statistics import parse_statistics_of, printed_digits, printed_numbers
from fxdebug.store.transformers.printed_statistics import PrintedStats

TENSOR_FILE = re.compile(r"\./([^/\\\0#]+\.safetensors)(?:#(v\d+))?")

_SIZE = re.compile(r"torch\.Size\(\[((?:-?\d+(?:, )?)*)\]\)")
_DEVICE = re.compile(r"device='([^']+)'")
_KEYS = ("mean", "std", "min", "max")


def is_tensor(coded: Any) -> TypeGuard[dict[str, Any]]:
    """Is it the JSON of a tensor? A mapping of the model's with such keys has its own texts in quotation marks."""
    if not isinstance(coded, dict):
        return False
    shape, dtype = coded.get("shape"), coded.get("dtype")
    return isinstance(shape, str) and shape.startswith("torch.Size(") and str(dtype).startswith("torch.")


class TreeValues:
    """The values of one tree, by sighting. ``tensors`` are all that it will be shown, in that order."""

    def __init__(self, folder: Path, tensors: Iterable[dict[str, Any]]) -> None:
        self.values: list[Value] = []
        self.words: dict[int, PrintedStats] = {}
        self.lines: dict[int, list[str]] = {}
        self.files: dict[int, str] = {}
        self.precision = 4
        self._folder = folder
        self._named = Counter(
            name for coded in tensors if (name := _file_named_in(coded)) is not None and "#" not in name
        )
        self._overwritten = {name for name, count in self._named.items() if count > 1}
        self._missing: set[str] = set()
        self._digests: dict[str, bytes | None] = {}
        self._uncounted = 0
        self._texts: dict[int, bytes] = {}
        self._alike: dict[Any, list[Value]] = {}  # values by shape, dtype and printed statistics
        self._of_call: list[Value] = []
        self._leaving = False

    def enter(self) -> None:
        """What comes now are inputs of the next call: anything that was met before may be among them."""
        self._of_call, self._leaving = [], False

    def leave(self) -> None:
        """What comes now are its outputs: new, but for what it was given itself."""
        self._leaving = True

    def see(self, coded: dict[str, Any]) -> Value:
        """The value of a tensor's JSON; the same as before where its data is known to be equal."""
        words = _printed_stats(coded)
        shape, dtype = _parse_shape(coded["shape"]), str(coded["dtype"]).removeprefix("torch.")
        content = coded.get("value")
        lines = content if isinstance(content, list) else None
        text = (
            None if lines is None else hashlib.blake2b("\n".join(map(str, lines)).encode("utf-8", "replace")).digest()
        )
        file = self._trusted(coded)
        known = self._alike.setdefault((shape, dtype, words), [])
        for value in reversed(known):
            if self._is_same(value, words, text, file) and (not self._leaving or value in self._of_call):
                break
        else:
            value = self._new(shape, dtype, words, lines)
            known.append(value)
            if text is not None:
                self._texts[value.number] = text
        if file is not None and value.saved is None:  # where it was seen first its file was overwritten
            object.__setattr__(value, "saved", file if "#" in file else f"{file}#data")
            self.files[value.number] = file
        self._of_call.append(value)
        return value

    def _new(self, shape: tuple[int, ...], dtype: str, words: PrintedStats | None, lines: list[str] | None) -> Value:
        number, stats = len(self.values), parse_statistics_of(shape, dtype, words, lines)
        device = next((found[1] for word in words or () if (found := _DEVICE.search(word))), "cpu")
        if (
            words is not None
            and not all(map(math.isfinite, printed_numbers(words)))
            and (stats is None or stats.nan == 1)
        ):
            self._uncounted += lines is None and math.prod(shape) > 1
        value = Value(number, shape, dtype, device, stats=stats)
        self.values.append(value)
        if words is not None:
            self.words[number] = words
            self.precision = max(printed_digits(word) for word in words) or self.precision
        if lines is not None:
            self.lines[number] = lines
        return value

    def _is_same(self, value: Value, words: PrintedStats | None, text: bytes | None, file: str | None) -> bool:
        """Nothing tells them apart, and something says that they are equal."""
        other_text, other_file = self._texts.get(value.number), self.files.get(value.number)
        if text is not None and other_text is not None:
            return text == other_text
        if file is not None and other_file is not None:
            return file == other_file or self._same_bytes(file, other_file)
        return words is not None

    # Files ---------------------------------------------------------------------------------------

    def _trusted(self, coded: dict[str, Any]) -> str | None:
        """The file a tensor lies in, if it holds this one: of several with one name only the last was kept."""
        name = _file_named_in(coded)
        if name is None:
            return None
        if "#" not in name:
            self._named[name] -= 1
            if self._named[name]:
                return None
        if name in self._missing or not (self._folder / name.partition("#")[0]).is_file():
            self._missing.add(name)
            return None
        return name

    def _same_bytes(self, one: str, other: str) -> bool:
        if "#" in one or "#" in other:
            return False  # ours: equal data has one name
        a, b = self._folder / one, self._folder / other
        try:
            if a.stat().st_size != b.stat().st_size:
                return False
            return a.samefile(b) or self._digest(a) == self._digest(b)
        except OSError:
            return False

    def _digest(self, path: Path) -> bytes | None:
        if path.name not in self._digests:
            with path.open("rb") as file:
                self._digests[path.name] = hashlib.file_digest(file, "blake2b").digest()
        return self._digests[path.name]

    def remarks(self) -> list[str]:
        """What must be said about the tensors."""
        found = []
        if self._overwritten:
            names = sorted(self._overwritten)
            found.append(
                f"{len(names)} files stand for several tensors each, of which the debugger kept the last: the data of "
                f"the others is lost ({', '.join(names[:2])}{', …' if len(names) > 2 else ''})"
            )
        if self._missing:
            names = sorted(self._missing)
            found.append(f"{len(names)} files of tensors are missing: {', '.join(names[:2])}{', …' * (len(names) > 2)}")
        if self._uncounted:
            found.append(
                f"{self._uncounted} tensors hold NaN or infinities that the file does not count: "
                "with NaN one stands for any number, with infinities alone there are no statistics"
            )
        return found


def _file_named_in(coded: dict[str, Any]) -> str | None:
    """The file, or file and key, that a tensor's JSON refers to; one in another folder is none of it."""
    match = TENSOR_FILE.fullmatch(content) if isinstance(content := coded.get("value"), str) else None
    return None if match is None else match[1] if match[2] is None else f"{match[1]}#{match[2]}"


def _printed_stats(coded: dict[str, Any]) -> PrintedStats | None:
    mean, std, low, high = (coded.get(key) for key in _KEYS)
    if isinstance(mean, str) and isinstance(std, str) and isinstance(low, str) and isinstance(high, str):
        return mean, std, low, high
    return None


def _parse_shape(text: str) -> tuple[int, ...]:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not the shape of a tensor")
    return tuple([int(size) for size in match[1].split(",") if size.strip()])
