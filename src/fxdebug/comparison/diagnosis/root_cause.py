"""Name the cause of a step that differs: the step itself, its weights, or the step that handed it a wrong value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fxdebug.comparison.constants import as_written
from fxdebug.comparison.diagnosis.attention.attention_arguments import other_heads, other_masking
from fxdebug.comparison.diagnosis.cause import (
    BOTH_DREW,
    SAME_INPUTS,
    Cause,
    differing_settings,
    listed,
    make_cause,
    on_both_sides,
    values_differ,
)
from fxdebug.comparison.diagnosis.element_order import (
    ElementOrder,
    arranging_step,
    choices_changed,
    constants_changed,
    inputs_swapped,
    moves_changed,
    order_cause,
    order_drawn,
    parts_exchanged,
)
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult, comparable, draws_random
from fxdebug.comparison.diagnosis.narrowing_cast import rounded_positions
from fxdebug.comparison.diagnosis.region import maker_of_mask, view_chain
from fxdebug.comparison.diagnosis.region_causes import RegionDiagnosis
from fxdebug.comparison.diagnosis.weights.changed_weight import changed_weight, changed_within, have_equal_sums, is_same
from fxdebug.comparison.diagnosis.weights.folded_norm import rightly_folded, wrongly_folded
from fxdebug.comparison.diagnosis.weights.merged_adapter import wrongly_merged
from fxdebug.comparison.diagnosis.weights.misplaced_weights import MisplacedWeights, weight_behind
from fxdebug.comparison.diagnosis.weights.stacked_weights import StackedWeights
from fxdebug.comparison.diagnosis.weights.weight_slices import Weight, Weights
from fxdebug.comparison.pairing.by_dataflow import following_batch_norm
from fxdebug.comparison.pairing.by_path import renamed
from fxdebug.comparison.pairing.called_in_parts import is_given_in_parts
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.thresholds import VIEWS
from fxdebug.comparison.tolerance import error_between, visible_share
from fxdebug.data.values import Value, shape_text
from fxdebug.errors import FxDebugError
from fxdebug.operators.categories import CASTS
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import (
    COMMUTATIVE,
    COPYING,
    REORDERING_VIEWS,
    SUMS,
    TRANSPARENT,
    canonical,
    family,
    role,
)
from fxdebug.operators.nonfinite import has_nonfinite
from fxdebug.operators.nonfinite_cause import find_cause

_BY_CUDNN = ("conv", "lstm", "gru", "rnn")  # the beginnings of names of operations


OTHER_ELEMENTS = "inputs with the same statistics give other values: their elements are others, or in another order"

NOT_LOOKED_FOR = "what is behind it could not be looked for"


class _Told(NamedTuple):
    """A kind of finding and its sentence, of the step that adds error itself."""

    kind: Kind
    because: str
    is_weight_told: bool = False


class Diagnoser:
    """Turn the results of steps into causes, from the values that the first differing value depends on."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._pairs = judge.pairs
        self._reported: set[object] = set()
        self.regions = RegionDiagnosis(judge, self._reported)
        self._misplaced = MisplacedWeights(judge)
        self._stacked = StackedWeights(judge)
        self._weights = Weights(self._pairs.a.trace), Weights(self._pairs.b.trace)

    def diagnose(self, result: StepResult) -> Cause | None:
        """Return the cause of a step's error; ``None`` where the error was inherited, or there is none.

        Where looking for it fails, the finding says so: a comparison is not lost by a rule.
        """
        try:
            return self._diagnosed(result)
        except FxDebugError:
            raise
        except Exception as error:  # of ours
            if not (result.exceeds_tolerance and result.adds):
                return None
            step, because = result.step, f"{SAME_INPUTS}; {NOT_LOOKED_FOR} ({type(error).__name__})"
            return make_cause(self._judge, "values", step.call, step.op, because, result)

    def _diagnosed(self, result: StepResult) -> Cause | None:
        cast = self._other_dtype(result) if self._judge.same_dtypes else None
        if cast is not None:
            return cast
        if not result.exceeds_tolerance:
            return None
        if result.measures.what == "shape" and _takes(result.partner) != _takes(result.step):
            return None  # what takes elements by tensors and what cuts a slice are no counterparts
        masked = other_masking(self._judge, result)
        if masked is not None:
            return masked
        unfolded = self._unfolded(result)
        if unfolded is not None:
            return self._own_cause(unfolded) if unfolded.adds else None
        if family(result.partner.name) != family(result.step.name):
            return self.regions.explain(result, result.a, result.b, through=True)
        if result.adds:
            return self._own_cause(result)
        if result.worst_input is None or result.error_in <= self._limit(*result.worst_input):
            # in a narrow dtype statistics of what it was given show rounded angles as equal
            return self._rounded_positions(result) if self._judge.narrow_eps(result.a, result.b) else None
        one, other = result.worst_input
        if self._pairs.are_paired(one.value, other.value):
            return self._changed_on_the_way(result, one, other)
        if result.step.name in SUMS and self._judge.meter(one.value, other.value).what == "shape":
            # it is not known which operands of a and b belong together
            sibling = self.regions.explain_by_siblings(result)
            if sibling is not None:
                return sibling
        cause = self.regions.explain(result, one.value, other.value)
        if cause is None or cause.kind not in ("missing", "extra") or result.error_in < math.inf:
            return cause
        # padding that one side leaves to the operation makes no difference where a weight does
        own = make_cause(self._judge, "values", result.step.call, result.step.op, "", result)
        weight = self._rearranged_weight(own, result)
        return cause if weight is own else weight

    def behind(self, cause: Cause) -> Cause | None:
        """Return what is behind a cause that reaches the outputs: elements or slices of weights in other places.

        The step that shows it may come long after. Returns the cause itself where nothing is behind it, and ``None``
        where that was named before.
        """
        try:
            return cause if cause.is_weight_told else self._behind(cause)
        except FxDebugError:
            raise
        except Exception:  # of ours: the step that shows it is told
            return cause

    def _behind(self, cause: Cause) -> Cause | None:
        result = self._judge.results.get(cause.position)
        if result is not None and cause.kind in ("values", "wiring"):
            moved = moves_changed(self._judge, cause, result)
            if moved is not None:
                return self._order_cause(result, moved)
        if result is not None:
            chosen = choices_changed(self._judge, cause, result)
            if chosen is not None:
                key = (chosen.step.index, "choice")
                known = key in self._reported
                self._reported.add(key)
                return None if known else self._order_cause(self._judge.results[chosen.step.index], chosen)
        if is_given_in_parts(self._pairs.a.trace, self._pairs.b.trace):
            return cause  # one model, whose weights are where they are
        is_stack = result is None or not result.step.name.startswith("conv")  # whose weights have more dimensions
        stacked = self._stacked.explain(cause, result) if is_stack else cause
        found = stacked if stacked is not cause else self._misplaced.explain(cause, result)
        return self._rearranged_weight(cause, result) if found is cause and cause.kind == "values" else found

    def _order_cause(self, result: StepResult, change: ElementOrder) -> Cause:
        """Return a change of order as a cause, or the weight whose slices are in other places that brings it about."""
        cause = order_cause(self._judge, result, change)
        at = self._judge.results.get(change.step.index) if change.kind == "values" and change.step.weights else None
        return self._rearranged_weight(cause, at)

    def _rearranged_weight(self, cause: Cause, result: StepResult | None) -> Cause:
        """Return the weight with a's numbers in other places, which statistics do not show, else the cause itself."""
        if result is None or cause.b is not result.step:
            return cause
        for one, other in result.inputs:
            name_a = weight_behind(self._pairs.a, one.value, computed=True)
            name_b = weight_behind(self._pairs.b, other.value, computed=True)
            if name_a and name_b:
                change = changed_weight(name_a, name_b, *self._weights)
                if change is not None:
                    return replace(cause, kind="weights", because=change, is_weight_told=True, absorbable=False)
        return cause

    def _unfolded(self, result: StepResult) -> StepResult | None:
        """Return the result beside the convolution of a, where b has the batch norm behind that rightly folded in."""
        partner, step = result.partner, result.step
        before = (
            self._pairs.a.maker(partner.data[0].value) if partner.name == "batch_norm" and partner.data else partner
        )
        if before is None or not before.data or not step.data:
            return None
        norm = following_batch_norm(self._pairs.a, before)
        if norm is None or not rightly_folded(self._pairs.a, before, self._pairs.b, step, self._weights):
            return None
        one, other = before.data[0], step.data[0]
        if not self._pairs.are_paired(one.value, other.value):
            return None
        measures = self._judge.meter(norm.outputs[0], result.b)
        error = self._judge.meter(one.value, other.value).error
        return replace(
            result,
            partner=before,
            a=norm.outputs[0],
            measures=measures,
            error_in=error,
            adds=error <= self._limit(one, other) and measures.error > result.tolerance,
            worst_input=(one, other),
            inputs=((one, other),),
            differing_weights=None,
        )

    def _limit(self, one: StepInput, other: StepInput) -> float:
        judge = self._judge
        return max(judge.meter.tolerance(one.value, other.value), judge.casting_tolerance(one.value, other.value))

    # Another dtype -------------------------------------------------------------------------------

    def _other_dtype(self, result: StepResult) -> Cause | None:
        """Return the first step whose dtype differs from a's, for runs whose weights and inputs have equal dtypes."""
        facing = result.inputs or tuple(zip(result.partner.data, result.step.data))
        sides = [side for side in facing if {side[0].value.dtype, side[1].value.dtype} <= EPS.keys()]
        for one, other in sides:
            if one.value.dtype == other.value.dtype or not self._pairs.are_paired(one.value, other.value):
                continue
            roots = self._pairs.a.root(one.value), self._pairs.b.root(other.value)
            if roots[0].dtype != roots[1].dtype:
                return None  # inherited from there
            for step in view_chain(self._pairs.b, other.value):
                if step.outputs[0].dtype != roots[1].dtype:
                    return self._dtype_cause(result, step, roots[0], roots[1].dtype, step.outputs[0].dtype)
        same = all(one.value.dtype == other.value.dtype for one, other in sides)
        if same and result.a.dtype != result.b.dtype and {result.a.dtype, result.b.dtype} <= EPS.keys():
            return self._dtype_cause(result, result.step, result.a, result.a.dtype, result.b.dtype)
        return None

    def _dtype_cause(self, result: StepResult, step: Step, facing: Value, a: str, b: str) -> Cause | None:
        """Return the cause at a step of b whose result has another dtype than the value of a that faces it."""
        if (step.index, "dtype") in self._reported:
            return None
        self._reported.add((step.index, "dtype"))
        because = f"{a} in a, {b} in b"
        return make_cause(
            self._judge, "dtype", step.call, step.op, because, result, step=step, b=step.results[0], a=facing
        )

    # The step itself -----------------------------------------------------------------------------

    def _own_cause(self, result: StepResult) -> Cause:
        """Return the cause at a step that adds error: its weights, what is written there, or an order of elements."""
        found = self._of_weights(result) or self._written(result) or self._of_values(result)
        if isinstance(found, Cause):
            return found
        step = result.step
        product = found.kind == "values" and bool(step.weights) and family(step.name) == "product"
        cause = make_cause(
            self._judge, found.kind, step.call, step.op, found.because, result, absorbable=not result.differing_weights
        )
        reordered = product and self._judge.meter.is_reordered(result.a, result.b)
        return replace(cause, is_weight_told=found.is_weight_told, reordered=reordered)

    def _of_weights(self, result: StepResult) -> Cause | _Told | None:
        """Return how the weights of a step differ, or that another module's are used."""
        step, partner = result.step, result.partner
        if result.differing_weights is None:
            within = self._weights_of_unrecorded(partner, step)
            return None if within is None else _Told("weights", within, is_weight_told=True)
        one, other = result.differing_weights
        name = other.value.name or other.argument
        called = self._another_module(result, one.value.name or "", name)
        if called is not None:
            return called
        told = wrongly_folded(self._pairs.a, partner, self._pairs.b, step, self._weights)
        told = told or wrongly_merged(self._pairs.a, partner, self._pairs.b, step, self._weights)
        told = told or changed_weight(one.value.name or "", name, *self._weights)
        if told is None and one.value.numel != other.value.numel:
            return None  # one may hold more: a bias beside the matrix
        ours = "that of a" if one.value.name in ("", name) else one.value.name or "that of a"
        because = told or _told_by_statistics(name, other.value, ours, one.value)
        return _Told("weights", because, is_weight_told=told is not None)

    def _written(self, result: StepResult) -> Cause | _Told | None:
        """Return what is written otherwise at a step: shapes, random numbers, heads, masks, operands, settings."""
        step, partner = result.step, result.partner
        gone, new = differing_settings(partner, step)
        other_settings = bool(gone or new) and canonical(step.op) in (canonical(partner.op), partner.name)
        if result.measures.what == "shape":
            because = f"{shape_text(result.a.shape)} in a, {shape_text(result.b.shape)} in b"
            if (gone or new) and partner.name == step.name and step.name not in TRANSPARENT:
                sides = [listed(texts) or "no such argument" for texts in (gone, new)]
                because = f"{sides[0]} in a, {sides[1]} in b: its result is {because}"
            return _Told("shape", because)
        if len(partner.weights) > len(step.weights) and partner.name == step.name:  # before settings beside it
            return _Told("missing", self._unused_input(partner, step))
        if draws_random(step) and (draws_random(partner) or not other_settings):
            return _Told("random", BOTH_DREW if draws_random(partner) else "random numbers were drawn in b, none in a")
        other = other_heads(self._judge, result) or self._other_mask(result)
        if other is not None:
            return other
        change = None if self._is_paired_by_path(result) else inputs_swapped(self._judge, result)
        change = change or (parts_exchanged(self._judge, result) if other_settings else None)
        if change is not None:
            return self._order_cause(result, change)
        if other_settings:
            numbers = [_single_numbers(step, partner), _single_numbers(partner, step)]
            return _Told("constant", on_both_sides(listed(gone or numbers[1]), listed(new or numbers[0])))
        return None

    def _of_values(self, result: StepResult) -> Cause | _Told:
        """Return what the values of a step show, where nothing at it is written otherwise."""
        step, partner = result.step, result.partner
        if result.measures.what == "nonfinite":
            return _Told("nonfinite", _made_nonfinite(result))
        missing = self._unused_input(partner, step)
        if missing:
            return _Told("missing", missing)
        turned = self._reordered(result)
        if turned is not None:
            return turned
        if partner.name != step.name:
            return _Told("values", f"{partner.name} in a, {step.name} in b")
        if self._device_type(result.a) != self._device_type(result.b):
            return _Told(
                "values", f"computed on {self._device_of(0, result)} in a, on {self._device_of(1, result)} in b"
            )
        counted = _counted_elsewhere(result)
        if counted is not None or not self._may_be_reordered(result):
            return _Told("values", counted or SAME_INPUTS)
        rounded = self._rounded_positions(result)
        if rounded is not None:
            return rounded
        drawing = order_drawn(self._judge, result)
        if drawing is not None:
            return make_cause(self._judge, "random", drawing.call, drawing.op, BOTH_DREW, result, step=drawing)
        return _Told("values", OTHER_ELEMENTS)

    def _another_module(self, result: StepResult, a: str, b: str) -> Cause | None:
        """Return the call of another module than in a, where b has the weights of a, but uses other ones here."""
        mine, known = self._weights[1].find(b), self._in_its_place(b)
        if mine is None or known is None or not is_same(known, mine):  # biases of zeros say nothing
            return None
        used, here, own = (name.split(".") for name in (a, known.name, b))
        while used and here and own and used[-1] == here[-1]:
            used, here, own = used[:-1], here[:-1], own[:-1]
        if not used or not own:
            return None
        paths = [".".join(parts) for parts in (used, own)]
        if any(self._in_its_place(weight.name) is None for weight in self._weights[1].within(paths[1])):
            return None  # weights of the module are others: the module may be the right one
        calls = {call.path: call for call in result.step.call.with_ancestors()}
        call = calls.get(paths[1])
        where = result.step.call if call is None or call.parent is None else call.parent
        because = f"{paths[0]} is {'used' if call is None else 'called'} in a, {paths[1]} in b"
        op = result.step.op if call is None else call.type
        return make_cause(self._judge, "wiring", where, op, because, result, absorbable=False)

    def _in_its_place(self, name: str) -> Weight | None:
        """Return the weight of a that a weight of b should be, if it is the same."""
        of_a, of_b = self._weights
        mine, known = of_b.find(name), of_a.find(renamed(self._pairs.b, name))
        if known is None and len(of_a.names) == len(of_b.names) and name in of_b.names:  # under another name
            known = of_a.find(list(of_a.names)[of_b.names[name]])
        if mine is None or known is None or known.parameter.shape != mine.parameter.shape:
            return None
        return known if have_equal_sums(known, mine) else None

    def _weights_of_unrecorded(self, partner: Step, step: Step) -> str | None:
        """Return how weights differ of a module whose operations neither run recorded, as of a fused attention."""
        inside = [
            each.unrecorded and each.call.parent is not None and not each.call.children for each in (partner, step)
        ]
        if not all(inside):
            return None
        return changed_within(partner.call.path, step.call.path, *self._weights)

    @staticmethod
    def _device_type(value: Value) -> str:
        return value.device.partition(":")[0]

    def _device_of(self, side: int, result: StepResult) -> str:
        """Return the device of a's or b's result, and whether products may be rounded to TF32 on it."""
        value, run = ((result.a, self._pairs.a), (result.b, self._pairs.b))[side]
        library = "cudnn" if result.step.name.startswith(_BY_CUDNN) else "cuda.matmul"
        allowed = str(run.trace.settings.get("tf32", "")).split()
        if self._device_type(value) != "cuda" or value.dtype != "float32" or library not in allowed:
            return value.device
        return f"{value.device} (with TF32, 10 bits: torch.backends.{library}.allow_tf32)"

    def _may_be_reordered(self, result: StepResult) -> bool:
        """Is it given several values, weights among them, of which statistics alone are known to be equal?"""
        given = [(one.value, other.value) for one, other in result.inputs if not other.is_weight]
        several = len(result.inputs) > 1
        return several and any(self._judge.meter(one, other).basis != "tensors" for one, other in given)

    def _reordered(self, result: StepResult) -> Cause | None:
        """Return the step that puts the elements into another order, by the surest signs first.

        Positions that a narrow dtype rounds make the same numbers for other positions, too.
        """
        if (rounded := self._rounded_positions(result)) is not None:
            return rounded
        weight = self._weight_with_other_rows(result)
        if weight is not None:
            return weight
        same_operation = result.partner.name == result.step.name
        for find in (inputs_swapped, constants_changed):
            if same_operation and (change := find(self._judge, result)) is not None:
                return self._order_cause(result, change)
        rearranged = self._rearranged_inputs(result)
        if rearranged is None and same_operation and result.step.transparent:  # views of one value
            ways = view_chain(self._pairs.a, result.a), view_chain(self._pairs.b, result.b)
            if self._judge.narrow is not None and _differ_in_casts_alone(*ways):
                return None
            rearranged = self._other_views(result, *ways)
        if rearranged is not None:
            return rearranged
        if same_operation and (change := arranging_step(self._judge, result)) is not None:
            return self._order_cause(result, change)
        return None

    def _weight_with_other_rows(self, result: StepResult) -> Cause | None:
        """Return the product on the way to a step whose weight has a's rows in other places."""
        for one, other in result.inputs:
            sides = self._product_behind(self._pairs.a, one.value), self._product_behind(self._pairs.b, other.value)
            at = None if sides[1] is None else self._judge.results.get(sides[1].index)
            if at is None or at.partner is not sides[0] or at.error_in > at.tolerance:
                continue
            own = make_cause(self._judge, "values", at.step.call, at.step.op, "", at)
            found = self._rearranged_weight(own, at)
            if found is not own:
                return replace(found, position=result.position)
        return None

    @staticmethod
    def _product_behind(run: StepList, value: Value) -> Step | None:
        """Return the product with weights that a value comes of, behind operations on that value alone."""
        step = run.maker(value)
        for _ in range(VIEWS):
            if step is None or step.weights or len(step.data) != 1:
                break
            step = run.maker(step.data[0].value)
        return step if step is not None and step.weights and family(step.name) == "product" else None

    def _other_mask(self, result: StepResult) -> Cause | None:
        """Return the step that makes a mask of b, if it lets another share of positions through than a's mask."""
        for one, other in result.inputs:
            in_a, in_b = visible_share(one.value), visible_share(other.value)
            if in_a is None or in_b is None or min(abs(in_b - in_a), abs(in_b - (1 - in_a))) <= 1e-6:
                continue
            if self._judge.meter.face_in_parts(one.value, other.value):  # of other sizes: their shares say nothing
                continue
            maker = maker_of_mask(self._pairs.b, other.value)
            if maker is not None:
                because = f"the mask lets {in_a:.0%} through in a, {in_b:.0%} in b"
                return make_cause(
                    self._judge, "values", maker.call, maker.op, because, result, step=maker, a=one.value, b=other.value
                )
        return None

    def _unused_input(self, partner: Step, step: Step) -> str:
        """Name the weights or arguments that only a has (a bias that b leaves out); empty where there are none.

        A weight that a turns before it is given is no weight any more, and takes the place of one of b; a bias may be
        the last row of a matrix.
        """
        sizes = [sum(given.value.numel for given in each.weights) for each in (partner, step)]
        if len(partner.inputs) <= len(step.inputs) or 0 < sizes[0] == sizes[1]:
            return ""
        if len(partner.weights) > len(step.weights):
            spare = [given.value.name or given.argument for given in partner.weights[len(step.weights) :]]
            return f"{listed(spare)} is used in a only"
        if len(partner.data) > len(step.data):
            return f"{listed(given.argument for given in partner.data[len(step.data) :])} is given in a only"
        return ""

    def _rearranged_inputs(self, result: StepResult) -> Cause | None:
        """Return the step on the way to this one that puts elements into another order, which statistics do not show.

        This is the last explanation, for steps with the same operation, constants and weights.
        """
        for one, other in result.inputs:
            measures = self._judge.meter(one.value, other.value)
            if other.is_weight or (
                measures.basis == "tensors" and measures.error <= self._judge.clean_for(one.value, other.value)
            ):
                continue
            ways = self._copies_before(self._pairs.a, one.value), self._copies_before(self._pairs.b, other.value)
            roots = self._pairs.a.root(one.value), self._pairs.b.root(other.value)
            cause = None
            starts = [_start_of(way, root) for way, root in zip(ways, roots)]
            same_order = starts[0].shape == starts[1].shape or _is_regrouped(starts[0].shape, starts[1].shape)
            # a copy has more elements; as many in another layout come with other views
            copied = any(step.name in COPYING for way in ways for step in way) and starts[0].numel != starts[1].numel
            if self._is_paired_by_path(result) or copied or same_order:
                cause = self._other_views(result, *ways)
            cause = cause or self._swapped_earlier(result, *roots)
            if cause is not None:
                return cause
        return None

    def _rounded_positions(self, result: StepResult) -> Cause | None:
        found = rounded_positions(self._judge, result)
        if found is None:
            return None
        step, because = found
        return make_cause(self._judge, "dtype", step.call, step.op, because, result, step=step)

    def _other_views(self, result: StepResult, a: list[Step], b: list[Step]) -> Cause | None:
        """Return the first view or copy in ``b`` that differs from the one in ``a`` at the same place."""
        by_path = self._is_paired_by_path(result)
        if self._judge.narrow is not None and _differ_in_casts_alone(a, b):
            return None
        # two implementations may differ in views and reshapes, but not in a transposition more or less
        ways = [[step for step in way if by_path or step.name in REORDERING_VIEWS] for way in (a, b)]
        keys = [[(step.name, step.constants) if by_path else step.name for step in way] for way in ways]
        if keys[0] == keys[1] or not b:
            return None
        place = next((i for i, (x, y) in enumerate(zip(*keys)) if x != y), min(map(len, keys)))
        step = (ways[1] or b)[min(place, len(ways[1] or b) - 1)]
        texts = [" ".join(f"{s.op}({', '.join(as_written(*s.constants))})" for s in way) for way in (a, b)]
        because = on_both_sides(*texts)
        kind: Kind = "constant" if by_path else "values"
        return make_cause(self._judge, kind, step.call, step.op, because, result, step=step)

    def _is_paired_by_path(self, result: StepResult) -> bool:
        pair = self._pairs.steps.get(result.step.index)
        return pair is not None and pair.matched_by in ("path", "mapping")

    def _swapped_earlier(self, result: StepResult, a: Value, b: Value, deep: int = 6) -> Cause | None:
        """Return an earlier step that is given the same two values as in a, the other way round."""
        one = self._pairs.a.maker(a)
        other = self._pairs.b.maker(b)
        if one is None or other is None or not one.data or not other.data or not deep:
            return None
        left, right = one.data, other.data
        ordered = len(left) == len(right) == 2 and one.name not in COMMUTATIVE
        if ordered and family(one.name) == family(other.name):
            crossed = all(self._pairs.are_paired(x.value, y.value) for x, y in zip(left, right[::-1]))
            crossed = crossed and not self._pairs.are_paired(left[0].value, right[0].value)
            if crossed:
                because = f"{other.op} is given the same two values the other way round"
                return make_cause(self._judge, "wiring", other.call, other.op, because, result, step=other, partner=one)
        if role(one.name) in ("mul", "add") or role(other.name) in ("mul", "add"):
            here = left[0].value if role(one.name) in ("mul", "add") else a
            there = right[0].value if role(other.name) in ("mul", "add") else b
            return self._swapped_earlier(result, here, there, deep - 1)
        return None

    def _copies_before(self, run: StepList, value: Value) -> list[Step]:
        """Return the views and copies (repeat, expand, cat) between a value and the step that computed it."""
        steps = view_chain(run, value)
        for _ in range(4):
            maker = run.maker(value)
            if maker is None or maker.name not in COPYING or not maker.data:
                break
            value = max((given.value for given in maker.data), key=lambda v: v.numel)
            steps = [*view_chain(run, value), maker, *steps]
        return steps

    # Its inputs ----------------------------------------------------------------------------------

    def _changed_on_the_way(self, result: StepResult, one: StepInput, other: StepInput) -> Cause | None:
        """Return the cast or view that changed an input on the way from a value that is equal on both sides."""
        root_a, root_b = self._pairs.a.root(one.value), self._pairs.b.root(other.value)
        if values_differ(self._judge, root_a, root_b):
            return None
        for step in view_chain(self._pairs.b, other.value):
            output = step.outputs[0]
            if self._pairs.step_in_a(step) is not None or not comparable(root_a, output):
                continue
            error = error_between(root_a.stats, output.stats)
            if error is None or error <= self._judge.meter.tolerance(root_a, root_b):
                continue
            cast = output.dtype != root_b.dtype
            because = f"{root_b.dtype} becomes {output.dtype}" if cast else "the elements are not what they were"
            return make_cause(
                self._judge, "dtype" if cast else "values", step.call, step.op, because, result, step=step
            )
        # for two dtypes statistics alone do not prove another order
        reordered = self._judge.same_dtypes or self._judge.meter.is_reordered(one.value, other.value)
        return self._rearranged_inputs(result) if reordered else None


def _takes(step: Step) -> bool:
    """Does an index take elements by tensors?"""
    return step.name == "getitem" and any("•" in text for text in step.constants)


def _told_by_statistics(name: str, b: Value, ours: str, a: Value) -> str:
    """Say how a weight differs, of which no sums of slices are known, as of a bias of one element."""
    if a.stats is None or b.stats is None or a.stats.max is None or b.stats.max is None:
        return f"{name} differs from {ours}"
    zero = [stats.min == stats.max == 0.0 for stats in (a.stats, b.stats)]
    if zero[1] and not zero[0]:
        return f"{name} is zero, {ours} is not"
    if a.numel == b.numel == 1:
        return f"{name} is {b.stats.max:.6g}, {ours} is {a.stats.max:.6g}"
    return f"{name} differs from {ours}"


def _made_nonfinite(result: StepResult) -> str:
    """Say why a step makes NaN or infinities in one run, where its partner makes none."""
    side, step = ("b", result.step) if has_nonfinite(result.b) else ("a", result.partner)
    numbers = [float(text) for text in step.constants if text.replace(".", "", 1).lstrip("-").isdigit()]
    given = [each.value for each in step.data]
    cause = find_cause(step.op.strip("_"), numbers, given, step.outputs)
    return f"in {side} {cause.why}" if cause is not None else "NaN or infinity on one side only"


def _counted_elsewhere(result: StepResult) -> str | None:
    """Say by how much integers are off that all are off by as much, as positions counted from another start are."""
    most, mean = result.measures.max_abs, result.measures.mean_abs
    if not result.b.dtype.startswith("int") or not most or most != mean:
        return None
    if result.a.stats is None or result.b.stats is None or result.a.stats.max is None or result.b.stats.max is None:
        return None
    more = "more" if result.b.stats.max > result.a.stats.max else "less"
    return f"integers are {most:g} {more} than in a, all of them: they are counted from another start"


def _single_numbers(step: Step, other: Step) -> list[str]:
    """Return the numbers that a step is given as tensors of one element, where another step is given fewer tensors."""
    more = max(len(step.data) - len(other.data), 0)
    stats = [each.value.stats for each in step.data if each.value.numel == 1]
    return [f"{known.mean:.6g}" for known in stats if known is not None and known.mean is not None][:more]


def _start_of(way: Sequence[Step], otherwise: Value) -> Value:
    """Return the value that views and copies begin with."""
    return max((given.value for given in way[0].data), key=lambda v: v.numel) if way and way[0].data else otherwise


def _is_regrouped(a: Sequence[int], b: Sequence[int]) -> bool:
    """Have two shapes the same dimensions but for neighbouring ones that are one in the other: groups of heads?"""
    longer, shorter = ([size for size in shape if size != 1] for shape in sorted((a, b), key=len, reverse=True))
    for size in shorter:
        product = 1
        while longer and product < size:
            product *= longer.pop(0)
        if product != size:
            return False
    return not longer


def _differ_in_casts_alone(a: list[Step], b: list[Step]) -> bool:
    """Are the views of two values the same but for casts, which move no element?"""
    moves = [[(step.name, step.constants) for step in way if step.name not in CASTS] for way in (a, b)]
    return moves[0] == moves[1] and len(a) != len(b)
