"""The facts of an exception that ended a run for want of memory: how much was asked for, and at which line."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from fxdebug.capture.source.source_line import raised_at

HOW_TO_SEE = (
    "fxdebug.memory(model, inputs, limit=BYTES), or fxdebug memory --limit, tells what is alive at each moment, and "
    "which batch or settings would fit"
)
_ASKED = re.compile(r"(?:tried to allocate|alloc of|allocate) ([\d.]+) ?(bytes|B|[KMGT]i?B)?", re.IGNORECASE)
_SAYS_SO = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")


@dataclass(frozen=True)
class NoMemory:
    """The bytes that were asked for, where the exception says so, the line of the user's code, and what was in use.

    ``in_use`` is what tensors take on the accelerator; ``None`` on a CPU, where torch does not count it.
    """

    bytes: int | None
    line: str | None
    in_use: int | None


def no_memory(error: BaseException | None) -> NoMemory | None:
    """Return what an exception says about memory that there was not; ``None`` for any other exception.

    >>> no_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")).bytes
    2684354560
    >>> no_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")).bytes
    4096
    >>> no_memory(ValueError("no"))
    """
    is_ours = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    text = _first_argument(error) if is_ours or isinstance(error, RuntimeError) else ""
    if error is None or not (is_ours or _is_said(text)):
        return None
    found, line = _ASKED.search(text), raised_at(error)
    asked = None if found is None else int(float(found[1]) * _unit(found[2] or "B"))
    in_use = torch.cuda.memory_allocated() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return NoMemory(asked, None if line is None else line.text(), in_use or None)


def _first_argument(error: BaseException | None) -> str:
    """Return the text that an exception was made with; to ask for its own text would run code of the program."""
    given = () if error is None else BaseException.args.__get__(error)  # type: ignore[attr-defined]
    return given[0] if given and type(given[0]) is str else ""


def _is_said(text: str) -> bool:
    return any(words in text.lower() for words in _SAYS_SO)


def _unit(name: str) -> int:
    return 1024 ** " kmgt".index(name[0].lower()) if name[0].lower() in "kmgt" else 1
