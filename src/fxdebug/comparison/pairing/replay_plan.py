"""Plan an isolated run of b: for each paired call, the tensors of a that replace its inputs and its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.measures import TENSORS
from fxdebug.comparison.pairing.by_dataflow import following_batch_norm
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import CLOSER, HALF
from fxdebug.data.calls import Call
from fxdebug.data.values import Inputs, Outputs, Value
from fxdebug.operators.dtypes import EPS, number_kind
from fxdebug.operators.names import PICKING, PUTTING_BACK

CallKey: TypeAlias = tuple[str, int]  # a call of b: its module's path and its number
Slots: TypeAlias = dict[str, Value]  # slot → the value of a that goes there


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The values of a for an isolated run of b, by call of b; a call without any has an empty table."""

    inputs: Mapping[CallKey, Slots]
    outputs: Mapping[CallKey, Slots]


def replay_plan(pairs: Pairs) -> ReplayPlan:
    """Plan which values of a replace those of b, in every call that has a partner.

    The tensors of a must have been kept. The root is left alone, and so is a call that raised. An input whose memory a
    call writes to is not replaced, as the caller must see the write. Neither is a call that is given rows picked by
    computed indices, as an expert is: near a tie these may be other rows than in a. What a product returns is left
    alone, too, where a batch norm is folded into the weights of one side.
    """
    written, meter = _written_storages(pairs), Meter(pairs.a.trace, pairs.b.trace)
    picked, before_norms = _picked_values(pairs.b), _products_before_norms(pairs)
    inputs: dict[CallKey, Slots] = {}
    outputs: dict[CallKey, Slots] = {}
    for call in pairs.b.trace.calls:
        partner = pairs.call_in_a(call)
        if partner is None or call.parent_index is None or call.error is not None:
            continue
        key = (call.path, call.number)
        if any(value.number in picked for value in call.inputs):
            inputs[key] = {}
            continue
        own = written.get(call.index, set())
        given = dict(partner.inputs.named())
        replaceable = [
            (slot, value)
            for slot, value in call.inputs.named()
            if value.storage not in own
            and pairs.b.root(value).number not in before_norms
            and not _is_done_before(pairs, value, given.get(slot), partner)
        ]
        inputs[key] = _facing_values(pairs, replaceable, given, call)
        if _encodes_inputs_otherwise(meter, partner, call):
            inputs[key] = {}
        returned = partner.returned or partner.outputs
        if call.outputs is not None and returned is not None:
            candidates = dict(returned.named())
            own_values = [
                x for x in call.outputs.named() if not _ends_elsewhere(pairs, x[1], candidates.get(x[0]), candidates)
            ]
            own_values = [x for x in own_values if pairs.b.root(x[1]).number not in before_norms]
            outputs[key] = _facing_values(pairs, own_values, candidates, call)
    return ReplayPlan(inputs, outputs)


def _products_before_norms(pairs: Pairs) -> set[int]:
    """Return the results of b's products, by number, where a batch norm follows on one side only.

    The other side may have it folded into its weights: then the products return different values.
    """
    found: set[int] = set()
    for index, pair in pairs.steps.items():
        a, b = pairs.a.steps[pair.a], pairs.b.steps[index]
        if (following_batch_norm(pairs.a, a) is None) != (following_batch_norm(pairs.b, b) is None):
            found.update(pairs.b.root(value).number for value in b.outputs)
    return found


def _picked_values(run: StepList) -> set[int]:
    """Return the values, by number, that have rows picked by computed indices or masks, in the call that picked them.

    They keep them until they are put back into their places.
    """
    picked: dict[int, int] = {}  # a value's number → the depth of the call that picked its rows
    found: set[int] = set()
    for step in run.steps:
        depths = [picked[given.value.number] for given in step.data if given.value.number in picked]
        depths = [depth for depth in depths if step.call.depth >= depth]
        if step.name in PICKING and _is_given_choices(run, step):
            depths.append(step.call.depth)
        if depths and step.name not in PUTTING_BACK:
            picked.update((value.number, max(depths)) for value in step.results)
            found.update(value.number for value in step.results)
    return found


def _is_given_choices(run: StepList, step: Step) -> bool:
    """Are rows of a value taken by indices or a mask that the run computed?"""
    if not step.data or step.data[0].value.dtype not in EPS:
        return False
    choices = [given.value for given in step.data[1:] if given.value.dtype not in EPS]
    return any(run.maker(value) is not None for value in choices)


def _facing_values(
    pairs: Pairs, slots: Iterable[tuple[str, Value]], candidates: Mapping[str, Value], call: Call
) -> Slots:
    """Return the values of the partner that go into slots of a call of b, where there are any.

    Between calls of one name, the value in the same slot is taken. Otherwise only a paired value is taken: after a
    wrong value nothing could be judged.
    """
    pair = pairs.calls[call.index]
    named = pair.matched_by in ("path", "mapping")
    if not named and pair.confidence < HALF:
        return {}
    plan: Slots = {}
    for slot, value in slots:
        fitting = [
            x for x in candidates.values() if x.saved is not None and x.shape == value.shape and _castable(x, value)
        ]
        fitting = [x for x in fitting if x.detail is None and value.detail is None]  # such as inside vmap
        in_slot = candidates.get(slot) if candidates.get(slot) in fitting else None
        partner = next((x for x in fitting if pairs.are_paired(x, value)), None)
        chosen = (in_slot or partner) if named else partner
        if chosen is not None:
            plan[slot] = chosen
    return plan


def _ends_elsewhere(pairs: Pairs, b: Value, a: Value | None, returned: Mapping[str, Value]) -> bool:
    """Do two calls of one name end at other steps, so that what each returns has its counterpart elsewhere?

    Such is a norm that computes the activation, too, where the other model has a module for that.
    """
    if a is None or pairs.are_paired(a, b) or not (pairs.is_firm(b) and pairs.is_firm_in_a(a)):
        return False
    return not any(pairs.are_paired(other, b) for other in returned.values())


def _is_done_before(pairs: Pairs, b: Value, a: Value | None, partner: Call) -> bool:
    """Is a call of b given what its partner returns? So is an Identity behind a norm with its activation."""
    if a is None or pairs.are_paired(a, b) or not pairs.is_firm(b):
        return False
    return any(pairs.are_paired(value, b) for value in partner.outputs or ())


def _encodes_inputs_otherwise(meter: Meter, a: Call, b: Call) -> bool:
    """Do they return the same for different inputs, which then have another encoding (positions from 2, not from 0)?"""
    same = _differ(meter, a.outputs, b.outputs, 1 / CLOSER) is False
    return same and _differ(meter, a.inputs, b.inputs) is True


def _differ(
    meter: Meter, a: Inputs | Outputs | None, b: Inputs | Outputs | None, by_statistics: float = 1.0
) -> bool | None:
    """Is any pair of values in equal slots further apart than rounding? ``None`` where nothing can be compared.

    ``by_statistics`` is the share of the tolerance that is allowed where the data are not there.
    """
    named = {} if a is None else dict(a.named())
    sides = [(named[slot], value) for slot, value in (() if b is None else b.named()) if slot in named]
    measured = [(meter(x, y), meter.tolerance(x, y)) for x, y in sides if _castable(x, y)]
    known = [
        (measures.error, limit if measures.basis == TENSORS else limit * by_statistics)
        for measures, limit in measured
        if measures.what != "unknown"
    ]
    return any(error > limit for error, limit in known) if known else None


def _castable(a: Value, b: Value) -> bool:
    """May one be cast to the other? Not a mask of numbers to one of booleans, nor positions to activations."""
    return number_kind(a.dtype) == number_kind(b.dtype)


def _written_storages(pairs: Pairs) -> dict[int, set[int | None]]:
    """Return for each call of b, by index, the storages that it and the calls in it write to."""
    written: dict[int, set[int | None]] = {}
    for call in reversed(pairs.b.trace.calls):  # children before their parents
        body = call.body
        own = written.setdefault(call.index, set())
        own |= {value.storage for _, value in body.writes} if body is not None else set()
        if call.parent_index is not None and own:
            written.setdefault(call.parent_index, set()).update(own)
    return written
