"""The one guard around what a probe does besides the model's own code: a failure of ours becomes a note.

Every hook on a tensor or a node, every mode and every observer that measures runs its own part in a :class:`Guard`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fxdebug.errors import first_line

P = ParamSpec("P")
R = TypeVar("R")
MOST = 20  # notes


class Guard:
    """Runs parts of a probe. ``notes`` are pairs of a module's path and what was not looked at there, each once.

    ``where`` returns the path of the module that runs.

    >>> guard = Guard()
    >>> guard("a quotient", lambda a, b: a / b, 1, 0), guard.notes
    (None, [('', 'a quotient was not looked at: ZeroDivisionError: division by zero')])
    """

    def __init__(self, where: Callable[[], str] = lambda: "") -> None:
        self.notes: list[tuple[str, str]] = []
        self._where = where

    def __call__(self, subject: str, look: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Return what ``look`` returns; ``None``, with a note about the subject, where it raises."""
        try:
            return look(*args, **kwargs)
        except Exception as error:  # the debugger never breaks the debugged
            self.note(f"{subject} was not looked at: {type(error).__name__}: {first_line(error)}")
            return None

    def hook(self, subject: str, look: Callable[..., None]) -> Callable[..., None]:
        """Return a hook on a tensor or a node of autograd that only looks."""

        def hook(*given: Any) -> None:
            self(subject, look, *given)

        return hook

    def note(self, what: str) -> None:
        """Note what was not looked at in the module that runs."""
        try:
            note = self._where(), what
        except Exception:
            note = "", what
        if note not in self.notes and len(self.notes) <= MOST:
            self.notes.append(note if len(self.notes) < MOST else ("", "further parts were not looked at"))

    def texts(self) -> list[str]:
        """Return the notes as texts, with the path before."""
        return [f"{where}: {what}" if where else what for where, what in self.notes]
