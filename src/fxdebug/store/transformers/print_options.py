"""torch's print options, changed for one thread only."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch._tensor_str as tensor_str


class _ThreadOptions(threading.local):
    """The options of this thread; ``None`` if it has none of its own."""

    now: dict[str, Any] | None = None


class _PerThreadOptions(type(tensor_str.PRINT_OPTS)):  # type: ignore[misc]
    """A replacement for torch's ``PRINT_OPTS``: a thread with options of its own reads and sets those."""

    def __init__(self, users: Any) -> None:
        object.__setattr__(self, "__dict__", {"users": users})

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        own = _thread_options.now
        return own[name] if own is not None and name in own else getattr(_global_options_in(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = _thread_options.now
        if own is not None and name in own:
            own[name] = value
        else:
            setattr(_global_options_in(self), name, value)


def _global_options_in(options: _PerThreadOptions) -> Any:
    """Return the ``PRINT_OPTS`` that the replacement stands in for."""
    return object.__getattribute__(options, "__dict__")["users"]


def current_options() -> dict[str, Any]:
    """Return the options in force in this thread, as ``get_printoptions`` does but without its deep copy."""
    options = tensor_str.PRINT_OPTS
    if isinstance(options, _PerThreadOptions):
        return {**vars(_global_options_in(options)), **(_thread_options.now or {})}
    return dict(vars(options))


class _Block:
    """An open block of :func:`thread_print_options`; it is freed with its frame, even if Ctrl-C stops the exit."""


_thread_options = _ThreadOptions()
_lock = threading.Lock()
_open: weakref.WeakSet[_Block] = weakref.WeakSet()  # in all threads


@contextlib.contextmanager
def thread_print_options(options: dict[str, Any]) -> Iterator[None]:
    """Let torch print under ``options`` in this thread; other threads and later printing see no change."""
    block, before = _Block(), _thread_options.now
    try:
        _thread_options.now = {**current_options(), **options}  # all options: a repr that sets one sets it here
        with _lock:
            _open.add(block)
            if not isinstance(tensor_str.PRINT_OPTS, _PerThreadOptions):
                tensor_str.PRINT_OPTS = _PerThreadOptions(tensor_str.PRINT_OPTS)
        yield
    finally:
        with _lock:
            _open.discard(block)
            if not _open and isinstance(tensor_str.PRINT_OPTS, _PerThreadOptions):
                tensor_str.PRINT_OPTS = _global_options_in(tensor_str.PRINT_OPTS)
        _thread_options.now = before
