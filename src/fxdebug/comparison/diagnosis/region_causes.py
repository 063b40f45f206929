"""Name the cause where b uses another value than a in the same place, by the steps that lead to each of the two."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

from fxdebug.comparison.constants import as_written
from fxdebug.comparison.diagnosis.attention.attention_arguments import (
    drawn_only_in_b,
    other_bias_table_in,
    other_masking_in,
    visible_shares,
)
from fxdebug.comparison.diagnosis.attention.tables import (
    TableDifference,
    Tables,
    difference_of,
    differing_table,
    have_the_same_tables,
    whole_table,
)
from fxdebug.comparison.diagnosis.cause import (
    SAME_OPERATIONS,
    Cause,
    differing_settings,
    listed,
    make_cause,
    on_both_sides,
    values_differ,
)
from fxdebug.comparison.diagnosis.counterparts import (
    exchanged_order,
    facing_step,
    moved,
    other_factory,
    without_effect,
)
from fxdebug.comparison.diagnosis.element_order import inputs_swapped, order_cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.missing_steps import NamedSteps, extra_cause, missing_cause
from fxdebug.comparison.diagnosis.narrowing_cast import narrowing_cast
from fxdebug.comparison.diagnosis.region import (
    Divergence,
    Region,
    computes_floats,
    handing_call,
    is_lookup,
    is_single_operation,
    maker_of_mask,
    most_informative,
    region_of,
    terms_of,
    unmatched_steps,
    written_fractions,
)
from fxdebug.comparison.diagnosis.sibling_calls import sibling_cause
from fxdebug.comparison.diagnosis.weights.changed_weight import changed_among
from fxdebug.comparison.diagnosis.weights.other_orientation import other_orientation
from fxdebug.comparison.diagnosis.weights.weight_layouts import (
    counterpart_makers,
    hold_different_numbers,
    is_unpaired,
    norms_or_scales,
)
from fxdebug.comparison.diagnosis.weights.weight_slices import Weights
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import COPIED
from fxdebug.comparison.tolerance import error_between, is_distinctive
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import (
    ACTIVATIONS,
    FACTORIES,
    SLICES,
    UNINITIALISED,
    family,
    role,
)
from fxdebug.query import network

_OF_ELEMENTS = frozenset(["mul", "add", "div", "pow", "erf"])  # that activations are written out with
MANY_STEPS = 20  # beyond which names of operations say less than those of calls


@dataclass
class RegionDiagnosis:
    """Explain values by the regions before them. ``reported``: keys of causes, so that none is reported twice."""

    judge: Judge
    reported: set[object] = field(default_factory=set)
    _folds_norms: bool | None = None  # are batch norms folded into products in b? None: not known yet
    _wrong_tables: set[int] = field(default_factory=set)  # the numbers of tables of b that a cause names

    def __post_init__(self) -> None:
        self.tables = Tables(self.judge.pairs.a), Tables(self.judge.pairs.b)
        self._weights = Weights(self.judge.pairs.a.trace), Weights(self.judge.pairs.b.trace)

    def explain(self, result: StepResult, a: Value, b: Value, *, through: bool = False) -> Cause | None:
        """Return the cause of ``b`` in the place of ``a``; ``None`` where the error comes from further upstream.

        ``through``: do not stop at the two values although they are a pair, because different operations made them.
        """
        pairs = self.judge.pairs
        in_a = region_of(pairs.a, a, pairs.is_firm_in_a, through=through)
        in_b = region_of(pairs.b, b, pairs.is_firm, through=through)
        table = whole_table(pairs, self.tables, result.partner, result.step)
        found = None if table is None else difference_of(pairs, *table)
        if table is not None and found is not None and found.is_constant:  # how each makes it is its own affair
            return self._wrong_table(Divergence(self.judge, result, *table, in_a, in_b), found)
        if self._inherits(in_b) and not self._is_another_function(result, in_a, in_b):
            return None
        key = (tuple(step.index for step in in_a.steps), tuple(step.index for step in in_b.steps), b.number)
        if key in self.reported:
            return None
        self.reported.add(key)
        if _begins_with(pairs.a, in_b, pairs.value_in_a, a):  # b computes more with what a has as its result
            in_a = Region((), (a,))
        elif through and self._is_given(in_a, b):  # a computes more with what b has as its result
            in_b = Region((), (b,))
        divergence = Divergence(self.judge, result, a, b, in_a, in_b)
        if _is_opaque_whole(in_a) or _is_opaque_whole(in_b):
            return _behind_opaque(divergence)
        if self._uses_known_table(in_b):
            return None
        if not in_a.computing and not in_b.computing:
            return self._once(_rewired(divergence))
        return self._once(
            _nonfinite(divergence)
            or _other_mask(divergence)
            or other_masking_in(divergence)
            or drawn_only_in_b(divergence)
            or self._other_orientation(divergence)
            or _other_weights(divergence)
            or _other_rows(divergence)
            or other_bias_table_in(divergence)
            or self._other_table(divergence)
            or self._other_steps(divergence)
        )

    def _other_orientation(self, divergence: Divergence) -> Cause | None:
        """Return the product of b whose matrix lies as a's does, though its operation takes it the other way round."""
        pairs = self.judge.pairs
        products = [
            [step for step in region.computing if family(step.name) == "product"]
            for region in (divergence.in_a, divergence.in_b)
        ]
        if not all(len(steps) == 1 for steps in products):
            return None
        (one,), (other,) = products
        told = other_orientation(pairs.a, one, pairs.b, other, self._weights)
        if told == "" and self._are_given_in_another_order(divergence, one, other):
            told = f"what {other.op} is given has the numbers of a in another order"
            return divergence.cause("values", other, f"{told}, and {other.weights[0].value.name} does not", partner=one)
        if not told:
            return None
        cause = divergence.cause("weights", other, told, partner=one, absorbable=False)
        return replace(cause, is_weight_told=True)

    def _are_given_in_another_order(self, divergence: Divergence, a: Step, b: Step) -> bool:
        """Are two products given the same numbers in another order, as far as is known, and all weights are pairs?"""
        meter, weights = self.judge.meter, [given.value for step in divergence.in_b.steps for given in step.weights]
        if not a.data or not b.data or any(value.number not in self.judge.pairs.values for value in weights):
            return False
        given = a.data[0].value, b.data[0].value
        measures = meter(*given)
        by_exclusion = measures.basis == "statistics" and not measures.what and measures.error <= self.judge.clean
        return by_exclusion or meter.is_reordered(*given)

    def _once(self, cause: Cause | None) -> Cause | None:
        """Return a cause that was not told of the same operation before: several values may show it."""
        if cause is None or cause.b is None:
            return cause
        key = (cause.kind, cause.op, cause.because, cause.b.index)
        known = key in self.reported
        self.reported.add(key)
        return None if known else cause

    def _is_given(self, region: Region, value: Value) -> bool:
        """Is a region of a given what a value of b is, whatever both were paired with?"""
        pairs = self.judge.pairs
        sides = [(pairs.a.root(given), pairs.b.root(value)) for given in region.paired_inputs]
        known = [side for side in sides if side[0].shape == side[1].shape and side[0].dtype == side[1].dtype]
        return bool(region.computing) and any(not values_differ(self.judge, *side) for side in known)

    def _uses_known_table(self, region: Region) -> bool:
        """Does a region of b use a table that a cause names already?"""
        return any(value.number in self._wrong_tables for step in region.steps for value in step.outputs)

    def _other_table(self, divergence: Divergence) -> Cause | None:
        """Return the step that makes another table of constants, such as angles of positions, than a has."""
        table = differing_table(self.judge.pairs, self.tables, divergence.in_a, divergence.in_b)
        if table is None:
            return None
        apart = replace(divergence, a=table[0], b=table[1])
        return self._wrong_table(apart, difference_of(self.judge.pairs, *table))

    def _wrong_table(self, divergence: Divergence, found: TableDifference | None) -> Cause | None:
        """Return the step that makes a table with other numbers than that of a; ``None`` where it is told already."""
        if found is None or divergence.b.number in self._wrong_tables:
            return None
        self._wrong_tables |= {divergence.b.number, found.b.number}
        kind: Kind = "constant" if found.is_constant else "values"
        return replace(divergence, a=found.a, b=found.b).cause(kind, found.step, found.because, partner=found.partner)

    def explain_by_siblings(self, result: StepResult) -> Cause | None:
        """Return what differs on the way to a step from a healthy call of the same class."""
        pairs = self.judge.pairs
        in_b = region_of(pairs.b, result.b, pairs.is_firm, through=True)
        if self._inherits(in_b):
            return None
        return sibling_cause(
            Divergence(self.judge, result, result.a, result.b, Region((), ()), in_b), None, self._is_healthy
        )

    def _inherits(self, region: Region) -> bool:
        """Does a region of b begin with a value that differs from its partner already?"""
        sides = [(self.judge.pairs.value_in_a(value), value) for value in region.paired_inputs]
        return any(partner is not None and values_differ(self.judge, partner, value) for partner, value in sides)

    def _is_another_function(self, result: StepResult, in_a: Region, in_b: Region) -> bool:
        """Are both regions functions of single elements, with an error far beyond that of what they were given?"""
        names = {step.name for region in (in_a, in_b) for step in region.computing}
        functions = bool(names & ACTIVATIONS) and names <= ACTIVATIONS | _OF_ELEMENTS
        return functions and self.judge.is_far_beyond(
            result.error, in_b.computing[0] if in_b.computing else result.step
        )

    def _is_healthy(self, call: Call) -> bool:
        """Does a call of b return a float tensor that is equal to its partner in a?"""
        sides = [(self.judge.pairs.value_in_a(value), value) for value in call.outputs or ()]
        return any(a is not None and a.dtype in EPS and not values_differ(self.judge, a, b) for a, b in sides)

    def _other_steps(self, divergence: Divergence) -> Cause | None:
        """Return the cause by the steps that only one of the regions has."""
        in_b = divergence.in_b
        gone, new = _without_common(*unmatched_steps(divergence.in_a, in_b))
        gone, new = self._without_tables(divergence, gone, new)
        if any(step.weights and step.name.startswith(("conv", "linear")) for step in in_b.computing):
            gone = [(name, step) for name, step in gone if not self._is_folded_elsewhere(step)]
        idle, gone, new = without_effect(divergence, gone, new)
        if idle is not None:
            return idle
        unused = self._unused_weights(divergence, gone, new)
        if unused is not None:
            return unused
        steps_of_a = self.judge.pairs.steps_of_a
        counterparts = [*(step.index for _, step in new), *(steps_of_a.get(step.index) for _, step in gone)]
        if bool(gone) != bool(new) and all(map(self.judge.adds_error, counterparts)):
            return None  # each has its counterpart, and is a finding of its own
        if bool(gone) != bool(new):
            alone = [named for named in gone or new if facing_step(self.judge.pairs, named[1], of_b=bool(new)) is None]
            gone, new = (alone or gone, new) if gone else (gone, alone or new)
            name, step = next((named for named in gone or new if computes_floats(named[1])), (gone or new)[0])
            elsewhere = moved(divergence, name, step, of_b=bool(new))
            if elsewhere is not None:
                return elsewhere
        if gone and not new:
            return missing_cause(divergence, gone)
        if new and not gone:
            return extra_cause(divergence, new)
        if not new:
            return _equal_steps(divergence)
        whole = not all(is_single_operation(step) for _, step in gone)
        sibling = sibling_cause(divergence, gone[0][1], None if whole else self._is_healthy)
        if sibling is not None:
            return sibling
        exchanged = exchanged_order(divergence)
        if exchanged is not None:
            return exchanged
        step = most_informative([step for _, step in new], [step for _, step in gone])
        because = f"{_told(gone)} in a, {_told(new)} in b"
        if sorted(name for name, _ in gone) == sorted(name for name, _ in new):
            because = f"{listed(name for name, _ in new)} in another place than in a, before or after other operations"
        return divergence.cause("values", step, because, partner=gone[0][1])

    def _unused_weights(self, divergence: Divergence, gone: NamedSteps, new: NamedSteps) -> Cause | None:
        """Return the steps on the way in one run with weights that the other run has and never uses: a lost norm."""
        pairs = self.judge.pairs
        for side, run, other in ((gone, pairs.a, pairs.b), (new, pairs.b, pairs.a)):
            for _, step in side:
                if any(_is_never_used(given.value, other) for given in step.weights):
                    around = [named for named in side if named[1].call is step.call]
                    return missing_cause(divergence, around) if run is pairs.a else extra_cause(divergence, around)
        return None

    def _without_tables(
        self, divergence: Divergence, gone: NamedSteps, new: NamedSteps
    ) -> tuple[NamedSteps, NamedSteps]:
        """Leave out the steps that make tables, where these are the same and other steps are left.

        Every implementation makes them in its own way.
        """
        if not have_the_same_tables(self.tables, divergence.in_a, divergence.in_b):
            return gone, new
        left, right = (
            [named for named in side if not tables.makes(named[1])] for side, tables in zip((gone, new), self.tables)
        )
        return (left, right) if left or right else (gone, new)

    def _is_folded_elsewhere(self, step: Step) -> bool:
        """Is it a batch norm of a, in runs where b has folded some batch norm of a into a product?"""
        if step.name != "batch_norm":
            return False
        pairs = self.judge.pairs
        if self._folds_norms is None:
            makers = [(pairs.a.makers.get(pair.a), pairs.b.makers.get(number)) for number, pair in pairs.values.items()]
            both = [(one, other) for one, other in makers if one is not None and other is not None]
            self._folds_norms = any(
                one.name == step.name
                and other.weights
                and other.name.startswith(("conv", "linear"))
                and not values_differ(self.judge, one.outputs[0], other.outputs[0])
                for one, other in both
            )
        return self._folds_norms


def _begins_with(run: StepList, region: Region, partner: Callable[[Value], Value | None], value: Value) -> bool:
    """Does a region with steps that compute begin with the counterpart of a value of the other run?"""
    known = [other for given in region.paired_inputs if (other := partner(given)) is not None]
    return bool(region.computing) and any(run.root(other).number == run.root(value).number for other in known)


# A model without recorded operations ---------------------------------------------------------------


def _is_opaque_whole(region: Region) -> bool:
    """Is the region one piece of code, a whole model of which nothing was recorded: compiled or scripted code?"""
    steps = region.computing
    return len(steps) == 1 and steps[0].unrecorded and steps[0].call.parent is None and not steps[0].call.children


def _behind_opaque(divergence: Divergence) -> Cause:
    """Return what is known where nothing of a model was recorded: a weight that differs, else that the results do."""
    pairs, step = divergence.judge.pairs, divergence.in_b.last or divergence.result.step
    root = pairs.b.trace.root
    known = {_name_before_compilation(name): each for each in pairs.a.trace.parameters for name in each.names}
    for each in pairs.b.trace.parameters:
        other = known.get(_name_before_compilation(each.name))
        if other is None or other.shape != each.shape or other.dtype != each.dtype:
            continue
        if (error_between(other.before, each.before) or 0.0) > COPIED:
            module = each.name.rpartition(".")[0]
            call = next((call for call in pairs.b.trace.calls if call.path == module), root)
            because = f"{each.name} differs from {other.name} of a"
            return divergence.cause_in("weights", call, None, because, step=step, partner=None, absorbable=False)
    side = "b" if _is_opaque_whole(divergence.in_b) else "a"
    because = f"no operation of {side} was recorded: nothing says since when what is returned differs"
    return divergence.cause_in("values", root, None, because, step=step, partner=None)


def _name_before_compilation(name: str) -> str:
    """Return the name of a weight without the module that ``torch.compile`` puts around a model."""
    return name.replace("_orig_mod.", "")


# Values and weights in a region --------------------------------------------------------------------


def _nonfinite(divergence: Divergence) -> Cause | None:
    """Return the step that makes NaN or infinity from finite numbers, where a has none."""
    if not _has_nan_or_inf(divergence.b) or _has_nan_or_inf(divergence.a):
        return None
    for step in divergence.in_b.computing:
        made = any(map(_has_nan_or_inf, step.outputs)) and step.name not in UNINITIALISED
        if made and not any(_has_nan_or_inf(given.value) for given in step.inputs):
            because = "NaN or infinity comes of finite numbers"
            gone, new = unmatched_steps(divergence.in_a, divergence.in_b)
            others = [name for name, _ in gone if computes_floats(_)] if any(other is step for _, other in new) else []
            if len(others) == 1:
                because = f"{others[0]} in a, {step.name} in b: {because}"
            return divergence.cause("nonfinite", step, because)
    return None


def _other_mask(divergence: Divergence) -> Cause | None:
    """Return a mask that lets another share of positions through; how masks are written does not count."""
    in_a, in_b = divergence.in_a, divergence.in_b
    if any(step.unrecorded for step in (*in_a.steps, *in_b.steps)):
        return None  # operations that combine masks may be missing from the record
    shares_a, shares_b = visible_shares(in_a), visible_shares(in_b)
    if len(shares_a) != 1 or len(shares_b) != 1:
        return None
    (value_a, share_a, sure_a), (value, share_b, sure_b) = shares_a[0], shares_b[0]
    apart = abs(share_b - share_a)
    if not (sure_a and sure_b):  # of booleans it is not known which of the two hides
        apart = min(apart, abs(share_b - (1 - share_a)))
    if apart <= 1e-6 or value is None or (value_a is not None and not _cover_the_same(value_a, value)):
        return None
    maker = maker_of_mask(divergence.judge.pairs.b, value)
    if maker is None:
        return None
    because = f"the mask lets {share_a:.0%} through in a, {share_b:.0%} in b"
    return replace(divergence, a=value_a or divergence.a, b=value).cause("values", maker, because)


def _cover_the_same(a: Value, b: Value) -> bool:
    """May two masks be over the same positions: are all sizes of one, but for 1, among those of the other?

    The pairs of all atoms of a batch are more than those in each molecule, and as many are hidden.
    """
    few, many = sorted([Counter([size for size in value.shape if size != 1]) for value in (a, b)], key=Counter.total)
    return few <= many


def _other_weights(divergence: Divergence) -> Cause | None:
    """Return weights in another layout (fused, split) that as a whole hold other numbers than those of a."""
    judge, in_a, in_b = divergence.judge, divergence.in_a, divergence.in_b
    pairs = judge.pairs
    steps_a, steps_b = list(in_a.steps), list(in_b.steps)
    # results of the parts of a weight that is fused on the other side may be paired already
    steps_a += [maker for step in in_b.steps for maker in counterpart_makers(pairs.b, step, pairs.value_in_a, pairs.a)]
    steps_b += [maker for step in in_a.steps for maker in counterpart_makers(pairs.a, step, pairs.value_in_b, pairs.b)]
    weights_a = _unpaired_weights(steps_a, pairs.values_of_a)
    weights_b = _unpaired_weights(steps_b, pairs.values)
    if not weights_a or not weights_b or norms_or_scales(in_a) != norms_or_scales(in_b):
        return None
    if not hold_different_numbers(weights_a.values(), weights_b.values(), judge.meter):
        return None
    step = next(step for step in in_b.steps if any(given.value.number in weights_b for given in step.weights))
    names = [listed(value.name for value in weights.values()) for weights in (weights_a, weights_b)]
    each = [[value.name or "" for value in weights.values()] for weights in (weights_a, weights_b)]
    change = changed_among(each[0], each[1], Weights(pairs.a.trace), Weights(pairs.b.trace))
    because = change or f"{names[1]} holds other numbers than {names[0]}"
    cause = divergence.cause("weights", step, because, absorbable=False)
    return replace(cause, is_weight_told=change is not None)


def _unpaired_weights(steps: Iterable[Step], paired: Container[int]) -> dict[int, Value]:
    weights = [given.value for step in steps for given in step.weights]
    return {value.number: value for value in weights if is_unpaired(value, paired)}


def _told(steps: NamedSteps) -> str:
    """Name some operations; many of several calls by how many they are, and by the calls."""
    calls = dict.fromkeys(step.call.path for _, step in steps if step.call.path)
    if len(steps) < MANY_STEPS or len(calls) < 2:
        return listed(name for name, _ in steps)
    return f"{len(steps)} operations of {listed(calls)}"


def _is_never_used(weight: Value, run: StepList) -> bool:
    """Has a run a weight with these numbers that none of its steps uses?"""
    if not is_distinctive(weight) or any(step.unrecorded for step in run.steps):
        return False
    used = {value.name for value in run.values.values() if value.name is not None}
    return any(
        used.isdisjoint(each.names)
        and math.prod(each.shape) == weight.numel
        and (error_between(weight.stats, each.before or each.stats) or 0.0) <= COPIED
        for each in run.trace.parameters
        if each.before is not None or each.stats is not None
    )


def _without_common(gone: NamedSteps, new: NamedSteps) -> tuple[NamedSteps, NamedSteps]:
    """Leave out the operations that both sides have, in another order, where one side has more besides."""
    left = _without(gone, [role(name) for name, _ in new])
    right = _without(new, [role(name) for name, _ in gone])
    return (left, right) if bool(left) != bool(right) else (gone, new)


def _without(steps: NamedSteps, roles: list[str]) -> NamedSteps:
    """Leave out one step for each of some roles, the last ones first."""
    rest = []
    for name, step in reversed(steps):
        if role(name) in roles:
            roles.remove(role(name))
        else:
            rest.append((name, step))
    return rest[::-1]


def _other_rows(divergence: Divergence) -> Cause | None:
    """Return the slice of a table of weights, such as one of positions, that has other rows than a looks up in it."""
    pairs = divergence.judge.pairs
    looked_up = [(given.value, step) for step in divergence.in_a.steps if is_lookup(step) for given in step.weights]
    for step in divergence.in_b.steps:
        if step.name not in SLICES or step.data or len(step.outputs) != 1 or _is_in_a_loop(pairs.b, step):
            continue
        for given in step.weights:
            facing = [other for table, other in looked_up if pairs.are_paired(table, given.value) and other.outputs]
            sides = [(other, other.outputs[0], step.outputs[0]) for other in facing]
            if len(sides) == 1 and values_differ(divergence.judge, *sides[0][1:]):
                other, a, b = sides[0]
                taken = ", ".join(as_written(*step.constants))
                because = f"it takes other rows of {given.value.name} than a looks up: {taken}"
                return replace(divergence, a=a, b=b).cause("values", step, because, partner=other)
    return None


def _is_in_a_loop(run: StepList, step: Step) -> bool:
    """Did the line of a step run several times in its call? Then each turn takes a part of what is taken."""
    line = [s for s in run.by_call.get(step.call.index, ()) if (s.node.source, s.op) == (step.node.source, step.op)]
    return len(line) > 1


# Steps in a region ---------------------------------------------------------------------------------


def _equal_steps(divergence: Divergence) -> Cause:
    """Return the cause where both regions have the same steps: another constant, another source, another order."""
    judge, result = divergence.judge, divergence.result
    cast = narrowing_cast(judge.pairs, divergence.a, divergence.b)
    if cast is not None:
        step, because = cast
        return divergence.cause("dtype", step, because)
    swapped = inputs_swapped(judge, result)
    if swapped is not None:
        return order_cause(judge, result, swapped)
    idle = _idle_weight(divergence)
    if idle is not None:
        return idle
    for left, right in zip(divergence.in_a.computing, divergence.in_b.computing):
        only_a, only_b = differing_settings(left, right)
        # in another layout the same part is in another place
        same_layout = left.name not in SLICES or _shapes_given(left) == _shapes_given(right)
        if left.name == right.name and (only_a or only_b) and same_layout:
            because = on_both_sides(listed(only_a), listed(only_b))
            return divergence.cause("constant", right, because, partner=left)
    other = _other_factory(divergence)
    if other is not None:
        return other
    known = _other_source(divergence) or _other_written_number(divergence)
    if known is not None:
        return known
    exchanged = exchanged_order(divergence)
    if exchanged is not None:
        return exchanged
    last = divergence.in_b.last or result.step
    in_a, in_b = ([_written(step) for step in side.computing] for side in (divergence.in_a, divergence.in_b))
    because = f"{listed(in_a)} in a, {listed(in_b)} in b" if in_a and in_b and in_a != in_b else SAME_OPERATIONS
    return divergence.cause("values", last, because, partner=divergence.in_a.last)


def _idle_weight(divergence: Divergence) -> Cause | None:
    """Return the operation that one run gives a weight, and the other run, which has that weight, something else."""
    pairs = divergence.judge.pairs
    for left, right in zip(divergence.in_a.computing, divergence.in_b.computing):
        if left.name != right.name:
            continue
        for one, other, run in ((left, right, pairs.b), (right, left, pairs.a)):
            idle = [x.value.name for x in one.weights if x.value.name and _is_never_used(x.value, run)]
            makers = [maker.op for x in other.data if (maker := run.maker(x.value)) is not None]
            if len(idle) == 1 and len(one.weights) > len(other.weights):
                texts = idle[0], f"the result of {makers[-1]}" if makers else "something else"
                because = on_both_sides(*(texts if one is left else texts[::-1]))
                return divergence.cause("wiring", right, f"it is given {because}", partner=left)
    return None


def _written(step: Step) -> str:
    """Return an operation with its settings, such as ``chunk(2, -1)``."""
    if not step.constants or not step.name.isidentifier():
        return step.name
    texts = as_written(*step.constants)
    return f"{step.name}{texts[0]}" if texts[0].startswith("(") else f"{step.name}({', '.join(texts)})"


def _other_factory(divergence: Divergence) -> Cause | None:
    """Return the step of b that makes other constants than the step of a in the same place: ones for zeros."""
    factories = [
        [step for step in side.computing if step.name in FACTORIES] for side in (divergence.in_a, divergence.in_b)
    ]
    maker = divergence.judge.pairs.a.maker(divergence.a)
    if not divergence.in_a.computing and maker is not None and maker.name in FACTORIES:
        factories[0] = [maker]  # another value with the same zeros is its pair
    pairs = zip(*factories) if len(factories[0]) == len(factories[1]) else ()
    return next((cause for pair in pairs if (cause := other_factory(divergence, *pair)) is not None), None)


def _shapes_given(step: Step) -> list[Sequence[int]]:
    return [given.value.shape for given in step.inputs]


def _other_source(divergence: Divergence) -> Cause | None:
    """Return the cause where the region of b begins with another value than that of a, beside values of both."""
    pairs, regions = divergence.judge.pairs, (divergence.in_a, divergence.in_b)
    wanted, given = ([value for value in region.paired_inputs if value.dtype in EPS] for region in regions)
    both = [(x, y) for x in wanted for y in given if pairs.are_paired(x, y)]
    wanted = [x for x in wanted if all(x is not one for one, _ in both)]
    given = [y for y in given if all(y is not other for _, other in both)]
    if len(wanted) != 1 or len(given) != 1:
        return None
    number, result = given[0].number, divergence.result
    user = next((s for s in divergence.in_b.steps if any(x.value.number == number for x in s.inputs)), result.step)
    return _rewired(replace(divergence, result=replace(result, step=user), a=wanted[0], b=given[0]))


def _other_written_number(divergence: Divergence) -> Cause | None:
    """Return the step of b with a fraction that a does not have, where a has another one: a different epsilon."""
    fractions_a, fractions_b = (
        [(number, step) for step in region.computing for number in written_fractions(step)]
        for region in (divergence.in_a, divergence.in_b)
    )
    known = [number for number, _ in fractions_a]
    new = [(number, step) for number, step in fractions_b if not _among(number, known)]
    gone = [number for number in known if not _among(number, [other for other, _ in fractions_b])]
    if len(new) != 1 or not gone:
        return None
    number, step = new[0]
    return divergence.cause("constant", step, f"{listed(gone)} in a, {number} in b")


def _rewired(divergence: Divergence) -> Cause | None:
    """Return the cause where no step lies between: another value is passed on, or the right one was overwritten."""
    judge, result, a, b = divergence.judge, divergence.result, divergence.a, divergence.b
    pairs = judge.pairs
    maker = pairs.b.makers.get(b.number)
    wanted = pairs.values_of_a.get(pairs.a.root(a).number)
    right = None if wanted is None else pairs.b.values[wanted]
    wrote = maker is not None and maker.node.id in network.network_of(pairs.b.trace).writers
    if maker is not None and wrote and right is not None and _share_storage(right, b) and b.number > right.number:
        return divergence.cause("overwritten", maker, f"{maker.op} wrote into what {result.step.op} still needed")
    given = pairs.value_in_a(b)
    if given is not None and values_differ(judge, given, b):
        return None
    call, inner = handing_call(pairs, result.step, a, b)
    makers = pairs.a.maker(a), maker
    if _make_the_same(pairs, *makers) and _arguments(pairs.a, a) == _arguments(pairs.b, b):
        return None  # of values that differ before
    where_a, where_b = _made_in(makers[0], a), _made_in(pairs.b.maker(b), b)
    several = any(step is not None and len(step.outputs) > 1 for step in (makers[0], pairs.b.maker(b)))
    if several or where_a == where_b or _in_the_same_call(pairs, makers[0], pairs.b.maker(b)):
        where_a, where_b = f"{where_a}{_arguments(pairs.a, a)}", f"{where_b}{_arguments(pairs.b, b)}"
    what = "it" if inner is None else inner.path.rpartition(".")[2] or inner.type
    because = f"{what} is given the result of {where_a} in a, of {where_b} in b"
    if where_a == where_b:
        because = f"{what} is given another result of {where_b} than in a" + _beside(pairs.a, a, given)
    op = result.step.op if inner is None else inner.type
    cause = make_cause(judge, "wiring", call, op, because, result, a=a, b=b)
    return replace(cause, regrouped=given is not None and _is_summed_in_another_order(divergence, given))


def _in_the_same_call(pairs: Pairs, a: Step | None, b: Step | None) -> bool:
    """Are two steps of one name in calls that are each other's counterparts, which may have other names?"""
    return a is not None and b is not None and a.op == b.op and pairs.call_in_a(b.call) is a.call


def _make_the_same(pairs: Pairs, a: Step | None, b: Step | None) -> bool:
    """Are two steps one operation with equal settings, on values that are pairs, in calls that are counterparts?"""
    if a is None or b is None or not _in_the_same_call(pairs, a, b) or a.constants != b.constants:
        return False
    sides = list(zip(a.inputs, b.inputs))
    return bool(sides) and len(a.inputs) == len(b.inputs) and all(pairs.are_paired(x.value, y.value) for x, y in sides)


def _beside(run: StepList, wanted: Value, given: Value | None) -> str:
    """Say that a value is made by the same operation as another, right before or after it; empty where it is not."""
    makers = [None if value is None else run.maker(value) for value in (wanted, given)]
    one, other = makers
    if one is None or other is None or one.call is not other.call or one.name != other.name:
        return ""
    alike = [step.index for step in run.by_call.get(one.call.index, ()) if step.name == one.name]
    distance = alike.index(other.index) - alike.index(one.index) if {one.index, other.index} <= set(alike) else 0
    return {-1: ": the one before it", 1: ": the next one"}.get(distance, "")


def _is_summed_in_another_order(divergence: Divergence, given: Value) -> bool:
    """Does the same sum have what b adds here in a, too, earlier or later, and what a adds, as far as known, in b?"""
    pairs, result = divergence.judge.pairs, divergence.result
    if result.step.name != "add" or result.partner.name != "add":
        return False
    terms_a, terms_b = terms_of(pairs.a, result.partner), terms_of(pairs.b, result.step)
    wanted = pairs.values_of_a.get(pairs.a.root(divergence.a).number)
    return pairs.a.root(given).number in terms_a and (wanted is None or wanted in terms_b)


def _among(number: float, others: Iterable[float]) -> bool:
    """Is a number equal to another one or to its inverse?"""
    return any(abs(number - x) <= 1e-4 * abs(x) or abs(number * x - 1.0) <= 1e-4 for x in others)


def _has_nan_or_inf(value: Value) -> bool:
    """Has it NaN or +Inf? −Inf is how masks are written."""
    return value.stats is not None and bool(value.stats.nan or value.stats.posinf)


def _share_storage(a: Value, b: Value) -> bool:
    return a.storage is not None and a.storage == b.storage


def _arguments(run: StepList, value: Value) -> str:
    """Return the constants of the step that made a value, and which of several results it is, as text."""
    maker = run.maker(value)
    if maker is None:
        return ""
    numbers = [each.number for each in maker.outputs]
    place = f"[{numbers.index(run.root(value).number)}]" if len(numbers) > 1 else ""
    return f"({', '.join(as_written(*maker.constants))}){place}" if maker.constants or place else ""


def _made_in(step: Step | None, value: Value) -> str:
    if step is None:
        return value.name or "an input"
    return f"{step.call.path or step.call.type}/{step.op}"
