"""Plan an isolated run: which value of run a goes into which place of which call of run b."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fxdebug.comparison.measures import Meter
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.data.calls import Call
from fxdebug.data.values import Inputs, Outputs, Value

SURE = 0.5  # of a pair of calls that have other names

CallKey = tuple[str, int]  # path, number of the call


@dataclass
class ReplayPlan:
    """For each call of b, the values of a by the slot of b's tensor that each replaces, in its inputs and outputs."""

    inputs: dict[CallKey, Mapping[str, Value]] = field(default_factory=dict)
    outputs: dict[CallKey, Mapping[str, Value]] = field(default_factory=dict)


def replay_plan(pairs: Pairs) -> ReplayPlan:
    """Return the plan for pairs of a run of a, with its tensors kept, and of a plain run of b."""
    plan = ReplayPlan()
    written, meter = _written(pairs), Meter(pairs.a.trace, pairs.b.trace)
    for call in pairs.b.trace.calls:
        partner = pairs.of_call(call)
        if partner is None or call.parent_index is None or call.error is not None:
            continue
        key = (call.path, call.number)
        own = written.get(call.index, set())
        slots = [(slot, value) for slot, value in call.inputs.named() if value.storage not in own]
        plan.inputs[key] = _replacements(pairs, slots, dict(partner.inputs.named()), call)
        if _takes_inputs_in_another_form(meter, partner, call):
            plan.inputs[key] = {}
        returned = partner.returned or partner.outputs
        if call.outputs is not None and returned is not None:
            plan.outputs[key] = _replacements(pairs, call.outputs.named(), dict(returned.named()), call)
    return plan


def _replacements(
    pairs: Pairs, slots: Iterable[tuple[str, Value]], values: Mapping[str, Value], call: Call
) -> Mapping[str, Value]:
    """Return for each tensor of a call of b that of its partner: of calls of one name, the one in the same slot.

    Of other calls only a sure pair is taken: after a wrong value, nothing could be judged.
    """
    match = pairs.calls[call.index]
    is_named = match.how in ("path", "mapping")
    if not is_named and match.sure < SURE:
        return {}
    replacements: dict[str, Value] = {}
    for slot, value in slots:
        fitting = [x for x in values.values() if x.saved is not None and x.shape == value.shape and _is_kin(x, value)]
        fitting = [x for x in fitting if x.detail is None and value.detail is None]  # inside vmap, say
        in_same_slot = values.get(slot) if values.get(slot) in fitting else None
        partner = next((x for x in fitting if pairs.are(x, value)), None)
        chosen = (in_same_slot or partner) if is_named else partner
        if chosen is not None:
            replacements[slot] = chosen
    return replacements


def _takes_inputs_in_another_form(meter: Meter, a: Call, b: Call) -> bool:
    """Do they return the same for other inputs? Then inputs mean the same in another form (positions from 2, not 0)."""
    outputs_differ = _differ(meter, a.outputs, b.outputs)
    return outputs_differ is False and _differ(meter, a.inputs, b.inputs) is True


def _differ(meter: Meter, a: Inputs | Outputs | None, b: Inputs | Outputs | None) -> bool | None:
    """Are any values in the same slots further apart than rounding? ``None`` where nothing is known."""
    named = {} if a is None else dict(a.named())
    sides = [(named[slot], value) for slot, value in (() if b is None else b.named()) if slot in named]
    measured = [(meter(x, y), meter.tolerance(x, y)) for x, y in sides if _is_kin(x, y)]
    known = [(measure, limit) for measure, limit in measured if measure.what != "unknown"]
    return any(measure.error > limit for measure, limit in known) if known else None


def _is_kin(a: Value, b: Value) -> bool:
    """May one be cast to the other? Not a mask of numbers to one of booleans, nor positions to activations."""
    return _kind(a.dtype) == _kind(b.dtype)


def _kind(dtype: str) -> str:
    return "float" if "float" in dtype else "complex" if "complex" in dtype else "bool" if dtype == "bool" else "int"


def _written(pairs: Pairs) -> dict[int, set[int | None]]:
    """Return for each call of b the memory that it and the calls in it write to, which must stay b's own."""
    written: dict[int, set[int | None]] = {}
    trace = pairs.b.trace
    for call in reversed(trace.calls):
        body = call.body
        own = written.setdefault(call.index, set())
        own |= {value.storage for _, value in body.writes} if body is not None else set()
        if call.parent_index is not None and own:
            written.setdefault(call.parent_index, set()).update(own)
    return written
