"""The report on a training that was saved and loaded: whether it resumes, and what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from fxdebug.api.reports.report import Report
from fxdebug.cells import shortened_to
from fxdebug.data.calls import Note
from fxdebug.data.findings import ADVICE, ERROR, Finding
from fxdebug.data.measures import counted
from fxdebug.data.report import Column
from fxdebug.features.resumes.runs import LostPart, Resumption

COLUMNS: Final = (
    Column("part", "part"),
    Column("kind", "kind"),
    Column("lost", "after loading", shown=False),
    Column("needed", "needed"),
    Column("loss", "loss without it", about="the loss of the last step with all other parts brought back"),
)
_REMEDY: Final = {
    "model": "save and load model.state_dict(), and the mode (train or eval)",
    "optimizer": "save and load optimizer.state_dict(), after its parameters are those of the model that trains",
    "state": "save and load its state_dict(), too",
    "generator": "save generator.get_state() and load it with set_state()",
    "random numbers": "save and load the states of the random generators (torch.get_rng_state() and the like)",
    "number": "save it beside the weights and set it when you load",
    "data": "save how many batches of the epoch were used and skip them, or use a loader with a state_dict()",
}
LONGEST: Final = 70  # characters of a value


@dataclass(frozen=True)
class LostRow:
    """A part that loading did not bring back; ``needed`` is ``n/a`` where that could not be tried."""

    part: str
    kind: str
    lost: str
    needed: str
    loss: float | None


def resumes_report(found: Resumption, steps: int) -> Report[LostRow]:
    """Return the report on ``steps`` steps before and after loading."""
    rows = tuple([LostRow(one.name, one.kind, _lost(one, steps), _needed(one), one.loss) for one in found.lost])
    return Report(
        analysis="resumes",
        subject="the training",
        columns=COLUMNS,
        rows=rows,
        totals={"resumes": (_verdict(found, steps), "")},
        findings=tuple(_findings(found, steps)),
        notes=tuple(_notes(found)),
        settings={"steps": steps},
        ranked=False,
        folds=False,
    )


def _verdict(found: Resumption, steps: int) -> str:
    if found.undetermined is not None:
        return f"cannot tell: two runs in one go differ from step {found.undetermined + 1} on"
    if found.saving_changes is not None:
        return f"cannot tell: saving changes the training, from step {found.saving_changes + 1} on"
    if found.first is None:
        after = f"{steps} steps after loading are" if steps > 1 else "the step after loading is"
        return f"yes: {after} equal to the last bit to those in one go"
    return f"no: step {steps + found.first + 1} differs ({_losses(found, steps)})"


def _losses(found: Resumption, steps: int) -> str:
    assert found.first is not None
    ours, theirs = found.resumed.losses[found.first], found.whole.losses[steps + found.first]
    if ours is None or theirs is None or ours == theirs:
        return "its weights are others"
    return f"loss {ours:.6g} after loading, {theirs:.6g} in one go"


def _findings(found: Resumption, steps: int) -> Iterator[Finding]:
    if found.undetermined is not None:
        what = (
            f"step {found.undetermined + 1} of two runs in one go differs, though both began with the same random state"
        )
        yield _finding("not repeatable", ERROR, what, "seed all that make() draws, and shuffle by a seeded generator")
        return
    if found.saving_changes is not None:
        what = (
            f"a run that is saved after step {steps} and one that is not differ from step {found.saving_changes + 1} on"
        )
        yield _finding("saving changes", ERROR, what, "let save() only read: no forward, no draw, no change of modes")
        return
    for one in sorted(found.lost, key=lambda one: one.needed is False):
        needed = found.first is not None and one.needed is not False
        if not needed and one.kind in ("number", "random numbers"):
            continue  # such as a counter that is only printed, or numbers that nobody draws
        effect = ""
        if needed and one.needed and one.loss is not None:
            effect = f"; with all else brought back, the loss of step {2 * steps} is {one.loss:.6g}"
            effect += f" instead of {found.whole.losses[-1]:.6g}" if found.whole.losses[-1] is not None else ""
        elif not needed:
            effect = f"; no effect in these {steps} steps"
        are = "are" if one.kind == "random numbers" else "is"
        verb = f"{are} not restored" if one.kind != "data" else "is lost"
        yield _finding(
            "not restored",
            ERROR if needed else ADVICE,
            f"{one.name} {verb}: {_lost(one, steps)}{effect}",
            _REMEDY[one.kind],
        )
    if found.first is not None and not found.lost:
        what = f"step {steps + found.first + 1} differs ({_losses(found, steps)}), and all that was found is restored"
        yield _finding("differs", ERROR, what, "look for state that step() uses by neither variables nor attributes")


def _notes(found: Resumption) -> Iterator[Note]:
    if found.first is not None and found.lost and found.explained is False:
        yield Note(
            "with all these parts brought back the steps differ still: something else is lost, and it could not be "
            "tried which of these parts are needed"
        )


def _finding(rule: str, severity: Any, what: str, advice: str) -> Finding:
    return Finding(rule, severity, "", "", "", what, advice=advice)


def _needed(one: LostPart) -> str:
    return "n/a" if one.needed is None else "yes" if one.needed else "no"


def _lost(one: LostPart, steps: int) -> str:
    """Say what of a part is lost."""
    if one.kind == "data":
        where = "a batch that was not seen in one go" if one.again is None else f"the batch of step {one.again + 1}"
        return f"step {steps + 1} is given {where}" + (" again" if one.again is not None and one.again < steps else "")
    if one.kind in ("random numbers", "generator"):
        return "its state is another than when it was saved"
    said = []
    if one.missing:
        said.append(f"{_grouped(one.missing)} missing")
    if one.changed:
        name, before, now = one.changed[0]
        more = len(one.changed) - 1
        label = f"{name}: " if name else ""
        value = f"{name} differs" if isinstance(before, Tensor) else f"{label}{_shown(now)} instead of {_shown(before)}"
        said.append(value + (f", and {counted(more, 'more value')}" if more else ""))
    return "; ".join(said)


def _grouped(names: tuple[str, ...]) -> str:
    """Say names of values of parameters by their key.

    >>> _grouped(("step of a", "exp_avg of a", "step of b", "exp_avg of b"))
    'step, exp_avg of 2 parameters'
    """
    keys = Counter(key for key, of, _ in (name.partition(" of ") for name in names) if of)
    if not keys or sum(keys.values()) < len(names):
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    most = max(keys.values())
    return f"{', '.join(keys)} of {counted(most, 'parameter')}"


def _shown(value: Any) -> str:
    return shortened_to(f"{value:.6g}" if isinstance(value, float) else str(value), LONGEST)
