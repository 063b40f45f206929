"""A quantised model against its original: which calls to leave unquantised, by runs with these put back."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fxdebug.analyses.quantisation.coarse import finer_steps
from fxdebug.analyses.quantisation.errors_of_calls import LARGE, CallError, apart, errors_of_calls, mean_square
from fxdebug.analyses.quantisation.not_rounded import not_rounded
from fxdebug.analyses.quantisation.reasons import numbers_of, reason_of
from fxdebug.analyses.quantisation.report import Measured, QuantisedRow, outstanding, quantised_report
from fxdebug.api.quantised.inside import quantisers_inside
from fxdebug.api.quantised.rows_alone import row_by_row
from fxdebug.api.quantised.weights_used import weights_used
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments
from fxdebug.capture.runs.same_start import state_restored
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.capture.torch_state.module_members import named_modules_of, parameters_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.comparison.result import ComparisonData
from fxdebug.data.calls import Note
from fxdebug.operators.dtypes import EPS
from fxdebug.repair.rerun.originals_back import OriginalsBack, cast

MOST_ADVISED = 4  # calls that are advised to be left alone
LEAST_OTHERS = 4  # calls for each that is advised to be left alone: to leave all is no advice
AGAIN = 8  # calls that are tried once more beside those that are advised
LEAST_ERROR = 0.1  # of what a call returns, from which its weight is looked at: scales may stand behind the product
LEAST_GAIN = 0.1  # of the error of the result, from which one more call is advised

Call: TypeAlias = Callable[[nn.Module], Any]  # calls a model with the inputs that it is given
Run: TypeAlias = Callable[..., tuple[list[Tensor], str]]


def quantised_models(
    isolated: ComparisonData, model_a: nn.Module, model_b: nn.Module, call_a: Call, call_b: Call, budget: float
) -> Report[QuantisedRow]:
    """Return the calls of a quantised model b by what they do to the result.

    ``isolated`` is the comparison in which each call was given what that of a was given; ``call_a`` and ``call_b`` call
    a model with its inputs. Each call that adds error is computed by its original once, and the error of the result
    measured; no such run begins after ``budget`` seconds.
    """
    until = time.monotonic() + budget
    errors = errors_of_calls(isolated, isolated=True)
    originals, quantised = (dict(named_modules_of(model, every_name=True)) for model in (model_a, model_b))
    known = {one.path: originals[one.path_a] for one in errors if one.path_a in originals and one.path in quantised}

    def run(
        model: nn.Module, call: Call, put_back: Sequence[str] = (), layers: Mapping[str, nn.Module] = known
    ) -> tuple[list[Tensor], str]:
        with state_restored(model_a, model_b), OriginalsBack(model, {path: layers[path] for path in put_back}) as block:
            returned = _floats(call(model))
        failed = [block.failed.get(path, "") if path in block.replaced else _NOT_CALLED for path in put_back]
        return returned, next(filter(None, failed), "")

    expected = run(model_a, call_a)[0]
    whole = _distance(expected, run(model_b, call_b)[0])
    without: dict[str, float] = {}
    untried: dict[str, str] = {}
    leaves = [one for one in errors if not one.has_inner and one.error != 0.0]
    for one in sorted(leaves, key=lambda one: -(one.error or 0.0)):
        if one.path not in known:
            untried[one.path] = "no module of a has its place"
        elif time.monotonic() > until:
            untried[one.path] = f"the time is over (budget={budget:g})"
        elif whole:
            found, why = _tried(run, model_b, call_b, [one.path], expected)
            if found is None:
                untried[one.path] = why
            else:
                without[one.path] = found
    advised: list[str] = []
    left, still = whole, dict(without)
    most = min(MOST_ADVISED, max(1, len(without) // LEAST_OTHERS))
    while len(advised) < most and (first := outstanding(left, still, len(without))) is not None:
        advised.append(first)
        left, still = still[first], {}
        for path in sorted(without, key=lambda path: without[path])[:AGAIN]:  # one error may hide another
            if path not in advised and time.monotonic() <= until:
                found, _ = _tried(run, model_b, call_b, [*advised, path], expected)
                still |= {} if found is None or not whole or left - found < LEAST_GAIN * whole else {path: found}
    made_of_own = {one.path: originals[one.path_a] for one in leaves if one.path in known}

    def go() -> object:
        return run(model_b, call_b)

    inside = quantisers_inside(model_b, made_of_own, [one.path for one in errors], go)
    used = weights_used(model_b, made_of_own, go)
    seen = {
        one.path: inside.get(one.path) or _reason(known[one.path], quantised[one.path], used.get(one.path), one)
        for one in leaves
        if one.path in known
    }
    gap = apart(errors)
    small = {one.path for one in leaves if one.error is not None and one.error < LEAST_ERROR}  # whatever its weight is
    looked_at = [path for path in used if path not in inside and path not in small]
    unlike = {path: not_rounded(made_of_own[path].weight, used[path]) for path in looked_at}
    wrong = {path: how for path, how in unlike.items() if how is not None}
    far = {one.path for one in leaves if one.error is not None and one.error >= LARGE}
    by_rows = row_by_row(model_b, {p: m for p, m in made_of_own.items() if p in far - wrong.keys()}, go) if far else {}
    put_back = [path for path in (wrong or by_rows or (gap.paths if gap is not None else ())) if path in known]
    is_measured = set(put_back) == set(advised)
    left_apart = (left if is_measured else _tried(run, model_b, call_b, put_back, expected)[0]) if put_back else None
    reasons = {path: text for path, text in seen.items() if text and path not in wrong}
    reasons |= {path: text for path, (_, text) in wrong.items() if text}
    reasons |= by_rows
    steps = {} if wrong or by_rows else {path: finer_steps(made_of_own[path].weight, used[path]) for path in used}
    coarse = {path: finer for path, finer in steps.items() if finer is not None}
    left_finer = None
    if 2 * len(coarse) > len(used) and len(coarse) > 1:
        layers = {path: _with_weight(made_of_own[path], finer.weight) for path, finer in coarse.items()}
        left_finer = _tried(run, model_b, call_b, list(layers), expected, layers)[0]
    reasons = {path: finer.text for path, finer in coarse.items()} | reasons
    measured = Measured(
        whole, without, tuple(advised), left, reasons, untried, inside, gap, left_apart, wrong, by_rows,
        coarse, len(used), left_finer,
    )  # fmt: skip
    return Report.of(quantised_report(isolated, measured, () if whole is not None else (_UNKNOWN,)))


_UNKNOWN = Note("the error of the result is not known: no finite floating tensors of one shape are returned")
_NOT_CALLED = "its module is not called by itself"


def _with_weight(layer: nn.Module, weight: Tensor) -> nn.Module:
    """Return a copy of a layer with another weight."""
    copied = copy.deepcopy(layer)
    with untracked(), torch.no_grad():
        copied.weight.copy_(weight)  # type: ignore[operator, union-attr]
    return copied


def _tried(
    run: Run,
    model: nn.Module,
    call: Call,
    paths: list[str],
    expected: list[Tensor],
    layers: Mapping[str, nn.Module] | None = None,
) -> tuple[float | None, str]:
    """Return the error of the result with modules put back, or ``None`` and why it is not known.

    ``layers`` are others than the originals.
    """
    try:
        returned, why = run(model, call, paths) if layers is None else run(model, call, paths, layers)
    except Exception as error:  # of the model, with what an original returned
        return None, f"{type(error).__name__}: {error}".partition("\n")[0]
    found = None if why else _distance(expected, returned)
    return found, why or ("the result is not finite" if found is None else "")


def _reason(original: nn.Module, quantised: nn.Module, used: Tensor | None, one: CallError) -> str:
    """Say what the weight of a module shows, or that its result is what the model returns."""
    weight = getattr(original, "weight", None)
    theirs = numbers_of(getattr(quantised, "weight", None))
    seen = reason_of(weight, used if theirs is None else theirs) if isinstance(weight, Tensor) else ""
    return seen or ("what it returns is the result: nothing evens out its error" if one.is_last else "")


def _distance(expected: list[Tensor], returned: list[Tensor]) -> float | None:
    """Return the relative error of results, the root mean square over tensors; ``None`` where it is not known."""
    if len(expected) != len(returned) or any(x.shape != y.shape for x, y in zip(expected, returned)):
        return None
    pairs = list(zip(expected, returned))
    pairs = [(x, y) for x, y in pairs if x.numel() > 1] or pairs
    sizes = [(float((x - y).norm()), float(x.norm())) for x, y in pairs]
    return mean_square([gap / size if size else (0.0 if not gap else float("inf")) for gap, size in sizes])


def _floats(returned: Any) -> list[Tensor]:
    """Return the floating tensors in what a model returned, in a wide dtype."""
    floats = [x for _, x in named_tensors(returned) if x.is_floating_point() and str(x.dtype)[6:] in EPS]
    return [x.detach().double().cpu() for x in floats]


def inputs_for(model_a: nn.Module, model_b: nn.Module, given: Any) -> Any:
    """Return inputs with floating tensors in the dtype of b, where a and b have one dtype each, and not the same."""
    dtypes = [{x.dtype for x in parameters_of(model) if x.is_floating_point()} for model in (model_a, model_b)]
    return cast(given, *dtypes[1]) if all(len(kinds) == 1 for kinds in dtypes) and dtypes[0] != dtypes[1] else given


def called(model: nn.Module, inputs: Any, kwargs: Mapping[str, Any] | None) -> Any:
    """Call a model with inputs as :func:`fxdebug.fx_debug` takes them."""
    args, keywords = arguments(inputs, kwargs)
    return model(*args, **keywords)
