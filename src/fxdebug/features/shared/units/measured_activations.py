"""The results of modules and activation functions of a model, measured over calls and batches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from fxdebug.api.run_model import arguments
from fxdebug.capture.probe import members, state_restored
from fxdebug.data.calls import Note
from fxdebug.features.shared.units.activation_runs import run_with_activations
from fxdebug.features.shared.units.distribution import Distributions, as_numpy, robust_outliers
from fxdebug.features.shared.units.findings import ActivationLimits
from fxdebug.features.shared.units.measured import Activation
from fxdebug.features.shared.units.origins import Origin
from fxdebug.features.shared.units.unit_statistics import UnitSums
from fxdebug.operators.activation_functions import BOUNDS, function_of
from fxdebug.stats.cpu_sums import shaped_array_of
from fxdebug.stats.elements import is_dense

ODD = 10.0  # robust deviations of a bias below the others of its layer


def units_on(
    model: nn.Module, batches: Iterable[Any], kwargs: Mapping[str, Any] | None
) -> tuple[list[Activation], list[Note]]:
    """Run a model on each batch and return what its modules and activation functions returned, with notes."""
    gathered = Gathered(ActivationLimits())
    notes, _ = gather_of_model(model, model, batches, kwargs, gathered)
    return gathered.activations(type(model).__name__), notes


def gather_of_model(
    module: nn.Module,
    target: Callable[..., Any],
    batches: Iterable[Any],
    kwargs: Mapping[str, Any] | None,
    gathered: Gathered,
) -> tuple[list[Note], int]:
    """Run a model on each batch and gather what it returns; return notes and the number of batches."""
    given = (arguments(batch, kwargs) for batch in batches)
    with state_restored(module):
        notes, count, read = run_with_activations(target, module, given, gathered.add)
    gathered.read = {f"{path}/{name}" if name else path for path, name in read}
    gathered.untrained = _is_untrained(module)
    gathered.odd = {
        path: odd for path, inner in members.named_modules_of(module) if (odd := _odd_biases(inner)) is not None
    }
    return notes, count


class Gathered:
    """Gathers the numbers of each module and activation function, over calls and batches."""

    def __init__(self, limits: ActivationLimits) -> None:
        self._limits = limits
        self.read: set[str] = set()  # ids of activation functions whose results weights read
        self.untrained = False
        self.odd: dict[str, npt.NDArray[np.bool_]] = {}  # by the path of the module: units with a bias far below
        self._of: dict[tuple[str, str], tuple[str, str, str, tuple[int, ...], Distributions, UnitSums]] = {}
        self._outliers: dict[tuple[str, str], tuple[int, float] | None] = {}

    def add(self, path: str, kind: str, name: str, result: Tensor, given: Tensor | None, origin: Origin) -> None:
        """Add one result; ``name`` is that of an activation function in a forward.

        A function that a model uses behind several layers has units of each.
        """
        if not (result.is_floating_point() or result.is_complex()) or not result.numel():
            return
        function = function_of(kind)
        id = (f"{path}/{name}" if name else path, origin.maker if function else "")
        if id not in self._of:
            self._of[id] = (path, kind, function, tuple(result.shape), Distributions(), UnitSums())
            self._outliers[id] = (0, 0.0)
        *_, seen, units = self._of[id]
        ordered = seen.add(as_numpy(result))
        before = None if given is None or _is_in_place(given, result) else given
        units.add(result, before if function else None, BOUNDS.get(function), origin.axis)
        known, found = self._outliers[id], robust_outliers(ordered, self._limits.outlier)
        both = known is not None and found is not None
        self._outliers[id] = (known[0] + found[0], max(known[1], found[1])) if both else None  # type: ignore[index]

    def activations(self, model: str) -> list[Activation]:
        """Return what was gathered, in the order in which the calls returned."""
        found = []
        times = Counter(id for id, _ in self._of)
        for (id, maker), (path, kind, function, shape, seen, units) in self._of.items():
            behind = f"({maker or '…'})" if times[id] > 1 else ""
            found.append(
                Activation(
                    id=(id if path else f"{model}{id}") + behind,
                    path=path,
                    type=kind,
                    function=function,
                    shape=shape,
                    distribution=seen.result(),
                    units=units.result(),
                    outliers=self._outliers[id, maker],
                    maker=maker,
                    read_by_weights=id in self.read,
                    odd=self.odd.get(maker),
                    untrained=self.untrained,
                )
            )
        return found


def _is_untrained(model: nn.Module) -> bool:
    """Do all weights of linear layers and convolutions lie within ±1/√fan_in, from which torch draws them?"""
    layers = [
        module
        for module in members.modules_of(model)
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))
    ]
    found = [layer._parameters.get("weight") for layer in layers]  # a parametrization computes where it is asked
    weights = [weight for weight in found if type(weight) is nn.Parameter and weight.numel()]
    return bool(weights) and not any(
        weight.is_meta or float(weight.detach().abs().max()) > 1.00001 / math.sqrt(weight[0].numel())
        for weight in weights
    )


def _odd_biases(module: nn.Module) -> npt.NDArray[np.bool_] | None:
    """Return the units whose bias lies far below the others, by median and median absolute deviation."""
    bias = module._parameters.get("bias")
    if type(bias) is not nn.Parameter or bias.dim() != 1 or bias.is_meta or not bias.is_floating_point():
        return None
    numbers = shaped_array_of(bias.detach().double())
    middle = np.median(numbers)
    below, deviation = middle - numbers, np.median(np.abs(numbers - middle))
    return np.asarray((below > 0) & (0.6745 * below > ODD * deviation))


def _is_in_place(given: Tensor, result: Tensor) -> bool:
    """Has a result been written over what was given? A sparse or nested tensor has no one place in memory."""
    return is_dense(given) and is_dense(result) and given.data_ptr() == result.data_ptr()
