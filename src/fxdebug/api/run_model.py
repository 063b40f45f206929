"""``fx_debug``: run a model once and return its trace; ``last_failed``: the trace of the last run that raised."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch._tensor_str import PRINT_OPTS

from fxdebug.analyses.cost.no_memory import no_memory
from fxdebug.api.reports.no_memory import note_on_memory
from fxdebug.api.run_store import RunStore
from fxdebug.api.trace import Trace
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.capture.probes.stop_on_nonfinite import StopOnNonFinite
from fxdebug.capture.recorder import progress as progress_line
from fxdebug.capture.recorder.listeners import Probe, Stepper
from fxdebug.capture.runnable_graphs.graphs_of_run import LazyGraphs
from fxdebug.capture.runs.returned_bits import returned_bits
from fxdebug.capture.runs.run_once import Ran, run_once
from fxdebug.capture.runs.small_inputs import small_inputs
from fxdebug.capture.tensors.special_tensors import description_of
from fxdebug.capture.torch_state.internals import not_compiled
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import VALUES, Keeping
from fxdebug.errors import UsageError
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations
from fxdebug.store.rank_folders import rank_and_size, rank_folder
from fxdebug.store.tensors.encode import as_read_back
from fxdebug.store.tensors.shards import WAITING_BYTES

_last_failed: Trace | None = None


@not_compiled
@uncounted
def fx_debug(
    model: nn.Module | Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    save: str | os.PathLike[str] | None = None,
    values: Keeping = "stats",
    prune: bool = False,
    progress: bool | None = None,
    method: str = "forward",
    weights: bool | None = None,
    graph: bool = True,
    budget: int = WAITING_BYTES,
    stop_on_nonfinite: bool = False,
) -> Trace:
    """Run a model once, as it would have run, and return the :class:`Trace` of everything it called.

    ``inputs``: a tensor is the one positional argument, a tuple or list are the positional arguments,
    a mapping (also a tokenizer's ``BatchEncoding``) the keyword arguments, to which ``kwargs`` adds.
    ``save``: a folder to write the run to. ``values``: ``"stats"`` keeps numbers only, ``"samples"`` also
    a few elements of each tensor (for golden runs), ``"repr"`` its printed form, ``"tensors"`` its data as
    safetensors, with at most ``budget`` bytes waiting in memory. ``prune``: leave middle layers out of the
    standard JSON, as transformers does.
    ``progress``: a line on the terminal; ``None`` shows it on long runs where the output is a terminal.
    ``method``: the method to call instead of the model itself, e.g. ``"generate"`` (a bound method in
    place of ``model`` does the same). ``weights``: statistics of all parameters; ``None`` when they are few. A saved
    run with ``"tensors"`` has the weights as well, once; with ``False`` or above 2 GB it has not.
    ``graph=False`` leaves out the operations: a tree of calls alone costs less. ``stop_on_nonfinite`` ends the run with
    ``NonFinite`` at the operation (without graphs: the call) that makes the first unintended NaN or infinity.

    Gradient mode, training flags and random state are not changed. An exception of the model is raised
    unchanged (with a note where ``inputs`` is a list that does not fit) after the partial run was saved;
    :func:`last_failed` returns that run. Raises ``UsageError`` for arguments that cannot work and ``SaveError`` before
    the run for a folder that cannot be written.

    >>> import torch
    >>> trace = fx_debug(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()), torch.ones(1, 4))
    >>> [(call.path, call.type) for call in trace.calls]
    [('', 'Sequential'), ('0', 'Linear'), ('1', 'ReLU')]
    """
    probe = StopOnNonFinite() if stop_on_nonfinite else None
    keeping: RunOptions = {"save": save, "values": values, "prune": prune, "progress": progress, "budget": budget}
    return run_and_store(model, inputs, kwargs, method=method, weights=weights, graph=graph, probe=probe, **keeping)


class RunOptions(TypedDict, total=False):
    """The options of a run that say what is kept of it, as :func:`fx_debug` has them."""

    save: str | os.PathLike[str] | None
    values: Keeping
    prune: bool
    progress: bool | None
    budget: int


@uncounted
def run_and_store(
    model: nn.Module | Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    *,
    method: str = "forward",
    weights: bool | None = None,
    graph: bool = True,
    probe: Probe | None = None,
    stepper: Stepper | None = None,
    **keeping: Unpack[RunOptions],
) -> Trace:
    """Run a model once as :func:`fx_debug` does, with a probe that judges it or a stepper that changes it."""
    recording: Recording = {"weights": weights, "graph": graph, "probe": probe, "stepper": stepper}
    return _run_whole(model, inputs, kwargs, method, keeping, recording)[0]


@uncounted
def returned_with(
    model: nn.Module, inputs: Any, kwargs: Mapping[str, Any] | None, stepper: ReplacedOperations
) -> list[Tensor | None]:
    """Return copies of the tensors that a model returns with operations replaced, in the order that its trace has them.

    No other value is kept: with all of them a run takes twice as long. ``None`` for a tensor that was written to after
    the model had returned it, as by a hook.

    >>> halved = ReplacedOperations({(1, "relu"): lambda ran: ran.result / 2})
    >>> returned_with(nn.Sequential(nn.ReLU()), torch.ones(2), None, halved)
    [tensor([0.5000, 0.5000])]
    """
    trace, ran = _run_whole(model, inputs, kwargs, "forward", {}, {"weights": False, "graph": True, "stepper": stepper})
    values = list(trace.root.outputs or ())
    with untracked(), torch.no_grad():
        bodies = [None if each is None else description_of(each).body for each in stepper.tensors_of(values)]
        del ran  # until here what was returned is alive
        return [None if body is None else as_read_back(value, body) for value, body in zip(values, bodies, strict=True)]


@uncounted
def _run_whole(
    model: nn.Module | Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    method: str,
    keeping: RunOptions,
    recording: Recording,
) -> tuple[Trace, Ran]:
    """Run a model once, and return its trace and what it returned. An exception of the model is raised."""
    module, target, method = target_of(model, method)
    args, keywords = arguments(inputs, kwargs)
    trace, ran = stored_run(target, module, args, keywords, method, keeping, **recording)
    if ran.raised is not None:
        if isinstance(inputs, (list, tuple)):
            _note_on_sequence(ran.raised, type(inputs).__name__, target, args, keywords)
        raise ran.raised
    return trace, ran


class Recording(TypedDict, total=False):
    """The options of a run that say what is looked at while it runs."""

    weights: bool | None
    graph: bool
    probe: Probe | None
    stepper: Stepper | None


@uncounted
def stored_run(
    target: Callable[..., Any],
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    method: str,
    keeping: RunOptions,
    **recording: Unpack[Recording],
) -> tuple[Trace, Ran]:
    """Run ``target`` once, and return its trace, which is saved where ``keeping`` says, and the result or exception.

    A run that raised is the one that :func:`last_failed` returns.
    """
    save, values, prune = keeping.get("save"), keeping.get("values", "stats"), keeping.get("prune", False)
    check_values(values)
    rank = rank_and_size()
    folder = None if save is None else rank_folder(Path(save), rank[0] if rank else None)
    has_weights = recording.get("weights", False) is not False  # a training calls for each of its forwards without them
    store = RunStore(folder, values, keeping.get("budget", WAITING_BYTES), weights=has_weights)
    try:
        shown = progress_line.line(keeping.get("progress"), type(module).__name__)
        settings = settings_of(values=values, method=method, prune=prune)
        with collect_less_often.block():
            given = small_inputs(args, kwargs) if has_weights and values != "tensors" else None
            ran = run_once(target, module, args, kwargs, store.options(listeners=shown, **recording), settings)
            if isinstance(ran.trace.graph_source, LazyGraphs):
                ran.trace.graph_source.given = given
                ran.trace.graph_source.returned_bits = None if given is None else returned_bits(ran.output)
            for line in shown:
                line.close()
            trace = store.finish(Trace.of(ran.trace), module, prune, ran.raised)
    finally:
        store.close()
    if ran.raised is not None:
        remember(trace)
        lacking = no_memory(ran.raised)
        if lacking is not None:
            ran.raised.add_note(note_on_memory(trace, lacking))
    return trace, ran


def check_values(values: str) -> None:
    """Raise ``UsageError`` where ``values`` is no way of keeping values."""
    if values not in VALUES:
        raise UsageError(f"values={values!r}: use one of {', '.join(map(repr, VALUES))}")


@uncounted
def target_of(model: Any, method: str) -> tuple[nn.Module, Callable[..., Any], str]:
    """Return the module to record, the function to call, and the name of the method."""
    owner = None if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    if isinstance(owner, nn.Module):
        name = getattr(model, "__name__", "method")
        if name == "forward":  # found when called: by then it is the recorded one
            return owner, lambda *args, **kwargs: owner.forward(*args, **kwargs), name
        return owner, model, name
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"fx_debug needs a torch.nn.Module or a method of one, not {type(model).__name__}: "
            "call it as fx_debug(model, inputs)"
        )
    if method == "forward":
        return model, model, method
    target = getattr(model, method, None)
    if not callable(target):
        raise UsageError(f"{type(model).__name__} has no method {method!r}")
    return model, target, method


def arguments(inputs: Any, kwargs: Mapping[str, Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments from ``inputs`` and ``kwargs``.

    >>> arguments([1, 2], {"scale": 3})
    ((1, 2), {'scale': 3})
    >>> arguments({"x": 1})
    ((), {'x': 1})
    """
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    if isinstance(inputs, (tuple, list)) and not hasattr(inputs, "_fields"):
        args = tuple(inputs)
    elif isinstance(inputs, Mapping):
        named = {str(name): value for name, value in inputs.items()}
    elif inputs is not None:
        args = (inputs,)
    if kwargs is None:
        return args, named
    if not isinstance(kwargs, Mapping):
        known = "positional arguments go into one tuple, as in (model, (x, y))"
        raise UsageError(f"kwargs is a dict of keyword arguments, and not a {type(kwargs).__name__}: {known}")
    twice = set(named) & set(kwargs)
    if twice:
        raise UsageError(f"arguments given twice, in inputs and in kwargs: {', '.join(sorted(twice))}")
    return args, {**named, **kwargs}


def _note_on_sequence(
    raised: BaseException, kind: str, target: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    """Add a note to an exception that may come from a list or tuple that was meant as one argument."""
    called = target.forward if isinstance(target, nn.Module) else target
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **keywords)
        if kind == "tuple" or all(isinstance(arg, torch.Tensor) for arg in args):
            return
    except TypeError:
        pass
    name, parameters = getattr(called, "__name__", "forward"), ", ".join(signature.parameters)
    raised.add_note(
        f"fx_debug: inputs is a {kind} of {len(args)}, and a {kind} is the positional arguments of "
        f"{name}({parameters}). To pass the {kind} as one argument write fx_debug(model, (inputs,))"
    )


def settings_of(**chosen: Any) -> dict[str, Any]:
    """Return the settings of a run: ``chosen``, and the state of torch that printed tensors depend on."""
    rank = rank_and_size()
    settings = {
        **chosen,
        "precision": PRINT_OPTS.precision,
        "default_dtype": str(torch.get_default_dtype())[6:],
        "grad": torch.is_grad_enabled(),
    }
    if rank:
        settings["rank"], settings["world_size"] = rank
    if torch.cuda.is_initialized():
        settings["tf32"] = _tf32()
    return settings


def _tf32() -> str:
    """Return which libraries may round the operands of float32 products to TF32, 10 bits of the mantissa."""
    allowed = []
    for name, library in (("cuda.matmul", torch.backends.cuda.matmul), ("cudnn", torch.backends.cudnn)):
        with contextlib.suppress(RuntimeError):  # the program set it by the names of torch 2.9
            if library.allow_tf32:
                allowed.append(name)
    return " ".join(allowed)


def remember(trace: Trace) -> None:
    """Keep a run that raised, for :func:`last_failed`."""
    global _last_failed
    _last_failed = trace


def last_failed() -> Trace | None:
    """Return the partial trace of the last run whose model raised, or ``None``."""
    return _last_failed
