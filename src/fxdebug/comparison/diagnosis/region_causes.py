"""Two values that are not each other's partners: what lies between them and what agrees tells who is to blame."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace

from fxdebug.comparison.diagnosis.cause import Cause, differing_settings, listed, make_cause, values_differ
from fxdebug.comparison.diagnosis.element_order import inputs_swapped, order_cause
from fxdebug.comparison.diagnosis.judge import Judge, StepResult
from fxdebug.comparison.diagnosis.region import (
    Region,
    common_call,
    computes_floats,
    handing_call,
    is_single_operation,
    most_informative,
    multiplied_pairs,
    region_of,
    unmatched_steps,
    unrepeated,
    written_fractions,
)
from fxdebug.comparison.diagnosis.sibling_calls import differs_from_siblings
from fxdebug.comparison.diagnosis.weight_layouts import (
    counterpart_makers,
    hold_different_numbers,
    is_unpaired,
    norms_or_scales,
)
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.tolerance import visible_share
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import REPEATING, STEPS_OF
from fxdebug.query import network


@dataclass
class RegionDiagnosis:
    """Asks what is between. ``reported`` keeps one finding from being reported twice."""

    judge: Judge
    reported: set[object] = field(default_factory=set)
    _folds_norms: bool | None = None  # once it is known: are norms over the batch part of products in b?

    def explain(self, result: StepResult, a: Value, b: Value, *, through: bool = False) -> Cause | None:
        """Who makes ``b`` be there instead of ``a``; ``None`` where the error comes from further up.

        ``through``: look behind the two values although they are a pair, because different operations made them.
        """
        pairs = self.judge.pairs
        one = region_of(pairs.a, a, pairs.is_firm_in_a, through=through)
        other = region_of(pairs.b, b, pairs.is_firm, through=through)
        for value in other.paired_inputs:
            partner = pairs.value_in_a(value)
            if partner is not None and values_differ(self.judge, partner, value):
                return None
        key = (tuple(step.index for step in one.steps), tuple(step.index for step in other.steps), b.number)
        if key in self.reported:
            return None
        self.reported.add(key)
        if not one.computing and not other.computing:
            return self._rewired(result, a, b)
        return (
            self._nonfinite(result, a, b, other)
            or self._other_mask(result, one, other)
            or self._other_weights(result, a, b, one, other)
            or self._unmatched_steps(result, a, b, one, other)
        )

    def explain_by_siblings(self, result: StepResult) -> Cause | None:
        """What is done on the way to a step otherwise than in a call of the same class that is in order."""
        pairs = self.judge.pairs
        other = region_of(pairs.b, result.b, pairs.is_firm, through=True)
        both = [(pairs.value_in_a(value), value) for value in other.paired_inputs]
        if any(partner is not None and values_differ(self.judge, partner, value) for partner, value in both):
            return None
        return self._unlike_siblings(result, result.a, result.b, other, None, self._is_healthy)

    # What a region uses --------------------------------------------------------------------------

    def _nonfinite(self, result: StepResult, a: Value, b: Value, other: Region) -> Cause | None:
        """The step that makes NaN or infinity of finite numbers, where a has none."""
        if not _has_nan_or_inf(b) or _has_nan_or_inf(a):
            return None
        for step in other.computing:
            if any(_has_nan_or_inf(value) for value in step.outputs) and not any(_has_nan_or_inf(given.value) for given in step.inputs):
                because = "NaN or infinity comes of finite numbers"
                return make_cause(self.judge, "nonfinite", step.call, step.op, because, result, a=a, b=b, step=step)
        return None

    def _other_mask(self, result: StepResult, one: Region, other: Region) -> Cause | None:
        """Masks are written in many ways; what counts is how much they let through."""
        if any(step.unrecorded for step in (*one.steps, *other.steps)):
            return None  # what the code makes of them on the way was not recorded
        left = [share for value in one.masks if (share := visible_share(value)) is not None]
        right = [(share, value) for value in other.masks if (share := visible_share(value)) is not None]
        if len(left) != 1 or len(right) != 1:
            return None
        share, value = right[0]
        if min(abs(share - left[0]), abs(share - (1 - left[0]))) <= 1e-6:
            return None
        maker = self.judge.pairs.b.makers.get(self.judge.pairs.b.root(value).number)
        if maker is None:
            return None
        because = f"the mask lets {left[0]:.0%} through in a, {share:.0%} in b"
        return make_cause(
            self.judge, "values", maker.call, maker.op, because, result, step=maker, a=one.masks[0], b=value
        )

    def _other_weights(self, result: StepResult, a: Value, b: Value, one: Region, other: Region) -> Cause | None:
        """Weights of another layout (fused, apart) hold the same numbers altogether, or they are to blame."""
        pairs = self.judge.pairs
        left = {
            g.value.number: g.value for s in one.steps for g in s.weights if is_unpaired(g.value, pairs.values_of_a)
        }
        right = {g.value.number: g.value for s in other.steps for g in s.weights if is_unpaired(g.value, pairs.values)}
        # parts of one that is whole on the other side may be paired already
        for step in other.steps:
            for maker in counterpart_makers(pairs.b, step, pairs.value_in_a, pairs.a):
                left |= {g.value.number: g.value for g in maker.weights if is_unpaired(g.value, pairs.values_of_a)}
        for step in one.steps:
            for maker in counterpart_makers(pairs.a, step, pairs.value_in_b, pairs.b):
                right |= {g.value.number: g.value for g in maker.weights if is_unpaired(g.value, pairs.values)}
        if not left or not right or norms_or_scales(one) != norms_or_scales(other):
            return None
        if not hold_different_numbers(left.values(), right.values(), self.judge.meter):
            return None
        step = next(step for step in other.steps if any(g.value.number in right for g in step.weights))
        names = listed(value.name for value in right.values())
        because = f"{names} holds other numbers than {listed(value.name for value in left.values())}"
        return make_cause(
            self.judge, "weights", step.call, step.op, because, result, step=step, a=a, b=b, absorbable=False
        )

    # What a region does --------------------------------------------------------------------------

    def _unmatched_steps(self, result: StepResult, a: Value, b: Value, one: Region, other: Region) -> Cause | None:
        gone, new = unmatched_steps(one, other)
        if any(step.weights and step.name.startswith(("conv", "linear")) for step in other.computing):
            gone = [(name, step) for name, step in gone if not self._is_folded_elsewhere(step)]
        crossed = self._wrong_product(result, a, b, one, other)
        if crossed is not None:
            return crossed
        beside = [*(s.index for _, s in new), *(self.judge.pairs.steps_of_a.get(s.index) for _, s in gone)]
        if bool(gone) != bool(new) and all(map(self.judge.adds_error, beside)):
            return None  # each has its counterpart, and is a finding of its own
        if gone and not new:
            return self._missing(result, a, b, gone, other)
        if new and not gone:
            return self._extra(result, a, b, new, one, other)
        if not new:
            return self._equal_steps(result, a, b, one, other)
        whole = not all(is_single_operation(step) for _, step in gone)
        odd = self._unlike_siblings(result, a, b, other, gone[0][1], None if whole else self._is_healthy)
        if odd is not None:
            return odd
        step = most_informative([step for _, step in new], [step for _, step in gone])
        because = f"{listed(name for name, _ in gone)} in a, {listed(name for name, _ in new)} in b"
        return make_cause(
            self.judge, "values", step.call, step.op, because, result, a=a, b=b, partner=gone[0][1], step=step
        )

    def _is_folded_elsewhere(self, step: Step) -> bool:
        """Is a norm of a part of a product in b, as is right where another one of its kind is?"""
        if step.name != "batch_norm":
            return False
        pairs = self.judge.pairs
        if self._folds_norms is None:
            found = [(pairs.a.makers.get(pair.a), pairs.b.makers.get(number)) for number, pair in pairs.values.items()]
            both = [(one, other) for one, other in found if one is not None and other is not None]
            self._folds_norms = any(
                one.name == step.name
                and other.weights
                and other.name.startswith(("conv", "linear"))
                and not values_differ(self.judge, one.outputs[0], other.outputs[0])
                for one, other in both
            )
        return self._folds_norms

    def _wrong_product(self, result: StepResult, a: Value, b: Value, one: Region, other: Region) -> Cause | None:
        """A product of the right two values in the wrong order, or of one right value and another one's."""
        pairs = self.judge.pairs
        wanted = [
            [unrepeated(pairs.a, value).number for value in factors]
            for step in one.computing
            for factors in multiplied_pairs(step)
        ]
        for step in other.computing:
            for factors in multiplied_pairs(step):
                partners = [pairs.value_in_a(unrepeated(pairs.b, value)) for value in factors]
                numbers = [value.number for value in partners if value is not None]
                if len(numbers) != 2 or not wanted or any(numbers == order for order in wanted):
                    continue
                known = {unrepeated(pairs.a, given.value).number for maker in one.computing for given in maker.data}
                if set(numbers) <= known:
                    because = f"{step.op} is given {_names(pairs, factors)} in an order or a pair that a does not have"
                    return make_cause(self.judge, "wiring", step.call, step.op, because, result, a=a, b=b, step=step)
        return None

    def _missing(self, result: StepResult, a: Value, b: Value, gone: list[tuple[str, Step]], other: Region) -> Cause:
        name, step = next((pair for pair in gone if computes_floats(pair[1])), gone[0])
        place = handing_call(self.judge.pairs, result.step, a, b)[0]
        inside = common_call([s.call for s in other.computing if computes_floats(s)]) or place
        home, lost = self._home(step, inside)
        known = self.judge.pairs.calls.get(home.index)
        if lost is None and (known is None or known.matched_by not in ("path", "mapping") or known.a != step.call.index):
            deeper = any(above is home for above in _above(inside))
            home = self._around(step, home) or (inside if deeper else home)
        elif lost is not None and any(above is home for above in _above(inside)) and not self._does(home):
            home = inside  # a container does nothing itself
        what = lost.path if lost is not None else listed(name for name, _ in gone)
        because = f"{what} of a ({_line(step)}) has no counterpart in b"
        op = lost.type if lost is not None else step.op if step.name in STEPS_OF else name
        return make_cause(self.judge, "missing", home, op, because, result, a=a, b=b, partner=step, step=_last(other))

    def _is_healthy(self, call: Call) -> bool:
        """Does a call of b return what it returns in a?"""
        known = [(self.judge.pairs.value_in_a(value), value) for value in call.outputs or ()]
        return any(a is not None and a.dtype in EPS and not values_differ(self.judge, a, b) for a, b in known)

    def _unlike_siblings(
        self,
        result: StepResult,
        a: Value,
        b: Value,
        other: Region,
        partner: Step | None,
        peers: Callable[[Call], bool] | None = None,
    ) -> Cause | None:
        """What a call does otherwise than another one of its class in b does."""
        odd = differs_from_siblings(self.judge.pairs.b, other.computing, peers)
        if odd is None:
            return None
        call, step = odd.step.call, odd.step
        return make_cause(self.judge, odd.kind, call, odd.op, odd.because, result, a=a, b=b, partner=partner, step=step)

    def _extra(
        self, result: StepResult, a: Value, b: Value, new: list[tuple[str, Step]], one: Region, other: Region
    ) -> Cause:
        writers = network.network_of(self.judge.pairs.b.trace).writers
        step = next((step for _, step in new if step.node.id in writers), None)
        odd = self._unlike_siblings(result, a, b, other, _last(one)) if step is None and len(new) > 1 else None
        if odd is not None:
            return odd
        step = step or most_informative([step for _, step in new])
        home, own = self._lifted(step)
        because = f"{own.path if own else listed(name for name, _ in new)} has no counterpart in a"
        op = own.type if own else step.op
        return make_cause(self.judge, "extra", home, op, because, result, a=a, b=b, partner=_last(one), step=step)

    def _equal_steps(self, result: StepResult, a: Value, b: Value, one: Region, other: Region) -> Cause:
        turned = inputs_swapped(self.judge, result)
        if turned is not None:
            return order_cause(self.judge, result, turned)
        for left, right in zip(one.computing, other.computing):
            ours, theirs = differing_settings(left, right)
            if left.name == right.name and (ours or theirs):
                because = f"{listed(ours) or 'nothing'} in a, {listed(theirs) or 'nothing'} in b"
                return make_cause(
                    self.judge, "constant", right.call, right.op, because, result, a=a, b=b, partner=left, step=right
                )
        found = self._other_source(result, a, b, one, other) or self._other_written_number(result, a, b, one, other)
        found = found or self._repeated_in_turn(result, a, b, one, other)
        if found is not None:
            return found
        last = _last(other) or result.step
        because = "the same operations give other values"
        return make_cause(
            self.judge, "values", last.call, last.op, because, result, a=a, b=b, partner=_last(one), step=last
        )

    def _other_source(self, result: StepResult, a: Value, b: Value, one: Region, other: Region) -> Cause | None:
        """The same is done, with a value that belongs to something else in a."""
        pairs = self.judge.pairs
        wanted, given = [[v for v in side.paired_inputs if v.dtype in EPS] for side in (one, other)]
        if len(wanted) != 1 or len(given) != 1 or pairs.are_paired(wanted[0], given[0]):
            return None
        user = next((s for s in other.steps if any(x.value.number == given[0].number for x in s.inputs)), result.step)
        facing = replace(result, step=user)
        return self._rewired(facing, wanted[0], given[0])

    def _other_written_number(self, result: StepResult, a: Value, b: Value, one: Region, other: Region) -> Cause | None:
        """A number that is written in b alone, where a has another one: an epsilon that is written out here."""
        ours, theirs = ([(x, s) for s in side.computing for x in written_fractions(s)] for side in (one, other))
        known = [x for x, _ in ours]
        new = [(x, step) for x, step in theirs if not _among(x, known)]
        gone = [x for x in known if not _among(x, [y for y, _ in theirs])]
        if len(new) != 1 or not gone:
            return None
        number, step = new[0]
        because = f"{listed(gone)} in a, {number} in b"
        return make_cause(self.judge, "constant", step.call, step.op, because, result, a=a, b=b, step=step)

    def _repeated_in_turn(self, result: StepResult, a: Value, b: Value, one: Region, other: Region) -> Cause | None:
        """Heads that are repeated in turn, where a has the copies of each beside one another."""
        turns = [[step for step in side.steps if step.name in ("repeat", "tile")] for side in (one, other)]
        if bool(turns[0]) == bool(turns[1]):
            return None
        step = (turns[1] or [s for s in other.steps if s.name in REPEATING] or [_last(other) or result.step])[0]
        because = f"copies stand {'in turn' if turns[1] else 'beside one another'}, in a they do not"
        return make_cause(self.judge, "values", step.call, step.op, because, result, a=a, b=b, step=step)

    def _rewired(self, result: StepResult, a: Value, b: Value) -> Cause | None:
        """Nothing is between, so another value is handed on, or the right one was written to."""
        pairs = self.judge.pairs
        maker = pairs.b.makers.get(b.number)
        wanted = pairs.values_of_a.get(pairs.a.root(a).number)
        right = None if wanted is None else pairs.b.values[wanted]
        wrote = maker is not None and maker.node.id in network.network_of(pairs.b.trace).writers
        if maker is not None and wrote and right is not None and _shares(right, b) and b.number > right.number:
            because = f"{maker.op} wrote into what {result.step.op} still needed"
            return make_cause(self.judge, "overwritten", maker.call, maker.op, because, result, a=a, b=b, step=maker)
        given = pairs.value_in_a(b)
        if given is not None and values_differ(self.judge, given, b):
            return None
        call, inner = handing_call(pairs, result.step, a, b)
        where_a = _made_in(pairs.a.makers.get(pairs.a.root(a).number), a)
        where_b = _made_in(pairs.b.makers.get(pairs.b.root(b).number), b)
        because = f"it is given the result of {where_a} in a, of {where_b} in b"
        op = result.step.op if inner is None else inner.type
        return make_cause(self.judge, "wiring", call, op, because, result, a=a, b=b)

    def _around(self, step: Step, home: Call) -> Call | None:
        """The deepest call within ``home`` in which everything is at hand that a step of a is given."""
        pairs, found = self.judge.pairs, None
        wanted = {pairs.values_of_a.get(pairs.a.root(given.value).number) for given in step.data}
        if not wanted or None in wanted:
            return None
        most = (0, -1)
        inside = {call.index for call in _above(step.call)}
        for call in home.walk():
            other = pairs.call_in_a(call)
            if other is not None and other.index not in inside and not call.children:
                continue  # a layer of its own, in a too
            given, made = _at_hand(pairs.b, call)
            rank = (len(wanted & made), call.depth)
            if wanted <= given | made and rank[0] and rank > most:
                found, most = call, rank
        return found

    def _does(self, call: Call) -> bool:
        """Does the code of a call of b itself compute anything?"""
        return any(not step.transparent for step in self.judge.pairs.b.by_call.get(call.index, ()))

    def _home(self, step: Step, otherwise: Call) -> tuple[Call, Call | None]:
        """The call of b in which a step of a should have been, and the call in there that is missing as a whole."""
        pairs = self.judge.pairs
        call, lost = step.call, None
        while call.parent is not None and call.index not in pairs.calls_of_a:
            lost = (
                call if not any(_known(pairs.a, c, pairs.steps_of_a, pairs.values_of_a) for c in call.walk()) else lost
            )
            call = call.parent
        found = pairs.calls_of_a.get(call.index)
        return (otherwise if found is None else pairs.b.trace.calls[found]), lost

    def _lifted(self, step: Step) -> tuple[Call, Call | None]:
        """The call that a step of b is in and that a has, too; and the call in there that a does not have."""
        pairs = self.judge.pairs
        call, own = step.call, None
        while call.parent is not None and pairs.call_in_a(call) is None:
            if any(_known(pairs.b, inner, pairs.steps, pairs.values) for inner in call.walk()):
                return (step.call, None) if own is None else (call, own)
            call, own = call.parent, call
        return call, own


def _among(number: float, others: Iterable[float]) -> bool:
    """Is a number one of these, or one over one of these?"""
    return any(abs(number - x) <= 1e-4 * abs(x) or abs(number * x - 1.0) <= 1e-4 for x in others)


def _at_hand(run: StepList, call: Call) -> tuple[set[int], set[int]]:
    """The values that the code of a call can name: what it was given, and what was computed in it or returned to it."""
    made = [v for step in run.by_call.get(call.index, ()) for v in step.results]
    made += [v for child in call.children for v in child.outputs or ()]
    return {run.root(value).number for value in call.inputs}, {run.root(value).number for value in made}


def _above(call: Call) -> Iterable[Call]:
    at: Call | None = call
    while at is not None:
        yield at
        at = at.parent


def _known(run: StepList, call: Call, steps: Container[int], values: Container[int]) -> bool:
    """Has anything that a call itself computes a partner?"""
    return any(
        step.index in steps or any(run.root(value).number in values for value in step.outputs)
        for step in run.by_call.get(call.index, ())
        if not step.transparent and step.outputs
    )


def _names(pairs: Pairs, values: Iterable[Value]) -> str:
    """What values are called in a: the calls that made them."""
    makers = [pairs.a.makers.get(partner.number) for partner in map(pairs.value_in_a, values) if partner is not None]
    return " and ".join((maker.call.path.rpartition(".")[2] or maker.op) if maker else "an input" for maker in makers)


def _has_nan_or_inf(value: Value) -> bool:
    """Has it NaN or +Inf? −Inf is how masks are written."""
    return value.stats is not None and bool(value.stats.nan or value.stats.posinf)


def _last(found: Region) -> Step | None:
    return found.computing[-1] if found.computing else None


def _shares(a: Value, b: Value) -> bool:
    return a.storage is not None and a.storage == b.storage


def _line(step: Step) -> str:
    """The user's line, or the module, in short."""
    return (step.node.source or "").rpartition("/")[2] or step.call.path or step.call.type


def _made_in(step: Step | None, value: Value) -> str:
    if step is None:
        return value.name or "an input"
    return f"{step.call.path or step.call.type}/{step.op}"
