"""Prepare the watching of a script before it begins; then be as if this file were not there."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _step_aside() -> None:
    """Take this folder out of the paths, also of processes that the script starts, and import the real module."""
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    places = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    left = [place for place in places if Path(place).resolve() != _HERE]
    if left:
        os.environ["PYTHONPATH"] = os.pathsep.join(left)
    else:
        os.environ.pop("PYTHONPATH", None)
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


_step_aside()
try:
    from fxdebug.features.training.script.prepare import prepare

    prepare()
except Exception as error:  # the script runs as without
    print(f"fxdebug: the script is not watched: {type(error).__name__}: {error}", file=sys.stderr)
