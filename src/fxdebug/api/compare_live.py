"""``compare_models``: compare two live models, each call of one with the inputs of the other's call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fxdebug.api.compare_runs import compare
from fxdebug.api.comparison import Comparison
from fxdebug.api.run_model import fx_debug, last_failed, run_and_store
from fxdebug.api.trace import Trace
from fxdebug.api.tried_repairs import tried
from fxdebug.capture.pausing.replaced_operations import ReplacedOperations
from fxdebug.capture.runs.isolated import InputReplay
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.capture.torch_state.module_members import parameters_of
from fxdebug.capture.torch_state.torch_tracing import not_compiled
from fxdebug.comparison.compare_traces import pair_traces
from fxdebug.comparison.diagnosis.isolated.join import joined
from fxdebug.comparison.diagnosis.outputs import UNEXPLAINED
from fxdebug.comparison.elementwise import is_reordered
from fxdebug.comparison.pairing.replay_plan import replay_plan
from fxdebug.data.trace import replaced
from fxdebug.data.values import Keeping
from fxdebug.errors import FxDebugError
from fxdebug.operators.dtypes import EPS

BUDGET = 10.0  # seconds in which runs with edits begin
MOST_COPIED = 1 << 28  # parameters of two models that are copied in float32: 1 GiB


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
) -> Comparison:
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
    in a narrow dtype that may hide differences, copies of both are compared in float32, and a note says so.

    >>> import copy, torch
    >>> one = torch.nn.Sequential(*[torch.nn.LayerNorm(8) for _ in range(3)])
    >>> other = copy.deepcopy(one)
    >>> other[0].eps = other[2].eps = 0.5
    >>> [(row.path, row.op) for row in compare_models(one, other, torch.arange(16.0).view(2, 8)).findings]
    [('0', 'layer_norm'), ('2', 'layer_norm')]
    """
    own_inputs = inputs if inputs_b is None else inputs_b

    def in_wide_dtype(found: Comparison) -> Comparison:
        """Return what both models with rounded weights, in the wider dtype, show where the narrow one hides it."""
        if found.findings or found.narrow is None or inputs_b is not None:
            return found
        try:
            wide = _widened(model_a, model_b)
            if wide is None:
                return found
            again = compare_models(*wide, inputs, kwargs, mapping=mapping, ignore=ignore, strict=strict, budget=budget)
        except Exception:  # of a model that cannot be cast, or whose code asks for the narrow dtype
            return found
        note = f"told in float32, of copies of both models whose weights are rounded to {found.narrow}"
        return replace(again, notes=(*again.notes, note)) if again.findings else found

    def compared(a: Trace, b: Trace) -> Comparison:
        return compare(a, b, mapping=mapping, ignore=ignore, tolerance=tolerance, strict=strict)

    with state_restored(model_a, model_b) as restore:
        a = fx_debug(model_a, *deep_copy((inputs, kwargs)), values="tensors")
        restore()
        b, failed = _run(model_b, *deep_copy((own_inputs, kwargs)), values="tensors")
        plain = compared(a, b)
        if failed is not None:
            return replace(plain, notes=(*plain.notes, f"not isolated: b raised {failed}"))
        restore()
        plan = replay_plan(pair_traces(a, b, mapping))
        # an implementation may have the same numbers in another order, such as heads with their halves interleaved
        replay = InputReplay(model_b, a, plan.inputs, plan.outputs, keeps=is_reordered)
        with replay:
            alone, failed = _run(model_b, *deep_copy((own_inputs, kwargs)), values="tensors")
    if failed is not None:
        return replace(plain, notes=(*plain.notes, f"not isolated: with what a was given, b raised {failed}"))
    isolated_comparison = compared(a, replaced(alone, settings={**alone.settings, "isolated": True}))
    if not isolated_comparison.findings and plain.findings and _differs_far(plain):
        why = "not isolated: with what a was given, nothing differs, but what the plain runs return does"
        return replace(plain, notes=(*plain.notes, why))
    note = f"isolated: {replay.replayed} of {len(b.calls) - 1} calls of b were given what those of a were given"
    findings, rows = joined(plain, isolated_comparison)
    if findings and budget > 0:

        def see_a(stepper: ReplacedOperations) -> None:
            with state_restored(model_a, model_b):
                run_and_store(model_a, *deep_copy((inputs, kwargs)), weights=False, stepper=stepper)

        def run_b(stepper: ReplacedOperations) -> Comparison | None:
            with state_restored(model_a, model_b):
                try:
                    given = deep_copy((own_inputs, kwargs))
                    return compared(a, run_and_store(model_b, *given, values="tensors", stepper=stepper))
                except FxDebugError:
                    raise
                except Exception:  # of the model, with an operation that was replaced
                    return None

        told = dict(zip(map(id, findings), tried(findings, plain, see_a, run_b, budget)))
        findings = tuple([told[id(row)] for row in findings])
        rows = tuple([told.get(id(row), row) for row in rows])
    whole = replace(
        isolated_comparison,
        findings=findings,
        rows=rows,
        outputs=plain.outputs,
        notes=(*isolated_comparison.notes, note),
        missing=isolated_comparison.missing and plain.missing,
    )
    return in_wide_dtype(Comparison.of(whole))


def _widened(a: nn.Module, b: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """Return copies of two models in float32, with weights rounded to the narrower dtype of one of them.

    The one rounding of each weight is then no difference, and results are compared as closely as in float32. ``None``
    where not exactly one of them is in a narrow dtype, or they are too large to copy.
    """
    dtypes = [{x.dtype for x in parameters_of(model) if x.is_floating_point()} for model in (a, b)]
    narrow = [kinds for kinds in dtypes if kinds in ({torch.bfloat16}, {torch.float16})]
    if len(narrow) != 1 or {torch.float32} not in dtypes:
        return None
    if sum(x.numel() for model in (a, b) for x in parameters_of(model)) > MOST_COPIED:
        return None
    one, other = deep_copy(a), deep_copy(b)
    if one is a or other is b:  # they cannot be copied
        return None
    return one.to(*narrow[0]).float(), other.to(*narrow[0]).float()


def _differs_far(plain: Comparison) -> bool:
    """Do the models return values that are further apart than rounding explains, or of other shapes?"""
    rows = [row for row in plain.outputs if row.measured and row.b is not None and row.b.value is not None]
    floats = [row for row in rows if row.measures.what or (row.b and row.b.value and row.b.value.dtype in EPS)]
    return any(row.error > UNEXPLAINED * row.tolerance for row in floats)


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
