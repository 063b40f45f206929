"""The tensors in a standard tree: their statistics from print, which of them are one value, and their data.

torch prints four digits, so statistics are good to half a unit of the fifth. Where all elements of a tensor are
printed they are counted and measured from there.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from fxdebug.data.values import Stats, Value
from fxdebug.errors import LoadError
from fxdebug.store.tensors.saved_values import Words
from fxdebug.store.transformers.printed_statistics import spread

LEAST_MASK = -1e4  # a tensor of zeros and this or less is an additive mask, of which zeros would have to be counted
TENSOR_FILE = re.compile(r"\./([^/\\\0#]+\.safetensors)(?:#(v\d+))?")

_SIZE = re.compile(r"torch\.Size\(\[((?:-?\d+(?:, )?)*)\]\)")
_NUMBER = r"[-+]?(?:inf|nan|\d+(?:\.\d*)?(?:e[-+]?\d+)?)"
_SCALAR = re.compile(rf"\(\s*({_NUMBER})\s*[,)]")
_ELEMENT = re.compile(rf"{_NUMBER}(?![\w.])|True|False")
_DEVICE = re.compile(r"device='([^']+)'")
_KEYS = ("mean", "std", "min", "max")


def is_tensor(coded: Any) -> TypeGuard[dict[str, Any]]:
    """Is it the JSON of a tensor? A mapping of the model's with such keys has its own texts in quotation marks."""
    if not isinstance(coded, dict):
        return False
    shape, dtype = coded.get("shape"), coded.get("dtype")
    return isinstance(shape, str) and shape.startswith("torch.Size(") and str(dtype).startswith("torch.")


class Sightings:
    """The values of one tree, by sighting. ``tensors`` are all that it will be shown, in that order."""

    def __init__(self, folder: Path, tensors: Iterable[dict[str, Any]]) -> None:
        self.values: list[Value] = []
        self.words: dict[int, Words] = {}
        self.lines: dict[int, list[str]] = {}
        self.files: dict[int, str] = {}
        self.precision = 4
        self._folder = folder
        self._named = Counter(name for coded in tensors if (name := _file_of(coded)) is not None and "#" not in name)
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
        words = _words(coded)
        shape, dtype = _shape(coded["shape"]), str(coded["dtype"]).removeprefix("torch.")
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

    def _new(self, shape: tuple[int, ...], dtype: str, words: Words | None, lines: list[str] | None) -> Value:
        number, stats = len(self.values), stats_of(shape, dtype, words, lines)
        device = next((found[1] for word in words or () if (found := _DEVICE.search(word))), "cpu")
        if words is not None and not all(map(math.isfinite, _numbers(words))) and (stats is None or stats.nan == 1):
            self._uncounted += lines is None and math.prod(shape) > 1
        value = Value(number, shape, dtype, device, stats=stats)
        self.values.append(value)
        if words is not None:
            self.words[number] = words
            self.precision = max(_digits(word) for word in words) or self.precision
        if lines is not None:
            self.lines[number] = lines
        return value

    def _is_same(self, value: Value, words: Words | None, text: bytes | None, file: str | None) -> bool:
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
        name = _file_of(coded)
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


def _file_of(coded: dict[str, Any]) -> str | None:
    """The file, or file and key, that a tensor's JSON refers to; one in another folder is none of it."""
    match = TENSOR_FILE.fullmatch(content) if isinstance(content := coded.get("value"), str) else None
    return None if match is None else match[1] if match[2] is None else f"{match[1]}#{match[2]}"


def _words(coded: dict[str, Any]) -> Words | None:
    mean, std, low, high = (coded.get(key) for key in _KEYS)
    if isinstance(mean, str) and isinstance(std, str) and isinstance(low, str) and isinstance(high, str):
        return mean, std, low, high
    return None


def _shape(text: str) -> tuple[int, ...]:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not the shape of a tensor")
    return tuple([int(size) for size in match[1].split(",") if size.strip()])


# Statistics --------------------------------------------------------------------------------------


def _numbers(words: Words) -> list[float]:
    """The numbers in ``tensor(1.2500e+00)``; NaN for a text that holds none."""
    found = [_SCALAR.search(word) for word in words]
    return [math.nan if match is None else float(match[1]) for match in found]


def _digits(word: str) -> int:
    match = re.search(r"\.(\d+)e", word)
    return 0 if match is None else len(match[1])


def stats_of(shape: tuple[int, ...], dtype: str, words: Words | None, lines: list[str] | None) -> Stats | None:
    """Statistics from the printed four and, where all elements are printed, from those.

    ``None`` where neither says enough: no text and a dtype the debugger has no statistics for, infinities or a mask
    that would have to be counted. The number of zeros is 0 where it is not known.

    >>> stats_of((2,), "float32", ("tensor(2.)", "tensor(1.4142e+00)", "tensor(1.)", "tensor(3.)"), None).absmax
    3.0
    >>> stats_of((3,), "int64", None, ["tensor([0, 5, 7])"]).max
    7
    """
    count = math.prod(shape)
    if count == 0:
        return Stats(0, None, None, None, None, None)
    elements = None if lines is None else _elements(lines, dtype, count)
    if words is None or _SCALAR.search(words[0]) is None:
        return None if elements is None else _measured(elements)
    mean, std, low, high = _numbers(words)
    if not (math.isfinite(low) and math.isfinite(high)):
        if elements is not None:
            return _measured(elements)
        return Stats(count, None, None, None, None, None, 1) if low != low else None
    zeros = 0 if elements is None else sum(1 for element in elements if element == 0)
    if elements is None and (not math.isfinite(mean) or (high == 0 and low <= LEAST_MASK)):
        return None
    if not math.isfinite(mean) or (not math.isfinite(std) and count > 1):  # the sum or its squares left the dtype
        return None if elements is None else _measured(elements)
    return Stats(count, mean, std if count > 1 else 0.0, low, high, max(abs(low), abs(high)), zeros=zeros)


def _elements(lines: list[str], dtype: str, count: int) -> list[float] | list[int] | None:
    """The elements as they are printed; ``None`` if they are not all there, or not readable."""
    text = " ".join(map(str, lines))
    if "..." in text or dtype.startswith(("complex", "q")) or not text.startswith(("tensor(", "Parameter containing:")):
        return None
    start, end = text.find("["), text.rfind("]")
    inside = text[start : end + 1] if start >= 0 else text[text.find("(") + 1 :].partition(",")[0]
    found = _ELEMENT.findall(inside)
    if len(found) != count:
        return None
    if dtype == "bool":
        return [int(element == "True") for element in found]
    exact = "int" in dtype
    try:
        return [int(element) for element in found] if exact else [float(element) for element in found]
    except ValueError:
        return None


def _measured(elements: list[float] | list[int]) -> Stats:
    """The statistics of elements in Python; there are never many, as torch abridges beyond a thousand."""
    finite = [element for element in elements if math.isfinite(element)]
    nan = sum(1 for element in elements if element != element)
    posinf, neginf = (sum(1 for element in elements if element == side) for side in (math.inf, -math.inf))
    if not finite:
        return Stats(len(elements), None, None, None, None, None, nan, posinf, neginf)
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((element - mean) ** 2 for element in finite)
    std = math.sqrt(squares / (len(finite) - 1)) if len(finite) > 1 else 0.0
    low, high = min(finite), max(finite)
    return Stats(
        len(elements), mean, std, low, high, max(abs(low), abs(high)), nan, posinf, neginf,
        sum(1 for element in finite if element == 0),
    )  # fmt: skip


# Data --------------------------------------------------------------------------------------------


class ReferenceFiles:
    """Answers for the data of a trace that was read from a standard tree."""

    lasting = True  # nothing live, so a trace that is pickled takes it along

    def __init__(self, folder: Path, words: Mapping[int, Words], lines: Mapping[int, list[str]]) -> None:
        self._folder = folder
        self._words = words
        self._lines = lines

    def lines(self, value: Value) -> list[str] | None:
        """The printed form, where the file has it."""
        return self._lines.get(value.number)

    def printed(self, value: Value) -> Words | None:
        """Mean, std, min and max as they stand in the file."""
        return self._words.get(value.number)

    def tensor(self, value: Value) -> Any:
        """The data of a value, held against its printed extremes.

        Raises :class:`LoadError` where the file holds other data: of a call that came later and has the same file
        name, or (of a lazily negated tensor) with the wrong sign.
        """
        from fxdebug.stats.measure import Unmeasurable, measure
        from fxdebug.store.tensors import read

        try:
            tensor = read.read_tensor(self._folder, value)
            _, _, low, high = spread(measure(tensor))
        except (RuntimeError, TypeError, KeyError, AttributeError, Unmeasurable) as error:
            what = f"{value.saved} cannot be read as value {value.number} ({value.label})"
            raise LoadError(f"{what}: {error}") from error
        words = self._words.get(value.number)
        if words is not None and not (_fits(low, words[2]) and _fits(high, words[3])):
            raise LoadError(
                f"{value.saved} holds other data than value {value.number} had ({value.label}): "
                "it was overwritten by a later call, or written with the wrong sign"
            )
        return tensor


def _fits(number: float, word: str) -> bool:
    """Is it the number that was printed, as far as that tells?"""
    printed = _SCALAR.search(word)
    if printed is None:
        return True
    other = float(printed[1])
    if not (math.isfinite(number) and math.isfinite(other)):
        return repr(number) == repr(other)
    return abs(number - other) <= 10.0 ** -_digits(word) * abs(other)
