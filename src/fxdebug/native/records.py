"""Constructors of records that are made by the thousand, in the core where it is in use."""

from __future__ import annotations

import functools
from dataclasses import MISSING, fields
from types import ModuleType
from typing import Any

from fxdebug.data.values import Kind, fast_constructor
from fxdebug.native import dispatch


def record_constructor(kind: type[Kind]) -> type[Kind]:
    """Return a constructor of a frozen dataclass with slots that takes the fields by position.

    Such a record holds data alone. The core's has the garbage collector pass over its records: none is in a cycle.

    >>> from fxdebug.data.values import Stats
    >>> record_constructor(Stats)(1, 2.0, 0.0, 2.0, 2.0, 2.0) == Stats(1, 2.0, 0.0, 2.0, 2.0, 2.0)
    True
    """
    made: type[Kind] = _constructor(dispatch.core(), kind)  # type: ignore[arg-type]  # a class is hashable
    return made


@functools.lru_cache
def _constructor(core: ModuleType | None, kind: type[Any]) -> Any:
    if core is None:
        return fast_constructor(kind)
    defaults = [field.default for field in fields(kind)]
    required = max([index + 1 for index, default in enumerate(defaults) if default is MISSING], default=0)
    return core.record(kind, tuple([kind.__dict__[field.name] for field in fields(kind)]), tuple(defaults[required:]))
