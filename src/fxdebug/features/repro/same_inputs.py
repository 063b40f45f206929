"""Follow both sides of a finding back to tensors that both were given."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from fxdebug.api.finding_row import FindingRow
from fxdebug.comparison.result import Row
from fxdebug.data.values import Value
from fxdebug.errors import UsageError
from fxdebug.features.repro.distance import relative_error
from fxdebug.features.repro.region import Region, region_of
from fxdebug.features.repro.targets import Target
from fxdebug.query.network import network_of

MOST_NODES = 400  # followed back on each side
MOST_TRIED = 8  # tensors of a that one of b is compared with, element by element
SAME = 1e-3  # relative error up to which two tensors count as the same one, rounded
_ONE_SIDED = ("missing", "extra", "dtype")
_REWIRED = ("wiring", "missing", "extra", "overwritten", "dtype")  # what goes in is what is wrong


@dataclass
class SameInputs:
    """The operations of both sides. ``partner`` has, by the name of a tensor that b is given, that of the same in a."""

    a: Region
    b: Region
    partner: dict[str, str]


def same_inputs_of(finding: FindingRow, a: Target, b: Target) -> SameInputs:
    """Return the operations of both sides, back to the nearest tensors that both sides have.

    Raises ``UsageError`` where b is given something that a does not have.
    """
    is_one_sided = finding.kind in _ONE_SIDED
    before_a, before_b = _kept_before(a, b, is_one_sided), _kept_before(b, a, is_one_sided)
    cut_a, partner = set[int](), dict[int, int]()
    if finding.kind == "wiring":  # which of the tensors that both have it is given, is what is wrong
        everywhere = {value.digest: value.number for value in a.trace.values if value.digest is not None}
        cut_a = {value.number for value in before_a}
        partner = {value.number: everywhere[value.digest] for value in before_b if value.digest in everywhere}
    if not partner:
        partner = _partners(a, b, before_a, before_b, _allowed(finding))
    one = region_of(a.trace, a.value, a.node, cut_a or set(partner.values()), a.hand.is_kept)
    other = region_of(b.trace, b.value, b.node, set(partner), b.hand.is_kept)
    if any(finding.of_findings.get(line.node, finding.position) < finding.position for line in other.lines):
        raise UsageError(
            f"no script can be written: what goes into {finding.where} in b is wrong already, by an earlier finding: "
            "take the first finding, or compare_models, which gives b what a was given"
        )
    names = {value.number: name for name, value in one.given.items()}
    alone = [name for name, value in other.given.items() if value.number not in partner]
    if alone:
        raise UsageError(
            f"no script can be written: b computes {finding.where} from {alone[0]} "
            f"({other.given[alone[0]].label}), which a does not have: take the first finding, or compare_models, which "
            "gives b what a was given"
        )
    numbers = {name: partner[value.number] for name, value in other.given.items()}
    return SameInputs(one, other, {name: names[number] for name, number in numbers.items() if number in names})


def _kept_before(target: Target, other: Target, is_one_sided: bool) -> list[Value]:
    """Return the tensors from which a result was computed and which were kept, the nearest first."""
    net = network_of(target.trace)
    found: dict[int, Value] = {}
    start = target.node or net.producer_of.get(target.value.number)
    if is_one_sided or (
        target.node is None and other.node is not None
    ):  # it may be what the other side's operation was given
        found[target.value.number] = target.value
    pending, seen = deque([] if start is None else [start]), {start}
    while pending and len(seen) <= MOST_NODES:
        id = pending.popleft()
        for edge in net.into.get(id, ()):
            value = edge.value
            if value is not None and value.name is None and value.number != target.value.number:
                found.setdefault(value.number, value)
            if edge.source not in seen:
                seen.add(edge.source)
                pending.append(edge.source)
    return [value for value in found.values() if target.hand.is_kept(value)]


def _partners(a: Target, b: Target, before_a: list[Value], before_b: list[Value], allowed: float) -> dict[int, int]:
    """Return the numbers of tensors that are the same on both sides: of b, and of a."""
    by_digest = {value.digest: value.number for value in reversed(before_a) if value.digest is not None}
    partner: dict[int, int] = {}
    for value in before_b:
        if value.digest in by_digest:
            partner[value.number] = by_digest[value.digest]
            continue
        like = [each for each in before_a if each.shape == value.shape and each.dtype == value.dtype]
        errors = {
            each.number: relative_error(a.hand.given(each), b.hand.given(value))
            for each in like[:MOST_TRIED]
            if each.number not in partner.values()
        }
        nearest = min(errors, key=lambda number: errors[number], default=None)
        if nearest is not None and errors[nearest] <= allowed:
            partner[value.number] = nearest
    return partner


def _allowed(finding: Row) -> float:
    """Return the error up to which a tensor of b is one of a: that of rounding, or of earlier findings."""
    rounded = min(SAME, finding.error / 10) if 0 < finding.error < math.inf else SAME
    handed_on = 2 * finding.error_in if math.isfinite(finding.error_in) and finding.kind not in _REWIRED else 0.0
    return max(rounded, handed_on)
