"""The line of the user's source that asked for an operation or a call: noted cheaply, decoded on demand."""

from __future__ import annotations

import ast
import linecache
import sys
import weakref
from collections.abc import Callable
from itertools import islice
from types import CodeType, FrameType
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules import module as torch_module

from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.torch_state.uncounted import is_uncounted
from fxdebug.capture.torch_state.whose_code import is_command_line, is_our_file, is_pythons_file, is_torchs_file

_CALLING_FILES = (nn.Module._call_impl.__code__.co_filename, torch_module.__file__)

MOST_TEXTS = 100_000
_texts: dict[tuple[int, int], tuple[weakref.ref[CodeType], str]] = {}  # decoding positions takes 0.1 ms


class Line:
    """A place in code: the code object and the instruction in it; decoded on demand."""

    __slots__ = ("code", "instruction")

    def __init__(self, code: CodeType, instruction: int) -> None:
        self.code = code
        self.instruction = instruction

    def _position(self) -> tuple[int | None, int | None, int | None, int | None]:
        position = next(islice(self.code.co_positions(), self.instruction // 2, None), None)
        return position or (self.code.co_firstlineno, None, None, None)

    def text(self) -> str:
        """Return the line as ``path/to/file.py:12``."""
        key = id(self.code), self.instruction
        code, text = _texts.get(key, (None, ""))
        if code is None or code() is not self.code:  # the id is another code's now
            if len(_texts) > MOST_TEXTS:
                _texts.clear()
            text = f"{self.code.co_filename}:{self._position()[0]}"
            _texts[key] = weakref.ref(self.code), text
        return text

    def attribute(self) -> str | None:
        """Return the attribute that is called here (``second`` in ``self.second(x)``), if the source can be read."""
        line, end_line, start, end = self._position()
        if line is None or end_line is None or start is None or end is None:
            return None
        lines = [linecache.getline(self.code.co_filename, n).encode() for n in range(line, end_line + 1)]
        if not all(lines):
            return None
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        try:
            called = ast.parse(b"".join(lines).decode().strip(), mode="eval").body
        except (SyntaxError, ValueError):
            return None
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute):
            return called.func.attr
        return None


_entry_points: dict[int, CodeType] = {}  # by id: hashing code takes longer than the rest
_Function = TypeVar("_Function", bound=Callable[..., Any])


def runs_user_code(function: _Function) -> _Function:
    """Mark a function that runs the program's code again: :func:`user_line` searches no further than this function.

    The function's own caller did not ask for the operations in it.
    """
    _entry_points[id(function.__code__)] = function.__code__
    return function


def _shared(frame: FrameType, known: dict[tuple[int, int], Line]) -> Line:
    key = id(frame.f_code), frame.f_lasti
    line = known.get(key)
    if line is None:
        line = known[key] = Line(frame.f_code, frame.f_lasti)
    return line


def user_line(
    frame: FrameType | None,
    known: dict[tuple[int, int], Line],
    inside: CodeType | None = None,
    called: Line | None = None,
) -> Line | None:
    """Return the nearest line outside torch and fxdebug, from ``frame`` outwards: the user's code that asked for this.

    ``known`` has the lines noted so far, by the code's id and the instruction; a line keeps its code alive, so that the
    id is not reused. ``called`` is the line that called the function ``inside``, if known: the search ends there.
    """
    for _ in range(64):
        if frame is None:
            return None
        code = frame.f_code
        home = _homes.get(code.co_filename)
        home = _home(code.co_filename) if home is None else home
        if home == _USERS:
            return _shared(frame, known)
        if code is inside and called is not None:
            return called
        if home == _COMMANDS or id(code) in _entry_points:
            return None
        frame = frame.f_back
    return None


class UserLines:
    """The lines of the user's source that asked for operations, each kept once.

    >>> lines = UserLines()
    >>> callable(lines.asking(sys._getframe()))
    True
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Line] = {}

    def asking(self, frame: FrameType) -> Callable[[], str | None]:
        """Return a function that gives the nearest line of the user, from ``frame`` outwards, as ``file.py:12``.

        To find the line takes a microsecond, to make the text a tenth of a millisecond: call it after the run.
        """
        line = user_line(frame, self._known)
        return _nowhere if line is None else line.text


def _nowhere() -> None:
    """Return no line: nobody's code asked."""


def search_parts() -> tuple[Any, ...]:
    """Return what the native core needs to search as :func:`user_line` and :func:`caller_line` do."""
    return _homes, _home, _entry_points, Line, _USERS, _CALLING, _COMMANDS


def raised_at(error: BaseException) -> Line | None:
    """Return the user's line that raised: the last one outside torch, fxdebug and Python's own files."""
    line = None
    link = error.__traceback__
    while link is not None:
        file = link.tb_frame.f_code.co_filename
        if not file.startswith("<") and not is_our_file(file) and not _is_torchs_or_pythons(file):
            line = Line(link.tb_frame.f_code, link.tb_lasti)
        link = link.tb_next
    return line


def users_line(
    line: Line | None, caller: tuple[CodeType | None, Line | None] | None, known: dict[tuple[int, int], Line]
) -> Line | None:
    """Return the user's line that asked for a call: ``line``, which calls it, or one further out.

    ``caller`` has the code of the body that calls it, and the user's line that asked for that body. A container of
    torch's calls its children from one and the same frame: then nothing is searched.
    """
    if line is not None and _homes.get(line.code.co_filename) == _USERS:
        return line
    code, above = (None, None) if caller is None else caller
    if line is not None and above is not None and line.code is code:
        return above
    return user_line(sys._getframe(2), known, code, above)


def caller_line(known: dict[tuple[int, int], Line]) -> Line | None:
    """Return the line that called the module: the nearest frame that is neither fxdebug's nor ``nn.Module``'s.

    ``None`` where a command of fxdebug ran the model: the console script called it.

    ``known`` is as for :func:`user_line`.
    """
    frame: FrameType | None = sys._getframe(3)
    try:  # where a module is called in the usual way, the frames in between can be skipped
        usual = sys._getframe(_BETWEEN)
        if usual.f_code is _WRAPPED_CALL:
            frame = usual.f_back
    except ValueError:
        pass
    for _ in range(32):
        if frame is None:
            return None
        code = frame.f_code
        home = _homes.get(code.co_filename)
        home = _home(code.co_filename) if home is None else home
        if home != _CALLING:
            return None if home == _COMMANDS else _shared(frame, known)
        frame = frame.f_back
    return None


_WRAPPED_CALL = nn.Module._wrapped_call_impl.__code__
_BETWEEN = 8  # frames from caller_line to torch's: recorder, run, forward wrapper, torch's call and ours around it

_USERS, _TORCHS, _CALLING, _COMMANDS = range(4)  # code of: the user; torch or Python; the way into a module; commands
_homes: dict[str, int] = {}


def _is_torchs_or_pythons(file: str) -> bool:
    return is_torchs_file(file) or is_pythons_file(file)


def _home(file: str) -> int:
    if is_command_line(file):
        home = _COMMANDS
    elif file.startswith(_CALLING_FILES) or is_uncounted(file) or is_our_file(file):  # ours: ``api`` calls the model
        home = _CALLING
    else:
        home = _TORCHS if _is_torchs_or_pythons(file) else _USERS
    if len(_homes) < 10_000:
        _homes[file] = home
    return home


def with_line(reason: ReasonText, line: Line | None) -> ReasonText:
    """Return a reason with the line it is about, in brackets."""
    return reason if line is None else ReasonText(f"{reason} ({short_line(line)})")


def short_line(line: Line) -> str:
    """Return the line as ``file.py:12``, without the folders."""
    return line.text().rpartition("/")[2]
