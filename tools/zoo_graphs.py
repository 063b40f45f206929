"""What ``make zoo`` tells of the graphs: what was verified, what was not and why, and the bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from support.other_inputs import Others
from support.trust import DEFAULT, GRAD, NO_CACHE, Trust

REASONS_SHOWN = 40


def problems(found: Trust) -> list[str]:
    """What must not be, of one entry in one setting."""
    told = [f"{kind}: {text}" for kind, text in (("failed", found.failed), ("output", found.output)) if text]
    told += [f"a wrong graph: {text}" for text in found.wrong]
    told += [f"without graph or reason: {text}" for text in found.unexplained]
    told += [f"verified, but not when it was to be judged: {text}" for text in found.not_audited]
    told += [f"{other.change}: {text}" for other in found.others for text in (*other.wrong, *other.failed)]
    if found.left:
        told.append(f"{found.left} placeholders are alive after the run")
    return [f"{found.setting}: {text}" for text in told]


def verdict(trusts: list[Trust]) -> str:
    """A few words for the line of an entry."""
    if any(problems(found) for found in trusts):
        return "GRAPHS WRONG"
    calls, verified = sum(found.calls for found in trusts), sum(found.verified for found in trusts)
    return f"{verified} of {calls} calls verified"


# The bars ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A figure and what it must be."""

    what: str
    figure: str
    met: bool
    share: bool = False  # a percentage: it says something about many entries only


def bars(trusts: list[Trust]) -> list[Bar]:
    """Every bar for which there is something to count."""
    micro = [found for found in trusts if found.name.startswith("trap/")]
    models = [found for found in trusts if not found.name.startswith("trap/")]
    found: list[Bar] = []
    if models:
        found += _zeros("over the zoo", models)
        found += [bar for setting, *least in LEAST for bar in _rates(models, setting, *least)]
        found += _other_inputs(models)
    if micro:
        found += _zeros("over the micro cases", micro)
        wrong = sum(len(other.wrong) for trust in micro for other in trust.others)
        count = sum(other.right + len(other.wrong) for trust in micro for other in trust.others)
        if count:  # nearly all of these are made to depend on their inputs: how many refuse says nothing
            what = "graphs of the micro cases run on other inputs, silently wrong"
            found.append(Bar(what, f"{wrong} of {count:,}", wrong == 0))
    return found


# setting, least percentage of calls and of operations
LEAST = ((DEFAULT, 99.5, 99.0), (NO_CACHE, 99.5, 99.0), (GRAD, 98.0, 95.0))


def _zeros(where: str, trusts: list[Trust]) -> list[Bar]:
    ran = [found for found in trusts if found.stopped is None]
    audited, unjudged = _sum(ran, lambda found: found.audited), _sum(ran, lambda found: found.unjudged)
    counts = {
        f"user output bit-equal with graphs on, {where}": (
            f"{len(ran) - sum(bool(found.output or found.failed) for found in ran):,} of {len(ran):,} runs",
            not any(found.output or found.failed for found in ran),
        ),
        f"silently wrong verified graphs {where}": (
            f"{_sum(ran, lambda found: len(found.wrong))} of {audited:,} executed"
            + (f" ({unjudged} more ran inside torch.vmap and cannot be executed outside)" if unjudged else ""),
            not any(found.wrong or found.not_audited for found in ran),
        ),
        f"calls with neither graph nor reason {where}": _none(_sum(ran, lambda found: len(found.unexplained))),
        f"placeholders left alive {where}": _none(_sum(ran, lambda found: found.left)),
    }
    return [Bar(what, *rest) for what, rest in counts.items()]


def _none(count: int) -> tuple[str, bool]:
    return str(count), count == 0


def _rates(trusts: list[Trust], setting: str, calls: float, ops: float) -> list[Bar]:
    chosen = [found for found in trusts if found.setting == setting]
    if not chosen:
        return []
    pairs = (
        ("module calls", calls, _sum(chosen, lambda found: found.verified), _sum(chosen, lambda found: found.calls)),
        ("operations", ops, _sum(chosen, lambda found: found.ops_verified), _sum(chosen, lambda found: found.ops)),
    )
    return [
        Bar(
            f"{what} verified, {setting} (at least {least} %)",
            _share(part, whole),
            part >= whole * least / 100,
            share=True,
        )
        for what, least, part, whole in pairs
    ]


def _other_inputs(trusts: list[Trust]) -> list[Bar]:
    found: list[Bar] = []
    for change in dict.fromkeys(other.change for trust in trusts for other in trust.others):
        chosen = [other for trust in trusts for other in trust.others if other.change == change]
        right, wrong = _sum(chosen, lambda other: other.right), _sum(chosen, lambda other: len(other.wrong))
        failed = _sum(chosen, lambda other: len(other.failed) + other.needless.total())
        refused = _sum(chosen, lambda other: other.refused.total())
        objects = _sum(chosen, lambda other: other.objects.total())
        whole = right + wrong + failed
        if whole:
            figure = f"{_share(right, whole)}; rightly refused: {refused}, on objects: {objects}"
            what = f"graphs without value guards right for {change}"
            found.append(Bar(f"{what} (at least 99.5 %)", figure, right >= 0.995 * whole, share=True))
            found.append(Bar(f"{what}, silently wrong", f"{wrong} of {whole:,}", wrong == 0))
    return found


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} % ({part:,} of {whole:,})" if whole else "none"


def _sum(things: Iterable[Trust] | Iterable[Others], count: Callable[..., int]) -> int:
    return sum(count(thing) for thing in things)


# Telling -----------------------------------------------------------------------------------------


def tell(console: Console, trusts: list[Trust], *, whole: bool) -> bool:
    """Print rates, reasons and bars; are all bars met? Percentages are judged over the ``whole`` zoo only."""
    console.print()
    console.print(_table(trusts))
    _tell_reasons(console, "not verified", _not_verified(trusts))
    _tell_reasons(console, "graphs that refuse other inputs", _refusals(trusts))
    for found in trusts:
        if found.stopped is not None:
            console.print(f"{found.name} itself raises, {found.setting}: {found.stopped[:120]}", markup=False)
    console.print()
    found = bars(trusts)
    for bar in found:
        word = "      " if bar.share and not whole else "met   " if bar.met else "MISSED"
        console.print(f"{word}  {bar.what}: {bar.figure}", markup=False)
    return all(bar.met for bar in found if whole or not bar.share)


def _table(trusts: list[Trust]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("group", "setting", "runs", "calls", "verified", "%", "ops", "verified", "%"):
        table.add_column(name, justify="left" if name in ("group", "setting") else "right", no_wrap=True)
    groups: dict[tuple[str, str], list[Trust]] = {}
    for found in trusts:
        groups.setdefault((found.name.partition("/")[0], found.setting), []).append(found)
        if not found.name.startswith("trap/"):
            groups.setdefault(("the zoo", found.setting), []).append(found)
    for (group, setting), members in sorted(groups.items(), key=lambda pair: (pair[0][0] == "the zoo", pair[0])):
        numbers: list[str] = [str(len(members))]
        for verified, count in (("verified", "calls"), ("ops_verified", "ops")):
            part, whole = (sum(getattr(found, name) for found in members) for name in (verified, count))
            numbers += [f"{whole:,}", f"{part:,}", f"{100 * part / whole:.2f}" if whole else ""]
        table.add_row(group, setting, *numbers, style="bold" if group == "the zoo" else None)
    return table


def _not_verified(trusts: list[Trust]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for trust in trusts:
        for reason, count in trust.reasons.items():
            found.setdefault(reason, Counter())[trust.name] += count
    return found


def _refusals(trusts: list[Trust]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for trust in trusts:
        for other in trust.others:
            kinds = (("rightly", other.refused), ("needlessly", other.needless), ("works on an object", other.objects))
            for kind, reasons in kinds:
                for reason, count in reasons.items():
                    found.setdefault(f"{kind}: {reason}", Counter())[trust.name] += count
    return found


def _tell_reasons(console: Console, title: str, reasons: dict[str, Counter[str]]) -> None:
    console.print(f"\n{title}: {sum(counts.total() for counts in reasons.values())}", style="bold")
    ordered = sorted(reasons.items(), key=lambda item: -item[1].total())
    for reason, counts in ordered[:REASONS_SHOWN]:
        names = list(counts)
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        console.print(f"{counts.total():5}  {reason[:170]}  [{', '.join(names[:2])}{more}]", markup=False)
    if len(ordered) > REASONS_SHOWN:
        rest = sum(counts.total() for _, counts in ordered[REASONS_SHOWN:])
        console.print(f"{rest:5}  for {len(ordered) - REASONS_SHOWN} other reasons", markup=False)


def summary(trusts: list[Trust]) -> str:
    """A table of the bars for the README."""
    rows = [f"| {bar.what} | {bar.figure} | {'yes' if bar.met else 'no'} |" for bar in bars(trusts)]
    return "\n".join(["| bar | measured | met |", "|---|---|---|", *rows])
