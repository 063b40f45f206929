"""A model as ONNX that runs: by torch's exporter, then checked with onnxruntime against what the model returned.

The places that torch notes in each node (``name_scopes``) are joined with a run: the node gets the path of its module,
the id of the call and the statistics of what the call returned.
"""

from __future__ import annotations

import ast
import functools
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.capture.runs.same_start import state_restored
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.errors import SaveError, UsageError, first_line, needs
from fxdebug.exports.programs.facts import statistics
from fxdebug.exports.programs.onnx_library import check_file
from fxdebug.files.write_file import replace_file
from fxdebug.printable import printable
from fxdebug.query.measures import id_of

try:
    import onnxruntime
    import onnxscript  # noqa: F401  (torch's exporter needs it)
except ImportError as error:
    raise needs("exporting a model to ONNX", error.name or "onnxruntime", "onnx") from error

_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True, slots=True)
class CheckedOutput:
    """One output of an exported model, and how far onnxruntime is from what the model returned.

    ``error`` is the largest difference, ``relative`` that over the largest magnitude of the model's output; ``None``
    where it could not be compared, with the reason.
    """

    output: str
    shape: str
    dtype: str
    error: float | None
    relative: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model as it was written: checked outputs, nodes, and how many of them are joined with a call of the run."""

    outputs: tuple[CheckedOutput, ...]
    nodes: int
    joined: int
    bytes: int
    inputs: tuple[str, ...]


def export_model(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    run: TraceData,
    path: Path,
    *,
    dynamic: bool = True,
    external_data: bool = False,
) -> ExportedModel:
    """Export a model, join it with its run, check it on the run's inputs, and write it whole or not at all.

    ``dynamic`` leaves open every size of an input that the model's code does not fix: batch, length, height.
    ``external_data`` writes the weights to a file beside; a model of more than 2 GB gets one in any case.
    Raises ``UsageError`` for a model in training mode, ``SaveError`` where torch cannot export it.
    """
    if any(module.training for module in modules_of(model)):
        raise UsageError("the model is in training mode, and an ONNX file is for inference: call model.eval() first")
    expected = list(named_tensors(run.output))
    names = _output_names([place for place, _ in expected])
    with state_restored(model), torch.no_grad(), _quiet():
        try:
            program: Any = torch.onnx.export(
                _with_tensors_only(model), tuple(args), kwargs=dict(kwargs), dynamo=True, verbose=False,
                dynamic_shapes=_open_sizes(model, args, kwargs) if dynamic else None, output_names=names,
            )  # fmt: skip
        except Exception as error:
            reason = first_line(error.__cause__ or error)
            raise SaveError(
                f"torch cannot export {type(model).__name__}: {type(error.__cause__ or error).__name__}: {reason}. "
                "The run itself can be written and opened in Netron: trace.export('run.onnx')"
            ) from error
    joined = _join(program.model, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fxdebug-part-", dir=path.parent) as folder:
        new = Path(folder) / path.name
        program.save(new, external_data=external_data)
        check_file(new)
        given = [tensor for _, tensor in named_tensors((tuple(args), dict(kwargs)))]
        session = onnxruntime.InferenceSession(str(new), providers=["CPUExecutionProvider"])
        inputs = tuple([f"{one.name} {one.type}[{', '.join(map(str, one.shape))}]" for one in session.get_inputs()])
        outputs = _checked(session, given, expected, names)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        for file in Path(folder).iterdir():
            replace_file(file, path.parent / file.name)
    return ExportedModel(tuple(outputs), len(list(program.model.graph)), joined, size, inputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from listing the libraries for which it has no operators, and from printing its progress."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _with_tensors_only(model: nn.Module) -> nn.Module:
    """Return a module that shares everything with the model and returns its tensors in a tuple.

    torch exports no objects such as the caches of transformers. The model itself is not touched, and modules in it
    keep their paths.
    """
    forward = model.forward if "forward" in vars(model) else type(model).forward
    is_bound = "forward" in vars(model)

    @functools.wraps(type(model).forward)
    def tensors(self: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        output = forward(*args, **kwargs) if is_bound else forward(self, *args, **kwargs)
        return tuple([tensor for _, tensor in named_tensors(output)])

    kind: Any = type(type(model).__name__, (type(model),), {"forward": tensors, "__module__": type(model).__module__})
    shell = object.__new__(kind)
    vars(shell).update({name: value for name, value in vars(model).items() if name != "forward"})
    return shell  # type: ignore[no-any-return]


def _open_sizes(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return for every tensor of the arguments that all its sizes may be open: torch finds out which can be."""

    def opened(item: Any) -> Any:
        if isinstance(item, Tensor):
            return dict.fromkeys(range(item.dim()), torch.export.Dim.AUTO)
        if isinstance(item, (list, tuple)):
            return type(item)([opened(inner) for inner in item]) if type(item) in (list, tuple) else None
        return {key: opened(inner) for key, inner in item.items()} if isinstance(item, dict) else None

    import inspect

    bound = inspect.signature(type(model).forward).bind(model, *args, **kwargs)
    named = dict(list(bound.arguments.items())[1:])
    return {name: opened(value) for name, value in named.items()}


def _output_names(places: Sequence[str]) -> list[str]:
    return [printable(place) or "output" for place in places]


# Joining -----------------------------------------------------------------------------------------


def _join(model: Any, run: TraceData) -> int:
    """Write path, call and statistics into the nodes of an exported model; return how many nodes have a call."""
    calls: dict[str, list[Call]] = {}
    for call in run.calls:
        for name in call.aliases or (call.path,):
            calls.setdefault(name, []).append(call)
    joined = 0
    for node in model.graph:
        path = _path_of(node.metadata_props.get(_SCOPES, ""))
        if path is None or path not in calls:
            continue
        joined += 1
        found = calls[path]
        node.metadata_props["fxdebug.path"] = printable(path)
        node.metadata_props["fxdebug.module"] = printable(found[0].type)
        if len(found) > 1:  # which of them is not noted
            node.metadata_props["fxdebug.calls"] = str(len(found))
            continue
        for name, fact in _facts(run, found[0]).items():
            node.metadata_props[f"fxdebug.{name}"] = fact
    for name, version in run.versions.items():
        model.metadata_props[f"fxdebug.version.{name}"] = str(version)
    model.metadata_props["fxdebug.model"] = printable(run.model)
    return joined


def _facts(run: TraceData, call: Call) -> dict[str, str]:
    facts: dict[str, Any] = {"call": printable(id_of(run, call)), "source": call.source and printable(call.source)}
    value = None if call.outputs is None else next(iter(call.outputs), None)
    if value is not None and value.stats is not None:
        facts |= statistics(value.stats)
    return {name: fact if isinstance(fact, str) else repr(fact) for name, fact in facts.items() if fact is not None}


def _path_of(scopes: str) -> str | None:
    """Return the path of the module that a node is from: the last but one of the scopes that torch noted."""
    try:
        names = ast.literal_eval(scopes)
    except (SyntaxError, ValueError):
        return None
    return str(names[-2]) if isinstance(names, list) and len(names) > 1 else None


# Checking ----------------------------------------------------------------------------------------


def _checked(
    session: Any, given: Sequence[Tensor], expected: Sequence[tuple[str, Tensor]], names: Sequence[str]
) -> Iterator[CheckedOutput]:
    """Run the file on the inputs of the run and yield each output with its distance from the model's."""
    reason, results = "", []
    try:
        wanted = session.get_inputs()
        feeds = {one.name: tensor.detach().cpu().numpy() for one, tensor in zip(wanted, given, strict=True)}
        results = session.run(None, feeds)
    except Exception as error:  # a dtype that numpy does not have, an input that the model does not use
        reason = f"{type(error).__name__}: {first_line(error)}"
    for position, (name, (_, tensor)) in enumerate(zip(names, expected)):
        shape, dtype = "×".join(map(str, tensor.shape)), str(tensor.dtype).removeprefix("torch.")
        if reason or position >= len(results):
            yield CheckedOutput(name, shape, dtype, None, None, reason or "the file has fewer outputs")
            continue
        result = np.asarray(results[position])
        if result.shape != tuple(tensor.shape):
            yield CheckedOutput(name, shape, dtype, None, None, f"its shape is {'×'.join(map(str, result.shape))}")
            continue
        wide = tensor.detach().cpu().double().numpy()
        distance = np.abs(result.astype(np.float64) - wide)
        error_ = float(distance[~(np.isnan(wide) & np.isnan(result))].max(initial=0.0))
        largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
        yield CheckedOutput(name, shape, dtype, error_, error_ / largest if largest else error_)
