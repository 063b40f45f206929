"""The errors that fxdebug raises itself.

    FxDebugError
    ├── UsageError      called with arguments that cannot work (also a TypeError)
    ├── NotFound        a name that is not in this trace (also a LookupError)
    ├── SaveError       a run could not be written (also an OSError, and a ValueError as in transformers)
    ├── LoadError       a file is not a run we can read (also a ValueError)
    │   └── RankNeeded  a folder holds the runs of several ranks: one must be named
    ├── NonFinite       a run with stop_on_nonfinite=True met a NaN or infinity (also an ArithmeticError)
    ├── NativeError     the native core cannot be built, or cannot be used though it must (also a RuntimeError)
    └── MissingExtra    an optional library is not installed (also an ImportError)

An exception of the *model* is never wrapped in one of these: the object that the model raised passes through
unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import CodeType

from fxdebug.printable import printable_lines


class FxDebugError(Exception):
    """The parent of all errors that fxdebug raises itself."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class UsageError(FxDebugError, TypeError):
    """A call with arguments that cannot work; the message says what to pass instead."""


class NotFound(FxDebugError, LookupError):
    """A name that does not occur in this trace; the message offers the nearest ones."""


class SaveError(FxDebugError, OSError, ValueError):
    """A run that could not be written; the message names the path."""


class LoadError(FxDebugError, ValueError):
    """A file that is no run of fxdebug, is damaged, or was written by a newer version."""


class RankNeeded(LoadError):
    """A folder with the runs of several ranks, of which one must be named; ``folder`` and ``ranks`` say which."""

    folder: str = ""
    ranks: tuple[int, ...] = ()


class NonFinite(FxDebugError, ArithmeticError):
    """A NaN or infinity stopped a run with ``stop_on_nonfinite=True``.

    The message says which operation made it, from which inputs, and where. ``kind`` is that of a finding (``nan``,
    ``inf``, ``input``, ``weight``, ``uninitialised``), ``path`` that of the module, ``call`` the id of the call, ``op``
    the name of the operation and ``source`` the user's line.
    """

    kind: str = "nan"
    path: str = ""
    call: str = ""
    op: str = ""
    source: str | None = None


class NativeError(FxDebugError, RuntimeError):
    """The native core cannot be built, or ``FXDEBUG_NATIVE=1`` asks for one that cannot be used; it says why."""


class MissingExtra(FxDebugError, ImportError):
    """An optional library is missing; the message names the extra to install."""


def needs(what: str, package: str, extra: str) -> MissingExtra:
    """Return the error for a missing optional library, with the command that installs it.

    >>> str(needs("reading a tokenizer", "transformers", "transformers"))
    "reading a tokenizer needs the package 'transformers': pip install 'fxdebug[transformers]'"
    """
    return MissingExtra(f"{what} needs the package {package!r}: pip install 'fxdebug[{extra}]'")


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return a sentence that offers the names closest to ``name``, or an empty string.

    >>> nearest("h.12", ["h.0", "h.11", "wte"])
    " Did you mean 'h.11' or 'h.0'?"

    A name that ends with it comes first: ``h.0`` stands for ``transformer.h.0``.

    >>> nearest("h.0", ["transformer.h.0", "transformer.h.1"])
    " Did you mean 'transformer.h.0'?"
    """
    names = list(dict.fromkeys(known))
    ends = tuple(f"{sign}{name}" for sign in "./") if name else ()
    close = [one for one in names if ends and one.endswith(ends)][:count]
    close = close or difflib.get_close_matches(name, names, n=count, cutoff=0.5)
    if not close:
        return ""
    return " Did you mean " + " or ".join(repr(match) for match in close) + "?"


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, or a remark if its ``str`` raises.

    >>> first_line(ValueError("no such layer\\n  in this model"))
    'no such layer'
    """
    try:
        text = str(error)
    except Exception as second:
        return f"(its text cannot be shown: {type(second).__name__})"
    return text.splitlines()[0] if text else ""


def with_article(name: str) -> str:
    """Return a noun or the name of a class after its article.

    >>> with_article("Linear"), with_article("int"), with_article("Embedding")
    ('a Linear', 'an int', 'an Embedding')
    """
    return f"an {name}" if name[:1].lower() in {"a", "e", "i", "o"} else f"a {name}"


def came_through(error: BaseException, codes: tuple[CodeType, ...]) -> bool:
    """Did an exception pass through one of these functions on its way to the frame that caught it?"""
    link = error.__traceback__
    while link is not None and (link := link.tb_next) is not None:
        if link.tb_frame.f_code in codes:
            return True
    return False
