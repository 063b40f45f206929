"""``compare_models``: compare two live models, each call of one with the inputs of the other's call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, Unpack, overload

from torch import Tensor, nn

from fxdebug.analyses.quantisation.report import QuantisedRow
from fxdebug.api.compare_runs import Settings, compared_as_recorded
from fxdebug.api.comparison import Comparison
from fxdebug.api.quantised.of_models import called, inputs_for, quantised_models
from fxdebug.api.reports.beside_comparison import kept_beside, with_reports
from fxdebug.api.reports.report import Report
from fxdebug.api.rerun.parts_again import told_of_parts
from fxdebug.api.rerun.tried_in_traces import LiveRun
from fxdebug.api.run_model import arguments, fx_debug, last_failed, returned_with, run_and_store
from fxdebug.api.trace import Trace
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.capture.torch_state.internals import not_compiled
from fxdebug.comparison.compare_traces import pair_traces
from fxdebug.comparison.diagnosis.isolated.join import joined
from fxdebug.comparison.elementwise import is_reordered
from fxdebug.comparison.pairing.replay_plan import replay_plan
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.thresholds import GROWTH
from fxdebug.data.trace import replaced
from fxdebug.data.values import Keeping
from fxdebug.errors import FxDebugError, UsageError
from fxdebug.operators.dtypes import EPS
from fxdebug.repair.candidates.in_order import with_repairs
from fxdebug.repair.candidates.modes import told_of_modes
from fxdebug.repair.candidates.recurrent_gates import told_of_gates
from fxdebug.repair.rerun.edited_runs import EditedRuns, RunAgain
from fxdebug.repair.rerun.fused_written_out import NAMED, closeness, with_fused_written_out
from fxdebug.repair.rerun.isolated import InputReplay
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations
from fxdebug.repair.rerun.wide_copies import in_wide_dtype
from fxdebug.repair.trials.measured_effects import Isolated, with_effects, with_other_bits
from fxdebug.repair.trials.tried_repairs import doubtful_last, returns_the_same, tried, with_told

BUDGET = 10.0  # seconds in which runs with edits begin


class _WithInputs(Settings, total=False):
    inputs_b: Any


@overload
def compare_models(
    model_a: nn.Module,
    model_b: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    quantised: Literal[False] = False,
    **settings: Unpack[_WithInputs],
) -> Comparison:
    """Return the comparison, call by call."""


@overload
def compare_models(
    model_a: nn.Module,
    model_b: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    quantised: Literal[True],
    **settings: Unpack[_WithInputs],
) -> Report[QuantisedRow]:
    """Return the report on b, a quantised version of a."""


@not_compiled
def compare_models(
    model_a: nn.Module,
    model_b: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
    inputs_b: Any = None,
    strict: bool = False,
    budget: float = BUDGET,
    quantised: bool = False,
) -> Comparison | Report[QuantisedRow]:
    """Compare two live models call by call: every call that adds error is found, not only the first.

    Each call of b that has a counterpart in a runs on the counterpart's inputs, in b's dtype. The call's own result is
    compared; the counterpart's result is returned in its place, so that no error is passed on. Tensors that hold the
    same numbers in another order are left as they are. Model a runs once and b twice: first unchanged, to find the
    pairs of calls, and then on a's inputs.

    ``inputs`` and ``kwargs`` are as for :func:`fx_debug`; ``inputs_b`` are the inputs of b where they differ. The
    other arguments are those of :func:`compare`. ``comparison.outputs`` are those of the plain runs. Causes that one
    edit of an operation undoes are tried: a finding is ``proven`` where b returns what a returns with that edit, and
    ``repair`` tells it. Runs with edits begin in the first ``budget`` seconds of that; with 0 none does. All runs begin
    with the same random state, buffers and attributes of modules; these and the hooks are restored afterwards. An
    exception of model a is raised; where b raises, the plain runs are compared and a note says so. Where one model is
    in a narrow dtype that may hide differences, copies of both are compared in float32, and a note says so. Where both
    hold gradients (after ``backward()``) that differ, ``comparison.gradients`` is the report of
    :func:`fxdebug.compare_gradients`.

    With ``quantised``, b is a quantised version of a, and no faults are told. A report ranks the calls by what they do
    to the result: each call of b that adds error is computed by the module of a once, and the error of the result
    measured. Such runs begin in the first ``budget`` seconds. ``report.answer`` names the layers to leave unquantised.

    >>> import copy, torch
    >>> one = torch.nn.Sequential(*[torch.nn.LayerNorm(8) for _ in range(3)])
    >>> other = copy.deepcopy(one)
    >>> other[0].eps = other[2].eps = 0.5
    >>> [(row.path, row.op) for row in compare_models(one, other, torch.arange(16.0).view(2, 8)).findings]
    [('0', 'layer_norm'), ('2', 'layer_norm')]
    """
    settings = {"mapping": mapping, "ignore": ignore, "tolerance": tolerance, "strict": strict}
    if quantised:
        own = inputs_for(model_a, model_b, inputs) if inputs_b is None else inputs_b
        return _quantised(model_a, model_b, (inputs, own, kwargs), settings, budget)
    kept = kept_beside(model_a, model_b)
    given = inputs, inputs if inputs_b is None else inputs_b, kwargs

    def compared(a: nn.Module, b: nn.Module) -> ComparisonData:
        return with_fused_written_out(a, b, lambda: _compared(a, b, given, settings, budget))

    found = compared(model_a, model_b)
    if not found.findings and found.narrow is not None and inputs_b is None:
        found = in_wide_dtype(found, model_a, model_b, compared)
    runs = (found.a, model_a, inputs), (found.b, model_b, given[1])
    live = [LiveRun("", trace, model, *arguments(own, kwargs)) for trace, model, own in runs]
    return with_reports(told_of_parts(Comparison.of(found), live), kept)


Given: TypeAlias = tuple[Any, Any, "Mapping[str, Any] | None"]
"""The inputs of a, those of b, and their keyword arguments."""


class _Runs(NamedTuple):
    """The plain runs of two models and their comparison, and that of a run of b on a's inputs, call by call.

    ``failed`` is what b raised, alone or with a's inputs; there is no comparison ``isolated`` then. ``see_alone`` runs
    b so once more, with a look at some operations.
    """

    a: Trace
    b: Trace
    plain: Comparison
    isolated: Comparison | None
    replayed: int
    failed: str | None
    see_alone: Callable[[ReplacedOperations], object] | None = None


def _runs(model_a: nn.Module, model_b: nn.Module, given: Given, settings: Mapping[str, Any]) -> _Runs:
    """Run two models as they are, then b with the inputs of a's calls."""
    inputs, own_inputs, kwargs = given
    with state_restored(model_a, model_b) as restore:
        a = fx_debug(model_a, *deep_copy((inputs, kwargs)), values="tensors")
        restore()
        b, failed = _run(model_b, *deep_copy((own_inputs, kwargs)), values="tensors")
        plain = compared_as_recorded(a, b, **settings)
        if failed is not None:
            return _Runs(a, b, plain, None, 0, f"b raised {failed}")
        restore()
        plan = replay_plan(pair_traces(a, b, settings["mapping"]))
        # an implementation may have the same numbers in another order, such as heads with their halves interleaved
        replay = InputReplay(model_b, a, plan.inputs, plan.outputs, keeps=is_reordered)
        with replay:
            alone, failed = _run(model_b, *deep_copy((own_inputs, kwargs)), values="tensors")
    if failed is not None:
        return _Runs(a, b, plain, None, 0, f"with what a was given, b raised {failed}")
    isolated = compared_as_recorded(a, replaced(alone, settings={**alone.settings, "isolated": True}), **settings)

    def see_alone(stepper: ReplacedOperations) -> None:
        with InputReplay(model_b, a, plan.inputs, plan.outputs, keeps=is_reordered):
            _stepped(model_b, own_inputs, kwargs, stepper)

    return _Runs(a, b, plain, isolated, replay.replayed, None, see_alone)


def _quantised(
    model_a: nn.Module, model_b: nn.Module, given: Given, settings: Mapping[str, Any], budget: float
) -> Report[QuantisedRow]:
    """Return the report on b, a quantised version of a."""
    inputs, own_inputs, kwargs = given
    runs = _runs(model_a, model_b, given, settings)
    if runs.b.error is not None:
        raise UsageError(f"{runs.failed}; if it takes other inputs than a, give them as inputs_b")

    def call_a(model: nn.Module) -> Any:
        return called(model, *deep_copy((inputs, kwargs)))

    def call_b(model: nn.Module) -> Any:
        return called(model, *deep_copy((own_inputs, kwargs)))

    judged = runs.plain if runs.isolated is None else runs.isolated
    return quantised_models(judged, model_a, model_b, call_a, call_b, budget)


def _compared(
    model_a: nn.Module, model_b: nn.Module, given_to: Given, settings: Mapping[str, Any], budget: float
) -> ComparisonData:
    """Compare two models as they run: plain, then each call of b on a's inputs; try what may repair it."""
    inputs, own_inputs, kwargs = given_to
    runs = _runs(model_a, model_b, given_to, settings)
    found = _judged(runs)
    if budget <= 0 or runs.b.error is not None or (not found.findings and returns_the_same(runs.plain, exactly=True)):
        return found

    def again(stepper: ReplacedOperations) -> tuple[Trace, Comparison]:
        with state_restored(model_b):
            given = deep_copy((own_inputs, kwargs))
            trace = run_and_store(model_b, *given, values="tensors", stepper=stepper.as_in(runs.b))
        return trace, compared_as_recorded(runs.a, trace, **settings)

    edited = EditedRuns(
        RunAgain(runs.a, lambda stepper: _stepped(model_a, inputs, kwargs, stepper.as_in(runs.a)), model_a),
        RunAgain(runs.b, lambda stepper: _stepped(model_b, own_inputs, kwargs, stepper.as_in(runs.b)), model_b),
        runs.plain,
        settings["mapping"],
        again,
    )
    of_modes = told_of_modes(found, edited)
    if of_modes is not None:
        return of_modes
    until = time.monotonic() + budget
    known = tried(found.findings, runs.plain, edited, budget)
    whole = with_told(found, told_of_gates(known, runs.plain, edited, budget))
    whole = with_repairs(whole, edited, until)
    if closeness(whole.first) < NAMED:  # what one edit repairs is the cause: such a finding follows from it
        whole = replace(whole, findings=tuple(sorted(whole.findings, key=lambda row: not row.proven)))
    if runs.isolated is None or runs.see_alone is None:
        return whole
    isolated = Isolated(runs.isolated, runs.see_alone)
    return with_other_bits(doubtful_last(with_effects(whole, isolated, edited, until)), isolated, edited, until)


def _comes_to_the_same(row: Row, *, beside: bool) -> bool:
    """May a finding come to the same, where both models return the same?

    ``beside``: the plain runs have findings, too. Weights of two names may just not face each other.
    """
    if not beside:
        return row.kind not in ("constant", "dtype") or row.measures.what == "shape"
    return row.kind in ("values", "missing", "extra") or (row.kind == "weights" and "that of a" not in row.because)


def _judged(runs: _Runs) -> Comparison:
    """Return what the plain runs and the isolated one show together."""
    plain, isolated = runs.plain, runs.isolated
    if isolated is None:
        return replace(plain, notes=(*plain.notes, f"not isolated: {runs.failed}"))
    if not isolated.findings and plain.findings and _differs_far(plain):
        why = "not isolated: with what a was given, nothing differs, but what the plain runs return does"
        return replace(plain, notes=(*plain.notes, why))
    note = f"isolated: {runs.replayed} of {len(runs.b.calls) - 1} calls of b were given what those of a were given"
    findings, rows = joined(plain, isolated)
    if returns_the_same(plain):
        # in parts, in another order, or with what a adds to a weight in the weight itself: it comes to the same
        findings = tuple([row for row in findings if not _comes_to_the_same(row, beside=bool(plain.findings))])
    whole = replace(
        isolated,
        findings=findings,
        rows=rows,
        outputs=plain.outputs,
        notes=(*isolated.notes, note),
        missing=isolated.missing and plain.missing,
    )
    return Comparison.of(whole)


def _stepped(model: nn.Module, inputs: Any, kwargs: Any, stepper: ReplacedOperations) -> list[Tensor | None]:
    """Return what a model returns with operations replaced."""
    given, keywords = deep_copy((inputs, kwargs))
    return returned_with(model, given, keywords, stepper)


def _differs_far(plain: Comparison) -> bool:
    """Do the models return values that are further apart than rounding explains, or of other shapes?"""
    rows = [row for row in plain.outputs if row.measured and row.b is not None and row.b.value is not None]
    floats = [row for row in rows if row.measures.what or (row.b and row.b.value and row.b.value.dtype in EPS)]
    return any(row.error > GROWTH * row.tolerance for row in floats)


def _run(model: nn.Module, inputs: Any, kwargs: Any, *, values: Keeping = "stats") -> tuple[Trace, str | None]:
    """Return the trace of a run and ``None``, or the partial trace of a run that raised and its exception as text."""
    try:
        return fx_debug(model, inputs, kwargs, values=values), None
    except FxDebugError:
        raise
    except Exception as error:
        partial = last_failed()
        assert partial is not None
        return partial, f"{type(error).__name__}: {error}"
