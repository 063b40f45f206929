"""torch's print options, changed for one thread only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch._tensor_str as tensor_str

# torch's own printing, with options only this thread sees ----------------------------------------


class _ThreadOptions(threading.local):
    """The options of this thread, while there are any."""

    now: dict[str, Any] | None = None


class _PerThreadOptions(type(tensor_str.PRINT_OPTS)):  # type: ignore[misc]
    """Stands in for torch's ``PRINT_OPTS``: a thread that has options of its own reads and sets those."""

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


def _global_options_in(standing_in: _PerThreadOptions) -> Any:
    return object.__getattribute__(standing_in, "__dict__")["users"]


def current_options() -> dict[str, Any]:
    """What ``get_printoptions`` gives, without its deep copy."""
    options = tensor_str.PRINT_OPTS
    if isinstance(options, _PerThreadOptions):
        return {**vars(_global_options_in(options)), **(_thread_options.now or {})}
    return dict(vars(options))


_thread_options = _ThreadOptions()
_lock = threading.Lock()
_active = 0  # how many are at it, in all threads


@contextlib.contextmanager
def thread_print_options(options: dict[str, Any]) -> Iterator[None]:
    """Let torch print under ``options`` in this thread; nothing changes for the others or afterwards."""
    global _active
    before = _thread_options.now
    _thread_options.now = {**current_options(), **options}  # all of them: what a repr sets is not for others
    with _lock:
        _active += 1
        if _active == 1:
            tensor_str.PRINT_OPTS = _PerThreadOptions(tensor_str.PRINT_OPTS)
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active and isinstance(tensor_str.PRINT_OPTS, _PerThreadOptions):
                tensor_str.PRINT_OPTS = _global_options_in(tensor_str.PRINT_OPTS)
        _thread_options.now = before
