"""The names in the code of a function: globals, and not attributes that have the same name."""

from __future__ import annotations

import argparse
import builtins
import dis
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fxdebug.capture.replay import functions
from fxdebug.capture.replay.functions import globals_in


# fmt: off
def reads_an_attribute(self: Any) -> Any: return self.c + shift  # type: ignore[name-defined] # noqa: F821
def in_a_comprehension(self: Any) -> Any: return [self.c for _ in range(c)]  # type: ignore[name-defined]
def in_a_lambda(self: Any) -> Any: return lambda: self.c + (lambda: c)()  # type: ignore[name-defined]
def by_the_dict_of_globals(self: Any) -> Any: return globals()["c"] + self.d
def through_its_own_module(self: Any) -> Any: return sys.modules[__name__].c  # type: ignore[name-defined] # noqa: F821
# fmt: on


def sets_it(self: Any) -> None:
    global c
    c = self.d


def deletes_it(self: Any) -> None:
    global c
    del c  # type: ignore[name-defined]


def in_a_class_body(self: Any) -> type:
    class Local:
        a = c  # type: ignore[name-defined]
        b = self.d

        def method(self) -> Any:
            return d  # type: ignore[name-defined] # noqa: F821

    return Local


def closes_over(c: Any) -> Callable[[], Any]:
    def inner() -> Any:
        nonlocal c
        c = c.d
        return c

    return inner


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (reads_an_attribute, {"shift"}),
        (in_a_comprehension, {"range", "c"}),
        (in_a_lambda, {"c"}),
        (sets_it, {"c"}),
        (deletes_it, {"c"}),
        (in_a_class_body, {"c", "d", "__name__"}),
        (closes_over, set()),
        (by_the_dict_of_globals, {"globals", "c", "d"}),
        (through_its_own_module, {"sys", "modules", "__name__", "c"}),
    ],
)
def test_a_name_counts_where_code_may_look_it_up_as_a_global(function: Callable[..., Any], names: set[str]) -> None:
    assert globals_in(function.__code__) == names


def codes(space: types.ModuleType) -> Iterator[types.CodeType]:
    pending = [thing.__code__ for thing in vars(space).values() if type(thing) is types.FunctionType]
    for kind in [thing for thing in vars(space).values() if isinstance(thing, type)]:
        pending += [thing.__code__ for thing in vars(kind).values() if type(thing) is types.FunctionType]
    while pending:
        yield (code := pending.pop())
        pending += [each for each in code.co_consts if isinstance(each, types.CodeType)]


def test_globals_are_those_that_the_disassembler_of_this_python_shows() -> None:
    seen = 0
    for code in [*codes(argparse), *codes(functions)]:
        shown = {
            each.argval
            for each in dis.get_instructions(code)
            if each.opname.endswith("_GLOBAL") or each.opname in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
        }
        own = code.replace(co_consts=tuple([None if isinstance(x, types.CodeType) else x for x in code.co_consts]))
        assert set(functions._globals_in(own)) == shown, code
        seen += len(shown)
    assert seen > 200 and hasattr(builtins, "len")


def test_a_name_after_the_256th_is_read_right() -> None:
    lines = [f"    self.a{i}" for i in range(300)] + ["    return late"]
    space: dict[str, Any] = {}
    exec("def many(self):\n" + "\n".join(lines), space)
    assert globals_in(space["many"].__code__) == {"late"}
