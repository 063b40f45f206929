"""Short reprs of records: a record in a list, a prompt or a message takes a line or two, whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar

from fxdebug.printable import printable

MOST = 200  # characters of a repr
_EACH, _SHOWN = 60, 3  # characters of one field, and items of a list that are written out
_Record = TypeVar("_Record", bound=type)


def brief(kind: _Record) -> _Record:
    """Give a dataclass a repr of a line: its fields that say something, those that hold much by what they are.

    >>> from dataclasses import dataclass
    >>> @brief
    ... @dataclass
    ... class Run:
    ...     name: str
    ...     numbers: tuple[int, ...] = ()
    ...     note: str = ""
    >>> Run("a", tuple(range(1000)))
    Run(name='a', numbers=<1000 items>)
    """
    setattr(kind, "__repr__", _repr)  # noqa: B010 - mypy takes it for a method that is bound
    return kind


def _repr(self: Any) -> str:
    shown = [each.name for each in fields(self) if each.repr and _says(self, each)]
    said = ", ".join([f"{name}={_short(getattr(self, name))}" for name in shown])
    return printable(f"{type(self).__name__}({cut(said, MOST)})")


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning with an ellipsis.

    >>> cut("abcdef", 4), cut("abcd", 4)
    ('abc…', 'abcd')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def _says(record: Any, field: Field[Any]) -> bool:
    content = getattr(record, field.name)
    is_empty = (isinstance(content, str) or _is_container(content)) and not content
    return not is_empty and not (content is None and field.default is None)


def _is_container(content: Any) -> bool:
    return isinstance(content, (tuple, list, set, frozenset, Mapping))


def _short(content: Any) -> str:
    if isinstance(content, (str, bytes)):
        return repr(content) if len(content) <= _EACH else repr(content[: _EACH - 1]) + "…"
    if _is_container(content) and not (isinstance(content, (tuple, list)) and len(content) <= _SHOWN):
        return f"<{len(content)} items>" if content else repr(content)
    if isinstance(content, (tuple, list)):
        inside = ", ".join([_short_inside(each) for each in content])
        one = "," if len(content) == 1 else ""
        return f"({inside}{one})" if isinstance(content, tuple) else f"[{inside}]"
    if vars(type(content)).get("__repr__") is _repr:
        return f"{type(content).__name__}(…)"
    return cut(repr(content), _EACH)


def _short_inside(content: Any) -> str:
    if _is_container(content) and not (isinstance(content, tuple) and _SCALARS.issuperset(map(type, content[:_SHOWN]))):
        return f"<{len(content)} items>"
    return _short(content)


_SCALARS = frozenset((int, float, bool, str, type(None)))
