"""Objects with a state of their own kind: a call that gives it back, or what stands in for them meanwhile."""

from __future__ import annotations

import array
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
from fxdebug.capture.reasons import CannotTrace, Words


def restorer(thing: Any) -> Callable[[], bool] | None:
    """A call that gives a random generator or an array the state it has now, and tells whether it had another one."""
    kind = type(thing)  # not isinstance: it asks the object, which may say anything
    if issubclass(kind, random.Random):
        return back_to_what_it_is(thing.getstate, thing.setstate)
    if issubclass(kind, torch.Generator):
        return back_to_what_it_is(thing.get_state, thing.set_state, lambda state: state.numpy().tobytes())
    if issubclass(kind, array.array):
        return back_to_what_it_is(thing.tobytes, lambda before: _fill(thing, before))
    if issubclass(kind, bytearray):
        return back_to_what_it_is(lambda: bytes(thing), functools.partial(thing.__setitem__, slice(None)))
    home = kind.__module__
    if home.startswith("numpy"):
        numpy = sys.modules["numpy"]
        if issubclass(kind, numpy.random.RandomState):
            return back_to_what_it_is(thing.get_state, thing.set_state, _comparable)
        if issubclass(kind, numpy.random.Generator):
            bits = thing.bit_generator
            return back_to_what_it_is(lambda: bits.state, functools.partial(setattr, bits, "state"), _comparable)
        if issubclass(kind, numpy.ndarray) and thing.flags.writeable and thing.nbytes < _LARGE:
            return back_to_what_it_is(
                thing.copy, functools.partial(thing.__setitem__, ...), lambda array: array.tobytes()
            )
    return None


_LARGE = 1 << 24


def _fill(numbers: array.array[Any], before: bytes) -> None:
    del numbers[:]
    numbers.frombytes(before)


def back_to_what_it_is(
    get: Callable[[], Any], put: Callable[[Any], Any], known_by: Callable[[Any], Any] | None = None
) -> Callable[[], bool]:
    """A call that puts what ``get`` gives now, and tells whether it was something else; ``known_by``: compared."""
    before = get()
    known = before if known_by is None else known_by(before)

    def back() -> bool:
        now = get()
        if (now if known_by is None else known_by(now)) == known:
            return False
        put(before)
        return True

    return back


def _comparable(state: Any) -> Any:
    """A state with arrays in it as something that can be compared."""
    if isinstance(state, dict):
        return {name: _comparable(item) for name, item in state.items()}
    if isinstance(state, tuple):
        return tuple([_comparable(item) for item in state])
    return state.tobytes() if hasattr(state, "tobytes") else state


def blocker(thing: Any) -> Any:
    """What stands in for something whose use cannot be undone."""
    kind = type(thing)
    if issubclass(kind, functools._lru_cache_wrapper):
        return thing.__wrapped__  # what is computed with stand-ins must not be remembered
    if issubclass(kind, io.IOBase):
        return _OutOfReach(thing, reasons.USES_OPEN_FILE())
    homes = {base.__module__.partition(".")[0].removeprefix("_") for base in kind.__mro__}
    is_outward = not homes.isdisjoint(_OUTWARD) and kind.__module__ != "queue"  # Python's own queues are looked into
    if is_outward or issubclass(kind, _SIGNALS):
        return _OutOfReach(thing, reasons.USES_HELD(kind=kind.__name__))
    if issubclass(kind, (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodType)):
        owner = blocker(thing.__self__)
        return _OutOfReach(thing, vars(owner)["_why"]) if type(owner) is _OutOfReach else None
    if kind.__module__ == "numpy" and hasattr(thing, "nbytes") and thing.nbytes >= _LARGE and thing.flags.writeable:
        return _OutOfReach(thing, reasons.USES_LARGE_ARRAY())
    if hasattr(kind, "__next__"):
        return _OutOfReach(thing, reasons.USES_ITERATOR())
    return None


# Libraries of Python's whose objects have a state that nobody can look at, or reach beyond this process.
_OUTWARD = frozenset(
    (
        "csv pickle hashlib md5 sha1 sha2 sha256 sha512 sha3 blake2 hmac sqlite3 socket ssl queue ctypes mmap "
        "multiprocessing subprocess tempfile zipfile tarfile shelve dbm asyncio zlib bz2 lzma"
    ).split()
)


# What threads tell one another by.
_SIGNALS = (threading.Semaphore, threading.Event, threading.Condition, threading.Barrier)


class _OutOfReach:
    """Stands in front of an object while bodies are traced: in the tracing thread, using it ends the trace."""

    def __init__(self, thing: Any, why: Words) -> None:
        self.__dict__.update(_thing=thing, _why=why, _thread=threading.get_ident())

    def _use(self) -> Any:
        if threading.get_ident() == self._thread:
            raise CannotTrace(self._why)
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


def is_out_of_reach(thing: Any) -> bool:
    """Does it stand in front of something whose use cannot be undone?"""
    return type(thing) is _OutOfReach
