"""Load the core, once in a process, and say which build is in use or why none is."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fxdebug.native.builds import MODULE, LeftAside, build_file, require_private, unsupported
from fxdebug.native.self_test import require_right_answers

SWITCH = "FXDEBUG_NATIVE"  # 0: Python alone; 1: an error where the core cannot be used


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
    """Return the core of this process; look for its build at the first call."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def note() -> str | None:
    """Return what a trace notes: that a build is there and was left aside. ``None`` where all is as expected."""
    found = loaded()
    return f"the native core was left aside: {found.why}" if found.is_left_aside else None


def _load() -> Loaded:
    switch = os.environ.get(SWITCH, "")
    if switch == "0":
        return Loaded(None, None, f"{SWITCH}=0")
    why = unsupported()
    if why is not None:
        return Loaded(None, None, why)
    file = build_file()
    if not file.exists():
        return Loaded(None, file, "there is no build for this torch and this Python: fxdebug native build makes one")
    try:
        require_private(file)
        return Loaded(load_build(file), file, f"built for torch {_torch_version()}")
    except Exception as error:
        why = str(error) if isinstance(error, LeftAside) else f"{type(error).__name__}: {error}"
        return Loaded(None, file, why, is_left_aside=True)


def load_build(file: Path) -> ModuleType:
    """Load a build and test it; whoever calls this trusts the file.

    Raises :class:`~fxdebug.native.builds.LeftAside` if it gives other answers than Python, ``ImportError`` if it does
    not load.
    """
    import torch  # noqa: F401 - the build needs torch's libraries in the process

    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(file))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    require_right_answers(module)
    return module


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
