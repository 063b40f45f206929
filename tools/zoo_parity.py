"""What ``make zoo`` tells of parity with transformers' debugger: a table, the known differences, a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Console
from rich.table import Table

from support.digits import Digits
from support.parity import KNOWN, Report


def tell(console: Console, reports: list[Report]) -> None:
    """Print the table and everything that is not simply equal."""
    console.print()
    console.print(_table(reports))
    console.print(f"\n{LEGEND}\n", markup=False)
    _print_reasons(console, reports)


def verdict(report: Report) -> str:
    """A few words for the line of an entry."""
    if report.unexplained:
        return "DIFFERS"
    if not report.runs:
        who = "neither can" if report.both_stopped else "the reference cannot"
        return f"{who} run it ({_first_line(report.stopped)[:60]})"
    words = "equal" if report.equal == report.runs else "differs as known"
    return f"{words} ({report.runs - report.equal} of {report.runs} runs)" if report.equal < report.runs else words


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


# What a column is called, and what it adds up.
COLUMNS: dict[str, Callable[[Report], int]] = {
    "entries": lambda report: 1,
    "cannot": lambda report: not report.runs,
    "partly": lambda report: bool(report.runs and report.stopped),
    "runs": lambda report: report.runs,
    "equal": lambda report: report.equal,
    "as known": lambda report: report.runs - report.equal if not report.unexplained else 0,
    "unexplained": lambda report: len(report.unexplained),
    "fx_debug": lambda report: report.fx_runs,
    "fx equal": lambda report: report.fx_equal,
    "numbers": lambda report: report.digits.strings,
    "last digit": lambda report: report.digits.last_digit,
    "rounded": lambda report: report.digits.rounding,
    "overflow": lambda report: report.digits.overflow,
}
LEGEND = """\
cannot, partly: entries the reference stops at in every mode, or only with use_repr=False.
runs, equal: of the drop-in, use_repr and pruning on and off; fx_debug: of fx_debug(values="repr", save=...).
numbers: printed statistics made from our own numbers (values="stats"); last digit: off by one in it; rounded: a mean
near zero, of which the reference's rounding leaves no digit; overflow: infinite in the reference's arithmetic only."""


def _table(reports: list[Report]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("group", *COLUMNS):
        table.add_column(name, justify="left" if name == "group" else "right", no_wrap=True)
    groups: dict[str, list[Report]] = {}
    for report in reports:
        groups.setdefault(report.name.partition("/")[0], []).append(report)
    for group, members in groups.items():
        table.add_row(group, *(str(sum(map(count, members))) for count in COLUMNS.values()))
    table.add_row("all", *(str(sum(map(count, reports))) for count in COLUMNS.values()), style="bold")
    return table


def _digits(reports: Iterable[Report]) -> Digits:
    total = Digits()
    for report in reports:
        total.add(report.digits)
    return total


def _print_reasons(console: Console, reports: list[Report]) -> None:
    ran = {report.name for report in reports}
    for name, known in KNOWN.items():
        if name in ran:
            console.print(f"known: {name} ({', '.join(known.where)}): {known.reason}", markup=False)
    for report in reports:
        if report.stopped is not None:
            mode = "" if not report.runs else " with use_repr=False"
            nor = ", nor can we" if report.both_stopped else ""
            console.print(
                f"the reference cannot run {report.name}{mode}{nor}: {_first_line(report.stopped)[:100]}", markup=False
            )


def summary(reports: list[Report]) -> str:
    """One line for the README."""
    numbers = _digits(reports)
    same = numbers.strings - numbers.last_digit - numbers.rounding - numbers.overflow
    runs, equal = sum(report.runs for report in reports), sum(report.equal for report in reports)
    defects = sorted(report.name for report in reports if report.equal < report.runs and not report.unexplained)
    wrong = sorted(report.name for report in reports if report.unexplained)
    neither = sorted(report.name for report in reports if report.both_stopped)
    return (
        f"{len(reports)} models; the reference runs {sum(bool(report.runs) for report in reports)}, the drop-in all"
        + (f" but {', '.join(neither)}" if neither else "")
        + f": {equal:,} "
        f"of {runs:,} runs that both finish wrote the same files, letter for letter and byte for byte"
        + (f"; the others are defects of the reference ({', '.join(defects)})" if defects else "")
        + (f"; NOT EXPLAINED: {', '.join(wrong)}" if wrong else "")
        + f". Of {numbers.strings:,} statistics printed from our own numbers {same:,} are the same text, "
        f"{numbers.last_digit} are off by one in the last digit, {numbers.rounding} are means near zero that differ by "
        f"less than {numbers.widest:.0e} of the largest element, {numbers.overflow} overflow in the reference only."
    )
