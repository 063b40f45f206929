"""Weights that are given beside a run which did not keep them: a state dict, or the files of a checkpoint."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fxdebug.analyses.paired_names import prefix_between
from fxdebug.capture.tensors.parameters import stats_of, sums_of
from fxdebug.capture.tensors.value_table import complete
from fxdebug.comparison.tolerance import error_between
from fxdebug.data.calls import Parameter
from fxdebug.data.trace import AnyTrace, ValueReader, replaced
from fxdebug.data.values import Value
from fxdebug.errors import LoadError, UsageError, with_article
from fxdebug.store.tensors.checkpoints import Weights, read_checkpoint

SAME = 1e-3  # relative error up to which statistics are those of the weight that ran
_SHOWN = 3

GivenTo = Mapping[str, Tensor] | str | os.PathLike[str]


class WithWeights:
    """Reads the data of a run, and weights that were given beside it, by name. ``lacking`` tells which are not."""

    def __init__(self, data: ValueReader | None, weights: Mapping[str, Callable[[], Tensor]], lacking: str) -> None:
        self._data, self._weights, self.lacking = data, weights, lacking

    def weight(self, name: str) -> Tensor | None:
        """Return a weight that was given; ``None`` where there is none of this name."""
        read = self._weights.get(name)
        return None if read is None else read()

    def tensor(self, value: Value) -> Tensor:
        """Return the data of a value. Raises ``LoadError`` where the run kept none."""
        if self._data is None:
            raise LoadError(f"the data of value {value.number} ({value.label}) was not kept")
        return self._data.tensor(value)

    def lines(self, value: Value) -> list[str] | None:
        """Return the printed form of a value, as the run kept it."""
        return None if self._data is None else self._data.lines(value)

    def printed(self, value: Value) -> tuple[str, str, str, str] | None:
        """Return the printed statistics of a value, as the run kept them."""
        return None if self._data is None else self._data.printed(value)


def with_weights(trace: AnyTrace, given: GivenTo, argument: str) -> AnyTrace:
    """Return a run with the statistics and the sums of weights that it did not keep, from those that are given.

    ``given`` is a state dict, or the path of a checkpoint; names may have a prefix such as ``module.`` more or less.
    ``argument`` is its name in messages. Raises ``UsageError`` where they are not the weights that ran, ``LoadError``
    where the file cannot be read.

    >>> import torch, fxdebug
    >>> model = torch.nn.Linear(2, 2)
    >>> trace = fxdebug.fx_debug(model, torch.ones(1, 2), weights=False)
    >>> known = with_weights(trace, model.state_dict(), "weights_a")
    >>> [parameter.before is not None for run in (trace, known) for parameter in run.parameters]
    [False, False, True, True]
    """
    return _with_known(trace, _by_names_of(trace, _read(given, argument)), argument)


def _by_names_of(trace: AnyTrace, weights: Weights) -> Weights:
    """Return weights also by their names in a run, where all have a prefix more or less, as of a wrapper."""
    prefix = prefix_between(list(weights), [name for parameter in trace.parameters for name in parameter.names])
    if not prefix:
        return weights
    shorter = {name.removeprefix(prefix): read for name, read in weights.items()}
    return shorter | {f"{prefix}{name}": read for name, read in weights.items()}


def _with_known(trace: AnyTrace, weights: Weights, argument: str) -> AnyTrace:
    """Return a run with the weights that functions read, by name."""
    names = [name for parameter in trace.parameters for name in parameter.names]
    known: dict[str, Callable[[], Tensor]] = {}
    parameters, missing = [], []
    for parameter in trace.parameters:
        name = next((name for name in parameter.names if name in weights), None)
        if name is None or parameter.sharding is not None:
            missing += [parameter.name] if parameter.persistent else []
            parameters.append(parameter)
            continue
        read = partial(_in_dtype, weights[name], parameter, argument)
        parameters.append(_measured(parameter, read(), argument))
        known |= dict.fromkeys(parameter.names, read)
    if not known:
        theirs = ", ".join(list(weights)[:_SHOWN]) or "none"
        raise UsageError(
            f"{argument} has no weight of {trace.model}: it has {theirs}; the run has {', '.join(names[:_SHOWN])}"
        )
    more = "" if len(missing) <= _SHOWN else f" and {len(missing) - _SHOWN} more"
    lacking = f"{argument} lacks {', '.join(missing[:_SHOWN])}{more}" if missing else ""
    own: AnyTrace = copy.deepcopy(trace)  # without the model; its values are its own
    before = {name: each for each in parameters if not each.changed for name in each.names if name in known}
    for value in own.values:
        if value.name in before and value.stats is None and value.shape == before[value.name].shape:
            complete(value, stats=before[value.name].before)
    return replaced(own, parameters=tuple(parameters), data=WithWeights(trace.data, known, lacking))


def with_saved_weights(trace: AnyTrace) -> AnyTrace:
    """Return a run with the statistics and the sums of the weights that it saved, where it did not measure them.

    A run of a large model is saved with its weights, and does not measure them.

    >>> import tempfile, torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2), values="tensors")
    >>> with_saved_weights(trace) is trace
    True
    """
    lacking = {name for each in trace.parameters if each.before is None for name in each.names}
    saved = {str(value.name): value for value in trace.values if value.name in lacking and value.saved is not None}
    if not saved:
        return trace
    whole = _with_known(trace, {name: partial(trace.tensor, value) for name, value in saved.items()}, "a saved run")
    return replaced(whole, data=trace.data)


def _read(given: Any, argument: str) -> Weights:
    if isinstance(given, (str, os.PathLike)):
        return read_checkpoint(Path(given))
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{argument} is {with_article(type(given).__name__)}: give a state dict, or the path of a checkpoint"
        )
    return {str(name): partial(_same, tensor) for name, tensor in given.items() if isinstance(tensor, Tensor)}


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _in_dtype(read: Callable[[], Tensor], parameter: Parameter, argument: str) -> Tensor:
    """Return a weight in the dtype that ran. Raises ``UsageError`` for one of another shape."""
    tensor = read().detach()
    if tuple(tensor.shape) != parameter.shape:
        raise UsageError(
            f"{argument}: {parameter.name} has the shape {list(tensor.shape)}, and {list(parameter.shape)} in the run: "
            "give the weights of the model that ran"
        )
    return tensor if str(tensor.dtype)[6:] == parameter.dtype else tensor.to(getattr(torch, parameter.dtype))


def _measured(parameter: Parameter, tensor: Tensor, argument: str) -> Parameter:
    """Return the record of a weight with its statistics and sums. Raises ``UsageError`` where it is not what ran."""
    stats = stats_of(tensor)
    error = error_between(parameter.before, stats)
    if error is not None and error > SAME:
        raise UsageError(
            f"{argument}: {parameter.name} is not what ran: its statistics differ by {error:.2g} of its size: give the "
            "weights of the model that ran, as they were before the run"
        )
    after = parameter.stats if parameter.changed else parameter.stats or stats
    return replace(parameter, before=parameter.before or stats, stats=after, sums=parameter.sums or sums_of(tensor))
