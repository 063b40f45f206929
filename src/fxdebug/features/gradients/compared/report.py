"""The gradients of two steps compared by parameter: one sentence, and each parameter in the order of the backward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fxdebug.data.calls import Note
from fxdebug.data.findings import ERROR, WARNING, Finding, Severity
from fxdebug.data.report import Column, ReportData
from fxdebug.features.gradients.compared.facing import Facing, OneGradient, Step, limit_of, rounding_alone
from fxdebug.features.gradients.compared.relations import (
    Common,
    common_factor,
    largest_element,
    listed,
    parameters,
    reading,
    sums,
    weight_decay,
)
from fxdebug.features.gradients.compared.samples import samples_told
from fxdebug.features.gradients.compared.smoothed_targets import smoothing_told

EQUAL: Final = "equal"
ROUNDING: Final = "rounding alone"
FACTOR: Final = "own factor"
DIFFERS: Final = "differs"
COLUMNS: Final = (
    Column("name", "parameter"),
    Column("state", "state"),
    Column("error", "error", about="beyond the common factor, relative to the gradient"),
    Column("factor", "b/a", about="the factor by which the gradient of a comes nearest to that of b"),
    Column("norm_a", "norm in a"),
    Column("norm_b", "norm in b"),
    Column("shape", "shape", shown=False),
)


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """The gradients of one parameter. ``error`` is that beyond the common factor, ``factor`` the parameter's own.

    ``state``: ``equal`` (but for the common factor), ``own factor``, ``differs``, ``rounding alone``, ``none``,
    ``none in b``, ``not finite in b``, ``zero in b``, ``only in b``, ``other shape``, and the same of a.
    """

    name: str
    state: str
    error: float | None
    factor: float | None
    norm_a: float | None
    norm_b: float | None
    shape: str


def compared_gradients(a: Step, b: Step, counts: Mapping[str, float] | None = None) -> ReportData[ComparedRow]:
    """Return how the gradients of step b relate to those of step a; ``counts`` are numbers that may be a factor."""
    order = [*a.gradients, *[name for name in b.gradients if name not in a.gradients]][::-1]
    states = {name: _state(a.gradients.get(name), b.gradients.get(name)) for name in order}
    small = rounding_alone(a) & rounding_alone(b)
    states |= {name: ROUNDING for name, state in states.items() if not state and name in small}
    pairs = [Facing(name, a.gradients[name], b.gradients[name]) for name in order if not states[name]]
    common = common_factor(pairs)
    factor = 1.0 if common is None else common.factor
    rows = []
    for name in order:
        one, other = a.gradients.get(name), b.gradients.get(name)
        pair = next((pair for pair in pairs if pair.name == name), None)
        state = states[name]
        if pair is not None:
            own = pair.fits(pair.factor) and math.prod(pair.a.shape) > 1
            state = EQUAL if pair.fits(factor) else FACTOR if own else DIFFERS
        shape = (one or other or OneGradient((), "", None)).shape
        rows.append(
            ComparedRow(
                name,
                state,
                None if pair is None else pair.error(factor),
                None if pair is None else pair.factor,
                None if one is None else one.norm,
                None if other is None else other.norm,
                "×".join(map(str, shape)),
            )
        )
    said = _Said(a, b, tuple(rows), pairs, common, counts or {})
    answer, severity, advice = said.answer()
    findings = () if severity is None else (_finding(rows, answer, severity, advice, a.name),)
    by_norms = [pair for pair in pairs if not pair.by_elements]
    notes = [Note("compared by norms alone: the directions of the gradients are not known")] if by_norms else []
    return ReportData(
        analysis="compare_gradients",
        subject=a.name if a.name == b.name else f"{a.name} and {b.name}",
        columns=COLUMNS,
        rows=tuple(rows),
        totals={"total norm of a": (a.total, ""), "total norm of b": (b.total, ""), "parameters": (len(rows), "")},
        findings=findings,
        notes=(*notes, *[Note(f"gradients stop {text}") for text in dict.fromkeys((*a.stops, *b.stops))]),
        ranked=False,
        answer=answer,
    )


def _state(one: OneGradient | None, other: OneGradient | None) -> str:
    """Return the state of a pair that has no two sets of finite numbers to compare; empty for others."""
    if one is None or other is None:
        return "only in b" if one is None else "only in a"
    sides = ("a", one), ("b", other)
    for word, wrong in (
        ("none", [side for side, x in sides if x.norm is None]),
        ("not finite", [side for side, x in sides if x.norm is not None and not x.is_finite]),
        ("zero", [side for side, x in sides if x.norm == 0]),
    ):
        if wrong:
            return f"{word} in {wrong[0]}" if len(wrong) == 1 else word
    return "other shape" if one.shape != other.shape else ""


class _Said:
    """The sentence about two steps, its severity, and what to look for."""

    def __init__(
        self,
        a: Step,
        b: Step,
        rows: tuple[ComparedRow, ...],
        pairs: list[Facing],
        common: Common | None,
        counts: Mapping[str, float],
    ) -> None:
        self._a, self._b, self._rows, self._pairs, self._common, self._counts = a, b, rows, pairs, common, counts

    def answer(self) -> tuple[str, Severity | None, str]:
        """Return the sentence, the severity of the finding, ``None`` without one, and the advice."""
        apart = list(self._apart())
        said, severity, advice = self._of_pairs(bool(apart))
        recomputed = list(self._recomputed()) if severity is not None else []
        if recomputed:  # other numbers are other gradients: nothing else need be the cause
            return "; ".join([*recomputed, said, *apart]), severity, _RECOMPUTED
        if severity is not None and any(row.state in ("none in b", "none in a") for row in self._rows):
            return "; ".join([*apart, said]), severity, _TERM  # what differs may follow from it
        return "; ".join([said, *apart]), ERROR if apart and severity is None else severity, advice

    def _of_pairs(self, others: bool) -> tuple[str, Severity | None, str]:
        pairs, common = self._pairs, self._common
        if not pairs:
            none = all(row.norm_a is None and row.norm_b is None for row in self._rows)
            return (
                ("no parameter has a gradient in either" if none else "no parameter has gradients in both to compare"),
                (WARNING if none else ERROR),
                "Call backward() before, and compare before zero_grad().",
            )
        if decay := weight_decay(pairs):
            number, names = decay
            which = "all" if len(names) == len(pairs) else f"{len(names)} of {len(pairs)}"
            sign = "+" if number > 0 else "-"
            what = (
                f"in {which} parameters the gradient of b is that of a {sign} {abs(number):.3g} times the weight: "
                "weight decay, or a penalty, is in it"
            )
            if len(names) < len(pairs):
                what += f" (not in {listed([p.name for p in pairs if p.name not in names])})"
            return what, ERROR, "Give the decay to the optimizer or to the loss, not to both."
        if common is not None and len(common.fitting) == len(pairs):
            every = "all gradients" if not others else "the gradients"
            if common.factor == 1.0:
                by = "" if all(pair.by_elements for pair in pairs) else " by their norms"
                return f"{every} of b are those of a{by} ({parameters(len(pairs))})", None, ""
            sign = self._factor(common.factor)
            read = reading(common.factor, pairs, self._a, self._b, self._counts)
            if not read.startswith(":") and (targets := smoothing_told(pairs)):  # nearly a factor
                return f"{targets}; {every} of b are nearly those of a × {sign}", ERROR, _TARGETS
            return f"{every} of b are those of a × {sign} ({parameters(len(pairs))}){read}", ERROR, _SCALED
        if (limit := largest_element(pairs)) is not None:
            return (
                (
                    f"all gradients of b are those of a with each element limited to ±{limit:.3g}: "
                    "they are clipped by value"
                ),
                ERROR,
                "clip_grad_value_ changes directions; clip_grad_norm_ does not.",
            )
        dtypes = sorted({pair.a.dtype for pair in pairs} ^ {pair.b.dtype for pair in pairs})
        if dtypes:  # rounding of many steps is between them, and no limit for it is known
            said = f"cannot tell whether the gradients differ: only one of a and b has some in {listed(dtypes)}"
            return said, WARNING, "Compare both steps in one dtype, such as float32 or float64."
        if common is not None:
            return self._some_differ(common)
        return self._no_factor()

    def _some_differ(self, common: Common) -> tuple[str, Severity | None, str]:
        """Some parameters differ from what most have in common: told by their place in the backward."""
        rows = [row for row in self._rows if row.state in (EQUAL, FACTOR, DIFFERS)]
        wrong = [row for row in rows if row.state != EQUAL]
        first = rows.index(wrong[0])
        rest = "are equal" if common.factor == 1.0 else f"are those of a × {self._factor(common.factor)}"
        tied = self._tied()
        if tied:
            return f"{tied}; the other {len(rows) - len(wrong)} {rest}", ERROR, _TIED
        own = {row.factor for row in wrong if row.state == FACTOR}
        how = f"error {wrong[0].error:.2g}"
        if len(own) and len([row for row in wrong if row.state == FACTOR]) == len(wrong):
            numbers = sorted(factor for factor in own if factor is not None)
            same = numbers[-1] - numbers[0] <= 1e-3 * abs(numbers[-1])
            how = f"× {self._factor(numbers[0])}" if same else f"× {numbers[0]:.3g} to {numbers[-1]:.3g}"
            return (
                (
                    f"{len(wrong)} of {parameters(len(rows))} have a factor of their own: "
                    f"{listed([r.name for r in wrong])} ({how}); the other {len(rows) - len(wrong)} {rest}"
                ),
                ERROR,
                _OWN,
            )
        where = f"the first in the order of the backward is {wrong[0].name} ({how})"
        if first and all(row.state != EQUAL for row in rows[first:]):
            where += f", with all behind it; the {first} before it {rest}"
        else:
            where += f"; the other {len(rows) - len(wrong)} {rest}"
        alone = rows[-1].state == EQUAL and all(row.state != EQUAL for row in rows[first : first + len(wrong)])
        return f"{len(wrong)} of {parameters(len(rows))} differ: {where}", ERROR, _ALONE if alone else _PLACE

    def _no_factor(self) -> tuple[str, Severity | None, str]:
        """No factor is common to most parameters."""
        pairs = self._pairs
        larger = [pair for pair in pairs if math.prod(pair.a.shape) > 1] or pairs
        factors = sorted(pair.factor for pair in larger)
        between = f"between {factors[0]:.3g} and {factors[-1]:.3g}"
        tied = self._tied()
        if tied:
            return tied, ERROR, _TIED
        if all(pair.fits(pair.factor) for pair in larger):
            norms = {pair.b.norm for pair in larger if pair.b.norm is not None}
            if len(larger) > 1 and max(norms) - min(norms) <= 1e-4 * max(norms):
                what = f"each gradient of b is that of a with a norm of {max(norms):.3g}: each is clipped or normalised"
                return what, ERROR, "clip_grad_norm_ is to be given all parameters in one call."
            what = f"each gradient of b is that of a times a factor of its own, {between} ({parameters(len(pairs))})"
            return what, ERROR, _OWN
        right = [row for row in self._rows if row.state == EQUAL]
        first = next(row for row in self._rows if row.state in (FACTOR, DIFFERS))
        every = "all" if not right else f"{len(pairs) - len(right)} of"
        what = f"{every} {parameters(len(pairs))} differ, and by not one factor: {between}"
        targets = smoothing_told(pairs)
        if targets:
            return f"{targets}; {what}", ERROR, _TARGETS
        if self._a.recomputed or self._b.recomputed:
            return f"{what}; the first in the order of the backward is {first.name}", ERROR, _MIXED
        samples, advice = samples_told(pairs)
        if samples:
            return f"{samples}; {what}", ERROR, advice
        return f"{what}; the first in the order of the backward is {first.name}", ERROR, _MIXED

    def _tied(self) -> str:
        """Say where a gradient is the sum of those of parameters that are one in the other step."""
        for one, other, side in ((self._a, self._b, "b"), (self._b, self._a, "a")):
            extra = [name for name in other.gradients if name not in one.gradients]
            found = sums(one, other, extra)
            if found:
                name, parts = found
                whole = "a" if side == "b" else "b"
                return (
                    f"the gradient of {name} in {whole} is the sum of those of {' and '.join(parts)} in {side}: a "
                    f"weight that is tied in {whole} is two in {side}"
                )
        return ""

    def _apart(self) -> Iterator[str]:
        """Yield what is told of gradients that are missing, zero or not finite in one step alone."""
        tied = self._tied()
        for state, words in (
            ("not finite in b", "{} not finite in b alone"),
            ("not finite in a", "{} not finite in a alone"),
            ("none in b", "{} no gradient in b, and one in a"),
            ("none in a", "{} no gradient in a, and one in b"),
            ("zero in b", "{} zero in b alone"),
            ("zero in a", "{} zero in a alone"),
            ("only in a", "{} in a alone"),
            ("only in b", "{} in b alone"),
            ("other shape", "{} of another shape"),
        ):
            rows = [row for row in self._rows if row.state == state]
            if not rows or (tied and state.startswith("only")):
                continue
            names = listed([row.name for row in rows])
            verb = (
                ("has" if len(rows) == 1 else "have") if state.startswith("none") else "is" if len(rows) == 1 else "are"
            )
            side = self._a if state.endswith(" a") else self._b
            known = {side.gradients[row.name].why for row in rows if row.name in side.gradients}
            why = f" ({known.pop()})" if len(known) == 1 and any(known) and state.startswith("none") else ""
            stop = f": it stops {side.stops[0]}" if state.startswith("none") and side.stops else ""
            yield words.format(f"{names} {verb}") + why + stop

    def _recomputed(self) -> Iterator[str]:
        """Yield what the backward of one step ran again with other random numbers than its forward."""
        for step, side in ((self._a, "a"), (self._b, "b")):
            if step.recomputed:
                which = listed(list(step.recomputed))
                draws = "draws" if len(step.recomputed) == 1 else "draw"
                yield f"in the backward of {side} {which} {draws} other random numbers than in its forward"

    def _factor(self, factor: float) -> str:
        rounded = round(factor) if abs(factor) >= 1 else factor
        near = abs(factor - rounded) <= 2e-5 * abs(factor)
        return f"{rounded:d}" if near and isinstance(rounded, int) else f"{factor:.4g}"


_SCALED = "A factor of all gradients changes SGD by as much, Adam hardly; clipping and eps are affected."
_PLACE = (
    "Look at what this parameter's module and the ones that run right after it do: detach(), another seed of "
    "dropout in a recomputation, a backward of one's own."
)
_ALONE = (
    "Gradients of parameters before them in the forward are equal, so the backward passed them rightly: look for a "
    "hook, a clip, or a sum over ranks that is made of these alone, or leaves them out."
)
_OWN = (
    "Look for what scales gradients of single parameters: hooks, clipping of each, a layer that is called more often."
)
_MIXED = (
    "Compare what the forwards return first. Where these are equal: micro batches with different numbers of tokens, "
    "averaged each, other random numbers (dropout), other data."
)
_RECOMPUTED = (
    "Let the recomputation draw what the forward drew: torch.utils.checkpoint with preserve_rng_state=True, or save "
    "torch.get_rng_state() in a function of one's own and set it again before the second run."
)
_TARGETS = (
    "With label smoothing e over K classes the label's target is 1 - e + e / K and every other one e / K, so that they "
    "sum to 1: F.cross_entropy(logits, labels, label_smoothing=e)."
)
_TERM = (
    "Look for a term of the loss, or a branch, that one step leaves out or detaches: parameters that both branches "
    "share differ by it."
)
_TIED = "Tie the weights again (tie_weights()), after loading or wrapping the model."


def _finding(rows: list[ComparedRow], what: str, severity: Severity, advice: str, model: str) -> Finding:
    wrong = [row for row in rows if row.state not in (EQUAL, ROUNDING, "none", "zero", "not finite")] or rows
    name = wrong[0].name if wrong else ""
    return Finding(
        rule="gradients differ",
        severity=severity,
        path=name.rpartition(".")[0],
        call=f"{name.rpartition('.')[0] or model}#0",
        op=name,
        what=what,
        measured=wrong[0].error if wrong else None,
        threshold=limit_of("float32"),
        advice=advice,
        others=tuple([row.name for row in wrong[1:]]),
    )
