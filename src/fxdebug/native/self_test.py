"""Questions that a build must answer as Python does before it is used."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fxdebug.native.builds import LeftAside


def require_right_answers(core: ModuleType) -> None:
    """Raise :class:`~fxdebug.native.builds.LeftAside` if a build gives an answer that is not Python's."""
    for check in CHECKS:
        check(core)


def _require(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise LeftAside(f"its self-test fails: {what} is {found!r}, not {expected!r}")


CHECKS: tuple[Any, ...] = ()
