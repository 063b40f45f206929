"""Objects with an internal state: generators and arrays are restored, files and the like are blocked."""

from __future__ import annotations

import array
import enum
import functools
import io
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from fxdebug.capture import reasons
from fxdebug.capture.reasons import CannotTrace, ReasonText
from fxdebug.capture.torch_state.whose_code import is_part_of

_LARGE = 1 << 24  # bytes: an array of this size or more is not copied


# Restorers ---------------------------------------------------------------------------------------


def restorer(thing: Any) -> Callable[[], bool] | None:
    """Return a call that restores the present state of a generator or an array; ``None`` for other objects.

    The call returns whether the state had changed.
    """
    kind = type(thing)  # not isinstance: it believes the object's ``__class__``, which may be anything
    if issubclass(kind, random.Random):
        return restorer_by(thing.getstate, thing.setstate)
    if issubclass(kind, torch.Generator):
        return restorer_by(thing.get_state, thing.set_state, lambda state: state.numpy().tobytes())
    if issubclass(kind, array.array):
        return restorer_by(thing.tobytes, lambda content: _fill(thing, content))
    if issubclass(kind, bytearray):
        return restorer_by(lambda: bytes(thing), functools.partial(thing.__setitem__, slice(None)))
    if is_part_of(kind.__module__, "numpy"):
        numpy = sys.modules["numpy"]
        if issubclass(kind, numpy.random.RandomState):
            return restorer_by(thing.get_state, thing.set_state, _comparable)
        if issubclass(kind, numpy.random.Generator):
            bits = thing.bit_generator
            return restorer_by(lambda: bits.state, functools.partial(setattr, bits, "state"), _comparable)
        if issubclass(kind, numpy.ndarray) and thing.flags.writeable and thing.nbytes < _LARGE:
            return restorer_by(thing.copy, functools.partial(thing.__setitem__, ...), lambda state: state.tobytes())
    return None


def restorer_by(
    get: Callable[[], Any], put: Callable[[Any], Any], key: Callable[[Any], Any] | None = None
) -> Callable[[], bool]:
    """Return a call that restores the state that ``get()`` returns now, and returns whether it had changed.

    States are compared with ``==``. Where that does not work for a state, ``key(state)`` is compared instead.
    """
    state = get()
    known = state if key is None else key(state)

    def restore() -> bool:
        now = get()
        if (now if key is None else key(now)) == known:
            return False
        put(state)
        return True

    return restore


def _fill(numbers: array.array[Any], content: bytes) -> None:
    del numbers[:]
    numbers.frombytes(content)


def _comparable(state: Any) -> Any:
    """Return a state with bytes in place of its arrays, so that ``==`` compares it."""
    if isinstance(state, dict):
        return {name: _comparable(item) for name, item in state.items()}
    if isinstance(state, tuple):
        return tuple([_comparable(item) for item in state])
    return state.tobytes() if hasattr(state, "tobytes") else state


# Blockers ----------------------------------------------------------------------------------------


def blocker(thing: Any) -> Any:
    """Return an object to replace ``thing`` while bodies are re-executed; ``None`` if its use can be undone."""
    kind = type(thing)
    if issubclass(kind, functools._lru_cache_wrapper):
        return thing.__wrapped__  # results computed with placeholders must not be cached
    if issubclass(kind, io.IOBase):
        return _Blocker(thing, reasons.USES_OPEN_FILE())
    if issubclass(kind, _CONSTANT):
        return None
    homes = {str(base.__module__).partition(".")[0].removeprefix("_") for base in kind.__mro__}
    # ``queue.Queue`` needs no blocker: ``side_effects`` refuses its ``put`` and ``get``
    is_outward = not homes.isdisjoint(_OUTWARD) and kind.__module__ != "queue"
    if is_outward or issubclass(kind, _SIGNALS):
        return _Blocker(thing, reasons.USES_HELD(kind=kind.__name__))
    if issubclass(kind, (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodType)):
        owner = blocker(thing.__self__)
        return _Blocker(thing, vars(owner)["_reason"]) if type(owner) is _Blocker else None
    if kind.__module__ == "numpy" and hasattr(thing, "nbytes") and thing.nbytes >= _LARGE and thing.flags.writeable:
        return _Blocker(thing, reasons.USES_LARGE_ARRAY())
    if hasattr(kind, "__next__"):
        return _Blocker(thing, reasons.USES_ITERATOR())
    return None


_CONSTANT = (enum.Enum, bytes, complex, float, int, str)  # whichever module has their class: ``ssl.TLSVersion``

# Modules of Python's library with objects whose state cannot be read, or that reach outside this process.
_OUTWARD = frozenset(
    (
        "csv pickle hashlib md5 sha1 sha2 sha256 sha512 sha3 blake2 hmac sqlite3 socket ssl queue ctypes mmap "
        "multiprocessing subprocess tempfile zipfile tarfile shelve dbm asyncio zlib bz2 lzma"
    ).split()
)


# Classes with which threads signal to one another.
_SIGNALS = (threading.Semaphore, threading.Event, threading.Condition, threading.Barrier)


class _Blocker:
    """Replaces an object while bodies are traced: using it raises ``CannotTrace``, in the tracing thread only."""

    def __init__(self, thing: Any, reason: ReasonText) -> None:
        self.__dict__.update(_thing=thing, _reason=reason, _thread=threading.get_ident())

    def _use(self) -> Any:
        if threading.get_ident() == self._thread:
            raise CannotTrace(self._reason)
        return self._thing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._use(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._use()(*args, **kwargs)

    def __next__(self) -> Any:
        return next(self._use())

    def __iter__(self) -> Any:
        return iter(self._use())

    def __enter__(self) -> Any:
        return self._use().__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._use().__exit__(*error)


def is_blocker(thing: Any) -> bool:
    """Does it replace an object whose use cannot be undone?"""
    return type(thing) is _Blocker
