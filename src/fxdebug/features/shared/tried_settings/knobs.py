"""The registry of knobs: changes of a model's settings, each applied to a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fxdebug.features.shared.tried_settings.subject import Subject

_Tries = Callable[[Subject], "Iterator[Try]"]


@dataclass(frozen=True, eq=False)
class Try:
    """One position of a knob: its name, the lines of code that set it, and the subject that has it.

    ``prepare`` may raise ``NotHere``, or whatever torch raises. ``threads`` is how many it lets work, where it changes
    that.
    """

    name: str
    code: str
    prepare: Callable[[Subject], Subject]
    threads: int = 0


@dataclass(frozen=True, eq=False)
class Knob:
    """A knob: its name, what it tries on a subject, and whether it is tried only where it is named."""

    name: str
    about: str
    tries: _Tries
    asked_for: bool = False


KNOBS: dict[str, Knob] = {}


def knob(name: str, *, asked_for: bool = False) -> Callable[[_Tries], _Tries]:
    """Register a function that yields the tries of a knob; the first line of its docstring tells what it changes."""

    def add(function: _Tries) -> _Tries:
        about = (function.__doc__ or "").partition("\n")[0].rstrip(".")
        KNOBS[name] = Knob(name, about, function, asked_for)
        return function

    return add
