"""A model as ONNX that runs: by torch's exporter, then checked with onnxruntime against what the model returned.

The places that torch notes in each node (``name_scopes``) are joined with a run: the node gets the path of its module,
the id of the call and the statistics of what the call returned.
"""

from __future__ import annotations

import ast
import functools
import inspect
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.capture.probe import internals, members, named_tensors, state_restored
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.errors import SaveError, UsageError, first_line, needs
from fxdebug.features.onnx.library import check_file
from fxdebug.features.shared.programs.facts import statistics
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
    """A written ONNX model: checked outputs, nodes, and how many of these belong to a call of the run."""

    outputs: tuple[CheckedOutput, ...]
    nodes: int
    joined: int
    bytes: int
    inputs: tuple[str, ...]
    fixed: tuple[str, ...] = ()  # sizes of inputs that are not open, and why


def export_model(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    run: TraceData,
    path: Path,
    *,
    dynamic: bool = True,
    external_data: bool = False,
    tolerance: float = 1e-4,
) -> ExportedModel:
    """Export a model, join it with its run, check it on the run's inputs, and write it whole or not at all.

    ``dynamic`` leaves open every size of an input at which model and file were seen to agree (within ``tolerance``) at
    other numbers: batch, length, height.
    ``external_data`` writes the weights to a file beside; a model of more than 2 GB gets one in any case.
    Raises ``UsageError`` for a model in training mode, ``SaveError`` where torch cannot export it.
    """
    if any(module.training for module in members.modules_of(model)):
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
        session = _saved(program, new, external_data)
        given = _given(session, model, args, kwargs)
        fixed: dict[str, str] = {}
        if dynamic:
            checked = _checked(session, given, expected, names)
            allowed = max([tolerance, *[10 * (one.relative or 0.0) for one in checked]])
            fixed = _fixed_sizes(model, args, kwargs, session, given, program, allowed)
            if fixed:
                session = _saved(program, new, external_data)
        inputs = tuple([f"{one.name} {one.type}[{', '.join(map(str, one.shape))}]" for one in session.get_inputs()])
        outputs = _checked(session, given, expected, names)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        for file in Path(folder).iterdir():
            replace_file(file, path.parent / file.name)
    return ExportedModel(tuple(outputs), len(list(program.model.graph)), joined, size, inputs, tuple(fixed.values()))


def _saved(program: Any, path: Path, external_data: bool) -> Any:
    program.save(path, external_data=external_data)
    check_file(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: what it says of declared shapes is found out by running the file
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _given(session: Any, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors among the arguments in the order of the file's inputs; it lacks those that are not used."""
    given = [tensor for _, tensor in named_tensors((tuple(args), dict(kwargs)))]
    names = [one.name for one in session.get_inputs()]
    if len(names) != len(given):
        named = dict(named_tensors(_bound(model, args, kwargs)))
        found = [named[name] for name in names if name in named]
        given = found if len(found) == len(names) else given
    return given


def _bound(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names that ``forward`` has for them."""
    bound = inspect.signature(type(model).forward).bind(model, *args, **kwargs)
    return dict(list(bound.arguments.items())[1:])


def _fixed_sizes(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    session: Any,
    given: Sequence[Tensor],
    program: Any,
    allowed: float,
) -> dict[str, str]:
    """Write the sizes into the program that are not free; return them by name, each with the reason in words."""

    def run(tensors: Sequence[Tensor]) -> Any:
        others = {id(tensor): other for tensor, other in zip(given, tensors)}
        exchanged = internals.tree_map(lambda leaf: others.get(id(leaf), leaf), (tuple(args), dict(kwargs)))
        with state_restored(model), torch.no_grad():
            return model(*exchanged[0], **exchanged[1])

    wanted = session.get_inputs()
    ranges = {str(size): each for size, each in program.exported_program.range_constraints.items()}
    fixed: dict[str, str] = {}
    numbers: dict[str, int] = {}
    if len(wanted) != len(given):
        return {"": "the open sizes were not tried: the file has other inputs than the model"}
    for one in open_sizes(wanted, given):
        allowed_sizes = ranges.get(one.name)
        if allowed_sizes is not None and allowed_sizes.lower == allowed_sizes.upper:
            reason = "the model's code fixes it"
        else:
            reason = why_fixed(one, given, run, session, allowed)
        if reason:
            places = " and ".join([f"{printable(wanted[number].name)}.shape[{dim}]" for number, dim in one.places])
            fixed[one.name] = f"{places} is fixed at {one.size}: {reason}"
            numbers[one.name] = one.size
    fix_sizes(program.model, numbers)
    return fixed


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

    return {name: opened(value) for name, value in _bound(model, args, kwargs).items()}


def _output_names(places: Sequence[str]) -> list[str]:
    return [printable(place) or "output" for place in places]


# Sizes that are free -----------------------------------------------------------------------------

# Torch's exporter names every size that it was asked to leave open, also those that the model's code fixes. So both run
# at other sizes. Where they do not agree, or the model itself does not run, the file has the number.


@dataclass(frozen=True, slots=True)
class OpenSize:
    """A size that the file leaves open, by its name there, with the inputs and dimensions that have it."""

    name: str
    size: int
    places: tuple[tuple[int, int], ...]


def open_sizes(wanted: Sequence[Any], given: Sequence[Tensor]) -> list[OpenSize]:
    """Return the sizes that are open in the inputs of a session."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, one in enumerate(wanted):
        for dim, size in enumerate(one.shape):
            if isinstance(size, str):
                places.setdefault(size, []).append((number, dim))
    return [OpenSize(name, given[at[0][0]].shape[at[0][1]], tuple(at)) for name, at in places.items()]


def why_fixed(
    one: OpenSize,
    given: Sequence[Tensor],
    model: Callable[[Sequence[Tensor]], Any],
    session: Any,
    allowed: float,
) -> str:
    """Return the reason why a size is not free, empty where it is.

    ``model`` runs the model on other tensors; ``allowed`` is the relative difference that counts as none.
    """
    proven, refused = False, ""
    for size in _others(one.size):
        tensors = [_resized(tensor, one, number, size) for number, tensor in enumerate(given)]
        try:
            wanted = [tensor for _, tensor in named_tensors(model(tensors))]
        except Exception as error:  # the model's code does not take this size
            refused = refused or f"at {size} the model raises {type(error).__name__}"
            continue
        reason = _difference(session, tensors, wanted, allowed)
        if reason:
            return f"at {size} {reason}"
        proven = True
    return "" if proven else refused


def _others(size: int) -> Iterator[int]:
    """Yield sizes to try beside one: a neighbour, and one that halvings in a model divide as well."""
    yield from dict.fromkeys([size + 1, 2 * size, *([size - 1] if size > 2 else ())] if size else [1, 2])


def _resized(tensor: Tensor, one: OpenSize, number: int, size: int) -> Tensor:
    """Return a tensor with elements of its own repeated, or left out, so that a dimension has another size."""
    for place, dim in one.places:
        if place == number:
            before = tensor.shape[dim]
            if before == 0:
                return tensor.new_zeros([size if at == dim else each for at, each in enumerate(tensor.shape)])
            tensor = tensor.index_select(dim, torch.arange(size, device=tensor.device) % before)
    return tensor


def _difference(session: Any, tensors: Sequence[Tensor], wanted: Sequence[Tensor], allowed: float) -> str:
    """Return how the file differs from what the model returned; empty where it does not."""
    try:
        feeds = {one.name: tensor.detach().cpu().numpy() for one, tensor in zip(session.get_inputs(), tensors)}
        results = session.run(None, feeds)
    except Exception as error:
        return f"onnxruntime raises {type(error).__name__}: {first_line(error)[:120]}"
    for result, tensor in zip(map(np.asarray, results), wanted):
        if result.shape != tuple(tensor.shape):
            shapes = ["×".join(map(str, shape)) for shape in (result.shape, tensor.shape)]
            return f"the exported model returns {shapes[0]}, the model {shapes[1]}"
        error_, largest = distance(result, tensor)
        if error_ > allowed * (largest or 1):
            return "the exported model returns other numbers than the model"
    return ""


def distance(result: Any, tensor: Tensor) -> tuple[float, float]:
    """Return the largest difference of a result from a tensor, and the largest magnitude of the tensor."""
    wide = tensor.detach().cpu().double().numpy()
    apart = np.abs(result.astype(np.float64) - wide)
    error = float(apart[~((np.isnan(wide) & np.isnan(result)) | (wide == result))].max(initial=0.0))
    return error, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def fix_sizes(model: Any, sizes: Mapping[str, int]) -> None:
    """Write numbers in the place of open sizes into a model of ``onnx_ir``, wherever their names stand alone."""
    values = [*model.graph.inputs, *[out for node in model.graph.all_nodes() for out in node.outputs]]
    for value in values:
        if value is not None and value.shape is not None:
            for dim, size in enumerate(value.shape):
                name = getattr(size, "value", None)
                if isinstance(name, str) and name in sizes:
                    value.shape[dim] = sizes[name]


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
        error_, largest = distance(result, tensor)
        yield CheckedOutput(name, shape, dtype, error_, error_ / largest if largest else error_)
