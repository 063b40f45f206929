"""What ``make libs`` tells: a table by library, what is only recorded and why, and the bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from libs_measured import Measured
from running import put_between

PAGE = Path(__file__).resolve().parent.parent / "docs" / "other-libraries.md"
REASONS_SHOWN = 60


@dataclass(frozen=True)
class Bar:
    """A figure and what it must be."""

    what: str
    figure: str
    met: bool


def bars(results: list[Measured]) -> list[Bar]:
    """All bars over the models that ran."""
    ran = [found for found in results if found.stopped is None]
    shares = (
        ("module calls verified", 99.5, "verified", "calls"),
        ("operations verified", 99.0, "ops_verified", "ops"),
        ("graphs that call.fx runs for another batch", 97.0, "batch_accepted", "batch"),
    )
    found = []
    for what, least, part_name, whole_name in shares:
        part, whole = _sum(ran, part_name), _sum(ran, whole_name)
        found.append(Bar(f"{what} (at least {least} %)", _share(part, whole), part >= whole * least / 100))
    outputs = sum(found.output is None and found.failed is None for found in ran)
    tensors, equal = _sum(ran, "tensors"), _sum(ran, "tensors_equal")
    refused = sum(len(found.own_refused) for found in ran)
    wrong = sum(len(found.wrong) for found in ran)
    return [
        Bar("outputs bit-equal", f"{outputs:,} of {len(ran):,}", outputs == len(ran)),
        Bar("recorded tensors equal", f"{equal:,} of {tensors:,}", equal == tensors),
        *found,
        Bar("graphs that refuse the inputs they were made with", f"{refused} of {_sum(ran, 'own'):,}", not refused),
        Bar("wrong graphs", f"{wrong} of {_sum(ran, 'audited'):,} executed", not wrong),
    ]


def tell(results: list[Measured], missing: dict[str, str], *, whole: bool, write: bool) -> int:
    """Print table, reasons and bars; return the exit status."""
    console = Console(width=max(200, Console().width), highlight=False, soft_wrap=True)
    _tell_reasons(console, "calls that are not verified", _reasons(results, "reasons"))
    _tell_reasons(console, "operations in them", _reasons(results, "reasons_ops"))
    own: dict[str, Counter[str]] = {}
    for found in results:
        for reason in found.own_refused:
            own.setdefault(reason, Counter())[found.name] += 1
    _tell_reasons(console, "graphs that refuse the inputs they were made with", own)
    _tell_reasons(console, "graphs that refuse another batch", _reasons(results, "batch_refused"))
    for found in results:
        if found.stopped is not None:
            console.print(f"cannot run here: {found.name}: {found.stopped[:120]}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, (name, _) in enumerate(COLUMNS):
        table.add_column(name, justify="right" if column else "left", no_wrap=True)
    for name, members in _groups(results):
        table.add_row(name, *(tell_column(members) for _, tell_column in COLUMNS[1:]))
    console.print()
    console.print(table)
    console.print()
    held = bars(results)
    for bar in held:
        console.print(f"{'met   ' if bar.met else 'MISSED'}  {bar.what}: {bar.figure}", markup=False)
    if write:
        put_between(PAGE, "measured", _page(results, missing))
    return 0 if all(bar.met for bar in held) or not whole else 1


# The table -----------------------------------------------------------------------------------------

COLUMNS: tuple[tuple[str, Callable[[list[Measured]], str]], ...] = (
    ("library", lambda members: ""),
    ("models", lambda members: f"{len(members)}"),
    ("outputs equal", lambda members: f"{sum(m.output is None and m.failed is None for m in members)}"),
    ("tensors", lambda members: f"{_sum(members, 'tensors'):,}"),
    ("equal", lambda members: f"{_sum(members, 'tensors_equal'):,}"),
    ("calls", lambda members: f"{_sum(members, 'calls'):,}"),
    ("verified %", lambda members: _percent(_sum(members, "verified"), _sum(members, "calls"))),
    ("operations", lambda members: f"{_sum(members, 'ops'):,}"),
    ("verified %", lambda members: _percent(_sum(members, "ops_verified"), _sum(members, "ops"))),
    ("graphs", lambda members: f"{_sum(members, 'own'):,}"),
    ("refused", lambda members: f"{sum(len(m.own_refused) for m in members)}"),
    ("do more", lambda members: f"{_sum(members, 'own_does_more')}"),
    ("other batch", lambda members: f"{_sum(members, 'batch'):,}"),
    ("run %", lambda members: _percent(_sum(members, "batch_accepted"), _sum(members, "batch"))),
    ("wrong", lambda members: f"{sum(len(m.wrong) for m in members)}"),
)


def _groups(results: list[Measured]) -> list[tuple[str, list[Measured]]]:
    groups: dict[str, list[Measured]] = {}
    for found in results:
        if found.stopped is None:
            groups.setdefault(found.library, []).append(found)
    return [*groups.items(), ("all", [found for members in groups.values() for found in members])]


def _page(results: list[Measured], missing: dict[str, str]) -> str:
    """The measured part of the page: the table, the bars, what could not be imported."""
    head = [name for name, _ in COLUMNS]
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(['---', *['---:'] * (len(head) - 1)])}|"]
    for name, members in _groups(results):
        cells = [name, *(tell_column(members) for _, tell_column in COLUMNS[1:])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| bar | measured |  |", "|---|---|---|"]
    lines += [f"| {bar.what} | {bar.figure} | {'met' if bar.met else 'missed'} |" for bar in bars(results)]
    lines += ["", "What is not verified, by operations:", "", "| operations | calls | reason |", "|---:|---:|---|"]
    calls, ops = _by_text(results, "reasons"), _by_text(results, "reasons_ops")
    for text, _ in sorted(calls.items(), key=lambda pair: (-ops[pair[0]], -pair[1], pair[0]))[:20]:
        lines.append(f"| {ops[text]:,} | {calls[text]:,} | {text.replace('|', '/')} |")
    for name, why in sorted(missing.items()):
        lines.append(f"\n{name} cannot be imported beside this torch: {why}")
    return "\n".join(lines)


# Reasons -------------------------------------------------------------------------------------------


def _reasons(results: Iterable[Measured], which: str) -> dict[str, Counter[str]]:
    """Reason → model → count."""
    found: dict[str, Counter[str]] = {}
    for each in results:
        for reason, count in getattr(each, which).items():
            found.setdefault(reason, Counter())[each.name] += count
    return found


def _by_text(results: Iterable[Measured], which: str) -> Counter[str]:
    """Status and reason → count, over all types of modules; what differs from line to line is cut off."""
    total: Counter[str] = Counter()
    for each in results:
        for reason, count in getattr(each, which).items():
            head, _, text = reason.partition(": ")
            total[f"{head.partition(',')[0]}: {text.partition(' (')[0][:120]}"] += count
    return total


def _tell_reasons(console: Console, title: str, found: dict[str, Counter[str]]) -> None:
    if not found:
        return
    console.print(f"\n{title}, by reason:", markup=False)
    ordered = sorted(found.items(), key=lambda pair: -pair[1].total())
    for reason, where in ordered[:REASONS_SHOWN]:
        places = ", ".join(f"{name} {count}" for name, count in where.most_common(3))
        console.print(f"{where.total():6}  {reason[:230]}  [{places}]", markup=False)
    if len(ordered) > REASONS_SHOWN:
        rest = sum(where.total() for _, where in ordered[REASONS_SHOWN:])
        console.print(f"{rest:6}  for {len(ordered) - REASONS_SHOWN} more reasons", markup=False)


def _sum(results: Iterable[Measured], name: str) -> int:
    return sum(getattr(found, name) for found in results)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else ""


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} % ({part:,} of {whole:,})" if whole else "none"
