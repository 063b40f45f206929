"""Errors of the system while a file is read: too little memory, no file handles, no rights, a failing disk.

They say nothing about the file, which may be whole: they must never be told as damage.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fxdebug.errors import LoadError, first_line

_NO_MEMORY = "there is too little memory for it: free some"
_MORE = "or read it where there is more"
_HANDLES = ": close some, or raise the limit with ulimit -n"
_ADVICE = {errno.EMFILE: _HANDLES, errno.ENFILE: _HANDLES}
_NUMBER_IN_TEXT = re.compile(r"\(os error (\d+)\)|Error code (\d+)|unable to [^\n]*\((\d+)\)")


@contextlib.contextmanager
def system_errors_told(path: Path, less: str = _MORE) -> Iterator[None]:
    """Turn an error of the system while a file is read into a ``LoadError`` that says what it is; others pass.

    ``less`` says what else to do where the memory is too little.
    """
    try:
        yield
    except Exception as error:
        reason = system_reason(error, less)
        if reason is None:
            raise
        raise LoadError(f"{path} cannot be read: {reason}") from error


def system_reason(error: Exception, less: str = _MORE) -> str | None:
    """Return what the system refused, and what to do; ``None`` for an error that is not the system's.

    >>> system_reason(OSError(errno.EACCES, "Permission denied"))
    'Permission denied'
    >>> print(system_reason(MemoryError(), "or read fewer at once"))
    there is too little memory for it: free some, or read fewer at once
    >>> system_reason(ValueError("no JSON"))

    Torch and safetensors raise errors of other types, with the number of the system's error in their texts.

    >>> system_reason(RuntimeError("unable to open file <a>: Too many open files (24)"))
    'Too many open files: close some, or raise the limit with ulimit -n'
    """
    number = _number_of(error)
    if number == errno.ENOMEM:
        return f"{_NO_MEMORY}, {less}"
    if number:
        return os.strerror(number) + _ADVICE.get(number, "")
    return first_line(error) or type(error).__name__ if isinstance(error, OSError) else None


def _number_of(error: Exception) -> int:
    """Return the number of the system's error that an exception tells; 0 where there is none."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return errno.ENOMEM
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = _NUMBER_IN_TEXT.search(str(error)) if isinstance(error, (OSError, RuntimeError)) else None
    return int(next(filter(None, match.groups()))) if match else 0
