"""Data of values that a run keeps: each value's once, given to the keeper as soon as the value is made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from fxdebug.capture.tensors.checksum import Checksum, checksum_of
from fxdebug.capture.tensors.special_tensors import description_of
from fxdebug.data.values import Value
from fxdebug.errors import first_line

AddNote = Callable[[str], None]
"""Take the text of a note on the current call."""


class Keeper(Protocol):
    """Gets the data of each new value when it is made: a store of tensors or of printed text."""

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None: ...


class KeptData:
    """The values whose data a keeper has. Call it inside ``untracked``.

    ``everything``: also the values of operations; ``attention``: operands and results of attentions.
    """

    def __init__(self, keeper: Keeper, note: AddNote, lock: threading.RLock) -> None:
        self.numbers: set[int] = set()
        self.everything: bool = getattr(keeper, "everything", False)
        self.attention: bool = getattr(keeper, "attention", False)
        self.note = note
        self._keeper = keeper
        self._lock = lock
        self._checksums: dict[int, Checksum | None] = {}  # by number, of values that may change without a version

    def __call__(self, value: Value, tensor: Tensor) -> None:
        """Keep the data of a plain tensor's value: the native core asks for it where ``numbers`` lacks the value."""
        with self._lock:
            if value.number not in self.numbers:
                self.keep(value, tensor, tensor)

    def keep(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        """Keep the data of a value, whose tensor has them in ``body``; ``None``: look for them."""
        self.numbers.add(value.number)
        try:
            self._keeper(value, tensor, description_of(tensor).body if body is None else body)
        except Exception as error:
            self.note(f"value {value.number} was not saved: {type(error).__name__}: {first_line(error)}")

    def note_checksum(self, value: Value, tensor: Tensor) -> None:
        """Note what a kept value is made of, as writes to its memory are not counted from now on."""
        if value.number in self.numbers and value.number not in self._checksums:
            self._checksums[value.number] = checksum_of(tensor, None)

    def is_same(self, value: Value, body: Tensor) -> bool:
        """Has a tensor the very data that were kept? Elements that changed places leave statistics alone."""
        checksum = self._checksums.get(value.number)
        return checksum is not None and checksum == checksum_of(body, None)
