"""Functions with two implementations: the native core where it is in use and handles the case, Python otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar, cast

from fxdebug.native.core import loaded

Function = TypeVar("Function", bound=Callable[..., Any])


class Dispatched:
    """A function with a native and a Python implementation; ``run`` is the one in use, chosen by the first call."""

    __slots__ = ("_name", "_needs", "_python", "run")

    def __init__(self, name: str, python: Callable[..., Any], needs: tuple[Any, ...]) -> None:
        self._name, self._python, self._needs = name, python, needs
        self.run: Callable[..., Any] = self._choose

    def _choose(self, *args: Any) -> Any:
        use(loaded().module)
        return self.run(*args)

    def use(self, module: ModuleType | None) -> None:
        """Run in this module from now on; ``None``: in Python."""
        if module is None:
            self.run = self._python
            return
        native, python = getattr(module, self._name)(*self._needs), self._python

        def run(*args: Any) -> Any:
            found = native(*args)
            return python(*args) if found is NotImplemented else found

        self.run = run


_dispatched: list[Dispatched] = []
_in_use: ModuleType | None = None
_is_chosen = False


def natively(name: str, *needs: Any) -> Callable[[Function], Function]:
    """Make a function run in the native core where that is in use; the function itself is the Python implementation.

    ``name`` is a factory of the core, which returns the native function for ``needs``, such as classes. That function
    takes the same arguments by position and returns the same, or ``NotImplemented`` for a case left to Python.
    """

    def decorate(python: Function) -> Function:
        function = Dispatched(name, python, needs)
        if _is_chosen:
            function.use(_in_use)
        _dispatched.append(function)

        @functools.wraps(python)
        def either(*args: Any) -> Any:
            return function.run(*args)

        return cast("Function", either)

    return decorate


def use(module: ModuleType | None) -> None:
    """Run every function of :func:`natively` in this module from now on; ``None``: in Python."""
    global _in_use, _is_chosen
    _in_use, _is_chosen = module, True
    for function in _dispatched:
        function.use(module)


def core() -> ModuleType | None:
    """Return the module that is in use; ``None`` while all runs in Python."""
    if not _is_chosen:
        use(loaded().module)
    return _in_use


@contextmanager
def using(module: ModuleType | None) -> Iterator[None]:
    """Run in this module, or in Python, for a while: tests compare the two."""
    before = core()
    use(module)
    try:
        yield
    finally:
        use(before)
