"""What ``make bench`` times: ours in every mode, and the peers.

TorchLens and nnsight are timed where they can be imported: ``make bench`` installs them beside the project.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_models import Inputs
from fxdebug import fx_debug, model_addition_debugger_context
from fxdebug.capture.graphs.known_templates import forget_templates

Mode = Callable[[Any, Inputs, str], object]  # runs the model once; the string is an empty folder to write to


def _explained(trace: Any) -> Any:
    """Every call's graph traced and proven; its nodes are written out when somebody looks at them."""
    trace.graph_source.verified_call(0)
    return trace


def _first(model: Any, inputs: Inputs, folder: str) -> object:
    forget_templates()
    return _explained(fx_debug(model, inputs))


def _read(model: Any, inputs: Inputs, folder: str) -> object:
    trace = fx_debug(model, inputs)
    return trace, trace.call_graphs


def _drop_in(use_repr: bool) -> Mode:
    return lambda model, inputs, folder: _in(model_addition_debugger_context, model, inputs, folder, use_repr)


def _reference(use_repr: bool) -> Mode:
    def run(model: Any, inputs: Inputs, folder: str) -> object:
        from transformers.model_debugging_utils import model_addition_debugger_context as reference

        return _in(reference, model, inputs, folder, use_repr)

    return run


def _in(context: Any, model: Any, inputs: Inputs, folder: str, use_repr: bool) -> object:
    with context(model, folder, do_prune_layers=False, use_repr=use_repr):
        return model(**inputs)


def _hooks(model: Any, inputs: Inputs, folder: str) -> object:
    """What anybody writes first: a forward hook on each module with four statistics of its result."""
    found = []

    def hook(module: Any, args: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        if hasattr(tensor, "is_floating_point") and tensor.is_floating_point():
            found.append([float(number) for number in (tensor.mean(), tensor.std(), tensor.min(), tensor.max())])

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    try:
        return model(**inputs), found
    finally:
        for handle in handles:
            handle.remove()


def _torchlens(model: Any, inputs: Inputs, folder: str) -> object:
    import torchlens

    return torchlens.trace(model, inputs["x"]) if "x" in inputs else torchlens.trace(model, [], dict(inputs))


_orders: dict[int, list[str]] = {}  # the modules of a model in the order in which they end


def _nnsight(model: Any, inputs: Inputs, folder: str) -> object:
    """What every module returned; nnsight wants to be asked in the order in which that comes about."""
    from nnsight import NNsight

    if id(model) not in _orders:  # in the rounds that are not counted
        calls = sorted(fx_debug(model, inputs, graph=False).calls, key=lambda call: call.finished or 0)
        _orders[id(model)] = [call.path for call in calls if call.path and call.number == 0]
    wrapped = NNsight(model)
    names = _orders[id(model)]
    saved = []
    with wrapped.trace(**inputs):
        for name in names:
            saved.append(wrapped.get(name).output.save())
    return saved


MODES: dict[str, Mode] = {
    "tree": lambda model, inputs, folder: fx_debug(model, inputs, graph=False),
    "graph, first": _first,
    "graph, unasked": lambda model, inputs, folder: fx_debug(model, inputs),
    "graph, later": lambda model, inputs, folder: _explained(fx_debug(model, inputs)),
    "graph, read": _read,
    "graph, saved": lambda model, inputs, folder: fx_debug(model, inputs, save=folder),
    "tensors, saved": lambda model, inputs, folder: fx_debug(model, inputs, values="tensors", save=folder),
    "drop-in, repr": _drop_in(True),
    "drop-in, files": _drop_in(False),
    "reference, repr": _reference(True),
    "reference, files": _reference(False),
    "hooks": _hooks,
}
REFERENCES = ("reference, repr", "reference, files")
PEERS: dict[str, Mode] = {"torchlens": _torchlens, "nnsight": _nnsight}


def add_peers(folder: Path) -> None:
    """Make the peers that lie in a folder available, after everything that is installed."""
    sys.path.append(str(folder))
    MODES.update({name: mode for name, mode in PEERS.items() if importlib.util.find_spec(name) is not None})
