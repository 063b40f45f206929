"""A zoo entry against transformers' debugger, in every mode, and the differences that are meant."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.digits import Digits, digits
from support.reference import Build, Written, differences, of_drop_in, of_fx_debug, of_reference, repeated, tensor_files

MODES = tuple((prune, use_repr) for prune in (False, True) for use_repr in (True, False))
FEW_MODES = ((False, False), (True, True))  # each value of each, once

DROP_IN, TENSORS, FX_DEBUG, NUMBERS = "drop-in", "tensor bytes", "fx_debug", "numbers"
NEITHER = "neither runs it"


@dataclass(frozen=True)
class Known:
    """A difference from the reference that is meant, and in what: everything, or only the part that is named."""

    reason: str
    where: tuple[str, ...] = (DROP_IN, TENSORS, FX_DEBUG, NUMBERS)
    sometimes: bool = False  # a race: it need not show


KNOWN = {
    "flow/recursive-module": Known("the reference keeps only the innermost call of a root that calls itself"),
    "flow/caught-exception": Known("the reference hangs what follows a caught exception below the call that failed"),
    "call/threads": Known("the reference has one call stack and one redirected stdout for all threads", sometimes=True),
    "tensors/conjugate-view": Known("the reference saves a lazily conjugated tensor unconjugated", (TENSORS,)),
    "call/grad-in-forward": Known("it needs gradients, which the context switches off", (NEITHER,)),
    "modes/enable-grad": Known("fx_debug leaves the gradient mode alone, so the text says requires_grad", (FX_DEBUG,)),
    "call/vmap": Known("the reference has a mean per sample inside vmap; our numbers are over the batch", (NUMBERS,)),
    "tensors/subclass": Known("our numbers do not know that a mean of this class prints its name", (NUMBERS,)),
}


@dataclass
class Report:
    """One zoo entry against the reference."""

    name: str
    runs: int = 0  # drop-in runs compared with the reference's
    equal: int = 0
    stopped: str | None = None  # what the reference raises here, when it does
    both_stopped: bool = False  # the drop-in raises the same: what the context itself rules out
    drop_in: list[str] = field(default_factory=list)  # differences
    fx_runs: int = 0  # the same for ``fx_debug(values="repr", save=…)``
    fx_equal: int = 0
    fx_debug: list[str] = field(default_factory=list)
    digits: Digits = field(default_factory=Digits)

    @property
    def known(self) -> Known | None:
        """Why this entry differs, if that is known."""
        return KNOWN.get(self.name)

    @property
    def unexplained(self) -> list[str]:
        """Every difference that nothing explains."""
        known = self.known.where if self.known is not None else ()
        neither = [NEITHER] if self.both_stopped and NEITHER not in known else []
        drop_in = [what for what in self.drop_in if (TENSORS if what.endswith("other bytes") else DROP_IN) not in known]
        fx_debug = [] if FX_DEBUG in known else self.fx_debug
        return [*neither, *drop_in, *fx_debug, *([] if NUMBERS in known else self.digits.unexplained)]


def compared(name: str, build: Build, modes: tuple[tuple[bool, bool], ...] = MODES) -> Report:
    """Run the reference, the drop-in and ``fx_debug`` on an entry and compare all they write."""
    report = Report(name)
    shared: frozenset[str] = frozenset()
    for prune, use_repr in modes:
        theirs = of_reference(build, prune=prune, use_repr=use_repr)
        mode = f"use_repr={use_repr}, prune={prune}"
        ours = of_drop_in(build, prune=prune, use_repr=use_repr)
        if theirs.error is not None:
            report.stopped = f"{type(theirs.error).__name__}: {theirs.error}"
            if ours.error is not None:
                report.both_stopped = True
                if repr(ours.error) != repr(theirs.error):
                    report.drop_in.append(f"{mode}: raises {ours.error!r}, the reference {theirs.error!r}")
            continue
        if not use_repr and not prune:
            shared = repeated(tensor_files(theirs))
        found = differences(theirs, ours, shared=shared if prune else frozenset())
        report.runs += 1
        report.equal += not found
        report.drop_in += [f"{mode}: {what}" for what in found]
        if use_repr:
            _compare_fx_debug(report, build, theirs, prune)
    return report


def _compare_fx_debug(report: Report, build: Build, theirs: Written, prune: bool) -> None:
    found = differences(theirs, of_fx_debug(build, values="repr", prune=prune))
    report.fx_runs += 1
    report.fx_equal += not found
    report.fx_debug += [f"values='repr', prune={prune}: {what}" for what in found]
    if not report.digits.strings:  # once is enough: the numbers do not depend on pruning
        report.digits.add(digits(theirs, of_fx_debug(build, values="stats", prune=prune)))
