"""Small models, and what a run of one left behind, as text: the calls of a trace, the standard files of a folder."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch._tensor_str import get_printoptions

import fxdebug
from support.reference import differences, of_drop_in, of_reference

D = 4


class Does(nn.Module):
    """A module made of a function and its parts: ``Does(lambda self, x: self.a(x), a=nn.Linear(4, 4))``."""

    def __init__(self, does: Callable[..., Any], /, **parts: Any) -> None:
        super().__init__()
        self.does = does
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self._modules[name] = part  # it may be called ``forward``
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.does(self, *args, **kwargs)


def linear() -> nn.Linear:
    """A layer of the size that all tests use."""
    return nn.Linear(D, D)


def ones(rows: int = 1) -> torch.Tensor:
    """An input of that size."""
    return torch.ones(rows, D)


def returns(value: Any) -> Does:
    """A module that returns a thing, whatever it is given."""
    return Does(lambda self, *args, **kwargs: value)


# What a run left behind --------------------------------------------------------------------------


def calls(trace: fxdebug.Trace) -> list[str]:
    """The calls of a trace, one line each below the one that made it; the root is its class."""
    return ["  " * call.depth + (call.path or trace.model) for call in trace.root.walk()]


def nodes(node: dict[str, Any], depth: int = 0) -> list[str]:
    """The calls of a standard tree, one line each, as :func:`calls` has them."""
    name = node["module_path"].partition(".")[2] or node["module_path"].removesuffix(" (top-level)")
    lines = ["  " * depth + name]
    for child in node.get("children", ()):
        lines += nodes(child, depth + 1)
    return lines


def files(folder: Path, pattern: str = "*") -> list[str]:
    """The names of the files in a folder."""
    return sorted(path.name for path in folder.glob(pattern))


def tree(folder: Path, kind: str = "FULL_TENSORS", number: int | None = None) -> dict[str, Any]:
    """The one standard tree of a folder, or the earlier one with a number."""
    suffix = "" if number is None else f".{number}"
    (path,) = folder.glob(f"*_debug_tree_{kind}{suffix}.json")
    return json.loads(path.read_text())


def named(node: Any) -> list[str]:
    """The names of the tensors' files below a node of a standard tree, in order."""
    found, pending = [], [node]
    while pending:
        node = pending.pop()
        if isinstance(node, dict) and isinstance(node.get("value"), str) and "dtype" in node:
            found.append(node["value"].removeprefix("./"))
        elif isinstance(node, (dict, list)):
            pending += reversed(list(node.values() if isinstance(node, dict) else node))
    return found


def tensors(folder: Path, node: Any) -> list[torch.Tensor]:
    """The data in the files below a node."""
    return [load_file(folder / name)["data"] for name in named(node)]


def saved(model: Any, inputs: Any, folder: Path, **options: Any) -> fxdebug.Trace:
    """The trace of a run, saved and loaded again."""
    trace = fxdebug.fx_debug(model, inputs, save=folder, **options)
    loaded = fxdebug.load(folder)
    assert loaded == trace
    return loaded


# The reference -----------------------------------------------------------------------------------


@contextlib.contextmanager
def theirs(model: Any, folder: Path | None, do_prune_layers: bool = True, use_repr: bool = True) -> Iterator[Any]:
    """transformers' context; what it leaves changed in the process is put back, its warnings are silenced."""
    from transformers.model_debugging_utils import model_addition_debugger_context

    options, stdout = get_printoptions(), sys.stdout
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with model_addition_debugger_context(
                model, None if folder is None else str(folder), do_prune_layers, use_repr
            ):
                yield model
    finally:
        torch.set_printoptions(**options)
        sys.stdout = stdout


def assert_text_equal(make: Callable[[], tuple[Any, dict[str, Any]]], *, bytes_too: bool = True) -> None:
    """The drop-in's files are the reference's, in all four modes, for ``make() -> (model, keyword arguments)``."""
    for prune in (False, True):
        for use_repr in (True, False):
            modes = {"prune": prune, "use_repr": use_repr}
            reference, ours = of_reference(make, **modes), of_drop_in(make, **modes)
            assert reference.error is None
            found = [what for what in differences(reference, ours) if bytes_too or not what.endswith("other bytes")]
            assert not found, (modes, found)
