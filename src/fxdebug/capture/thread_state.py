"""What torch keeps for each thread, gradient and autocast state, modes and transforms, in one look at its memory.

As with tensors (see :mod:`~fxdebug.capture.glance`), what is read is only compared: torch is asked what a state
means when it is met first. On Linux, where the places are found by their names in torch's libraries.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fxdebug.capture.aside import nothing_listens
from fxdebug.capture.context import Context, context_now
from fxdebug.capture.glance import is_memory_known
from fxdebug.capture.torch_state import internals
from fxdebug.capture.traced import may_be_traced
from fxdebug.stats import machine

MOST_STATES = 1_000

_GRADIENTS = "_ZN3c1013AutogradState13get_tls_stateEv"  # c10::AutogradState::get_tls_state
_KEYS = "_ZN3c104impl26raw_local_dispatch_key_setE"  # c10::impl::raw_local_dispatch_key_set
_FUNCTIONS = "_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv"  # at::impl::PythonTorchFunctionTLS::get_state


class ThreadState(NamedTuple):
    """What holds in a thread."""

    context: Context  # what decides how an operation runs besides its arguments
    is_quiet: bool  # does nothing listen to its operations, and are no gradients recorded?
    functions: int  # torch function modes that are on
    dispatches: bool  # are torch dispatch modes?
    may_be_traced: bool  # see :func:`~fxdebug.capture.traced.is_traced`


class _Here(threading.local):
    """The function that reads the state of this thread: the memory it looks at is the thread's own."""

    read: Callable[[], bytes] | None = None


_here = _Here()
_known: dict[bytes, ThreadState] = {}


def thread_state() -> ThreadState:
    """What holds in this thread now.

    >>> with torch.no_grad():
    ...     thread_state()
    ThreadState(context=(False, False, None), is_quiet=True, functions=0, dispatches=False, may_be_traced=False)
    """
    read = _here.read or _reader()
    state = read()
    known = _known.get(state)
    if known is None:
        context = context_now()
        functions, dispatches = internals.len_torch_function_stack(), internals.len_torch_dispatch_stack() > 0
        is_quiet = not context[0] and nothing_listens()
        known = ThreadState(context, is_quiet, functions, dispatches, may_be_traced())
        if state and context[2] is None:  # autocast's dtype lies elsewhere
            if len(_known) >= MOST_STATES:
                _known.clear()
            _known[state] = known
    return known


def _reader() -> Callable[[], bytes]:
    places = _places()
    _here.read = bytes if places is None else places.of_this_thread()
    return _here.read


class _Places:
    """Where each thread's state lies."""

    def __init__(self) -> None:
        folder = Path(torch.__file__).parent / "lib"
        self._core = ctypes.CDLL(str(folder / "libc10.so"))
        everything = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
        self._asked = [_returns_an_address(self._core, _GRADIENTS), _returns_an_address(everything, _FUNCTIONS)]
        self._engine = machine.Engine(_PROGRAM)

    def of_this_thread(self) -> Callable[[], bytes]:
        gradients, functions = [ask() for ask in self._asked]
        keys = ctypes.addressof(ctypes.c_uint64.in_dll(self._core, _KEYS))
        places = b"".join([place.to_bytes(8, sys.byteorder) for place in (gradients, keys, functions)])
        return self._engine.function("thread_state", machine.NO_ARGUMENT, places)


def _returns_an_address(library: Any, name: str) -> Callable[[], int]:
    function: Any = ctypes.CFUNCTYPE(ctypes.c_uint64)((name, library))
    return function  # type: ignore[no-any-return]


@functools.cache
def _places() -> _Places | None:
    if sys.platform != "linux" or not is_memory_known():
        return None
    found: list[_Places] = []

    def try_it() -> None:
        with contextlib.suppress(Exception):  # without the extra ``fast``; a library of torch's that lacks a name
            places = _Places()
            if _tells_the_truth(places.of_this_thread()):
                found.append(places)

    trial = threading.Thread(target=try_it)  # in a new one nothing is on that may be on here
    trial.start()
    trial.join()
    return found[0] if found else None


def _tells_the_truth(read: Callable[[], bytes]) -> bool:
    """Does every change show in what is read, and nothing else?"""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    level = torch._C._functorch

    def found(block: Any) -> bytes:
        with block:
            return read()

    class Level:
        def __enter__(self) -> None:
            level._grad_increment_nesting()

        def __exit__(self, *error: object) -> None:
            level._grad_decrement_nesting()

    with torch.inference_mode(False), torch.enable_grad():
        at_first = read()
        blocks = (
            torch.no_grad(), torch.inference_mode(), torch.autocast("cpu"), TorchFunctionMode(), TorchDispatchMode(),
            Level(),
        )  # fmt: skip
        states = {found(block) for block in blocks}
        return len(states) == len(blocks) and at_first not in states and read() == at_first


# AutogradState has its flags after an optional object; PythonTorchFunctionTLS a vector of modes after its flags.
_PROGRAM = """
define ptr @thread_state(ptr %places, ptr %nothing) {
  %bytes = call ptr @PyBytes_AsString(ptr %places)
  %gradients = load ptr, ptr %bytes
  %second = getelementptr i8, ptr %bytes, i64 8
  %keys = load ptr, ptr %second
  %third = getelementptr i8, ptr %bytes, i64 16
  %functions = load ptr, ptr %third
  %found = alloca [56 x i8], align 16
  %autograd = load <4 x i64>, ptr %gradients, align 1
  store <4 x i64> %autograd, ptr %found, align 1
  %sets = load <2 x i64>, ptr %keys, align 1
  %at.sets = getelementptr i8, ptr %found, i64 32
  store <2 x i64> %sets, ptr %at.sets, align 1
  %at.begin = getelementptr i8, ptr %functions, i64 8
  %begin = load i64, ptr %at.begin
  %at.end = getelementptr i8, ptr %functions, i64 16
  %end = load i64, ptr %at.end
  %modes = sub i64 %end, %begin
  %at.modes = getelementptr i8, ptr %found, i64 48
  store i64 %modes, ptr %at.modes, align 1
  %made = call ptr @PyBytes_FromStringAndSize(ptr %found, i64 56)
  ret ptr %made
}
"""
