"""Load the core, once in a process, and say which build is in use or why none is."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fxdebug.errors import NativeError, first_line
from fxdebug.native.builds import MODULE, build_file, require_private, unsupported
from fxdebug.native.self_test import require_right_answers

SWITCH = "FXDEBUG_NATIVE"  # 0: Python alone; 1: an error where the core cannot be used
_NONE = "there is no build for this torch and this Python"


@dataclass(frozen=True)
class Loaded:
    """The core of this process: the module, or ``None`` and why; ``file`` is the build for this torch and Python.

    ``is_left_aside``: there is a build, and it is not used though nobody asked for that.
    """

    module: ModuleType | None
    file: Path | None
    why: str
    is_left_aside: bool = False


_lock = threading.Lock()
_loaded: Loaded | None = None


def loaded() -> Loaded:
    """Return the core of this process; look for its build at the first call.

    Raises :class:`~fxdebug.errors.NativeError` if ``FXDEBUG_NATIVE=1`` asks for a core that cannot be used.
    """
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def notes() -> list[str]:
    """Return notes for a trace: that a build exists but is not used."""
    found = loaded()
    return [f"the native core was left aside: {found.why} (fxdebug native)"] if found.is_left_aside else []


def _load() -> Loaded:
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise NativeError(f"{SWITCH} is {switch!r}: give 0 for Python alone, or 1 for the native core and no other way")
    if switch == "0":
        return Loaded(None, None, f"{SWITCH}=0")
    found = _find()
    if switch == "1" and found.module is None:
        raise NativeError(f"{SWITCH}=1, but the native core cannot be used: {found.why} (fxdebug native build)")
    return found


def _find() -> Loaded:
    why = unsupported()
    if why is not None:
        return Loaded(None, None, why)
    file = build_file()
    if not file.exists():
        return Loaded(None, file, _NONE)
    try:
        require_private(file)
        return Loaded(load_build(file), file, "")
    except Exception as error:
        why = str(error) if isinstance(error, NativeError) else f"{type(error).__name__}: {first_line(error)}"
        return Loaded(None, file, why, is_left_aside=True)


def load_build(file: Path) -> ModuleType:
    """Load a build and test it; the caller knows that the file may be trusted.

    Raises :class:`~fxdebug.errors.NativeError` if it gives other answers than Python, ``ImportError`` if it does not
    load.
    """
    import torch  # noqa: F401 - the build needs torch's libraries in the process

    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(file))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    with ThreadPoolExecutor(1) as thread:  # the modes of the program (fake tensors, a default device) are in its own
        thread.submit(require_right_answers, module).result()
    return module
