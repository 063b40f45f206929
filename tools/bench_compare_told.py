"""What ``make bench-compare`` tells: a line for each entry, tables, misses and false alarms, bars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

__all__ = ["Bar", "Checked", "as_json", "bars", "line", "page"]


@dataclass
class Checked:
    """One entry in one mode: an answer about a planted fault, or what was found where nothing must be."""

    part: str
    name: str
    mode: str
    answer: Any = None  # faults.judge.Answer
    place: str = ""
    alarms: tuple[str, ...] = ()
    skipped: str = ""
    seconds: float = 0.0

    @property
    def problems(self) -> list[str]:
        """What must not be."""
        wrong = [] if self.answer is None or self.answer.right else [str(self.answer)]
        return [*wrong, *(() if self.skipped else self.alarms)]


@dataclass(frozen=True)
class Bar:
    """What is asked of the bench."""

    what: str
    reached: int
    of: int
    share: float

    @property
    def met(self) -> bool:
        return self.of == 0 or self.reached >= self.share * self.of

    def __str__(self) -> str:
        return f"{'met   ' if self.met else 'MISSED'}  {self.what}: {self.reached} of {self.of}"


MODES = ("statistics", "tensors")
PLACES = {
    "original": "in copies of transformers' models",
    "port": "in ports with other names and nesting",
    "real": "one model of transformers as another",
}


def bars(results: Iterable[Checked]) -> list[Bar]:
    """Every fault named, nothing found in equal pairs."""
    answers = [checked.answer for checked in results if checked.answer is not None]
    quiet = [checked for checked in results if checked.answer is None and not checked.skipped]
    producers = [checked for checked in quiet if checked.mode == "producer"]
    swept = [checked for checked in quiet if checked.part == "sweep"]
    mutants = [checked for checked in quiet if checked.part == "mutants" and checked.mode != "sound"]
    apart = {id(checked) for checked in (*producers, *swept, *mutants)}
    others = [checked for checked in quiet if id(checked) not in apart]
    return [
        Bar("planted faults whose call is named", sum(a.call_right for a in answers), len(answers), 0.95),
        Bar("planted faults whose operation is named", sum(a.op_right for a in answers), len(answers), 0.9),
        Bar("modules changed by rule that are named", _quiet(swept), len(swept), 0.95),
        Bar("mutants whose cause is told", _quiet(mutants), len(mutants), 0.8),
        Bar("mutants of which no wrong cause is told", sum(c.mode != "wrong" for c in mutants), len(mutants), 0.95),
        Bar("pairs and models in which nothing is found", _quiet(others), len(others), 1.0),
        Bar("producers of NaN and infinity that are named", _quiet(producers), len(producers), 1.0),
    ]


def _quiet(results: list[Checked]) -> int:
    return sum(not checked.alarms for checked in results)


def line(found: list[Checked]) -> str:
    """The line of an entry: what it is, and how each mode went."""
    words = [f"{checked.mode}: {_word(checked)}" for checked in found]
    if len(found) > 6:
        counted = [checked for checked in found if not checked.skipped]
        words = [f"{_quiet(counted)} of {len(counted)} right"]
    seconds = sum(checked.seconds for checked in found)
    return f"{found[0].name if found else '':<58} {'; '.join(words)}  {seconds:.1f} s"


def _word(checked: Checked) -> str:
    if checked.skipped:
        return "none"
    if checked.part == "mutants" and checked.mode != "sound":
        return checked.mode
    if checked.part == "sweep" or checked.mode == "producer":
        return "MISSED" if checked.alarms else "right"
    if checked.answer is None:
        return "FALSE ALARM" if checked.alarms else "quiet"
    if not checked.answer.call_right:
        return "MISSED"
    return "right" if checked.answer.op_right else "call right, OPERATION WRONG"


# The page ----------------------------------------------------------------------------------------


def page(results: list[Checked]) -> str:
    """Everything as Markdown, as it stands in the docs."""
    parts = [_faults(results), _silence(results), _wrong(results)]
    met = "\n".join(f"    {bar}" for bar in bars(results) if bar.of)
    return "\n\n".join(part for part in [*parts, met] if part)


def _faults(results: list[Checked]) -> str:
    answered = [checked for checked in results if checked.answer is not None]
    if not answered:
        return ""
    head = "| planted | faults | call, statistics | call, tensors | operation, statistics | operation, tensors |"
    rows = [head, "|---|---:|---:|---:|---:|---:|"]
    groups: list[tuple[str, list[Checked]]] = []
    for place, words in PLACES.items():
        of_place = [checked for checked in answered if checked.place == place]
        models = dict.fromkeys(checked.name.split("/")[0] for checked in of_place)
        if len(models) > 1:
            groups += [(name, [c for c in of_place if c.name.startswith(f"{name}/")]) for name in models]
        groups.append((f"**{words}**", of_place))
    groups.append(("**all**", answered))
    rows += [_counted(words, group) for words, group in groups if group]
    return "\n".join(rows)


def _counted(words: str, group: list[Checked]) -> str:
    cells = [words, str(len({checked.name for checked in group}))]
    for right in ("call_right", "op_right"):
        cells += [str(sum(getattr(c.answer, right) for c in group if c.mode == mode)) for mode in MODES]
    return "| " + " | ".join(cells) + " |"


WORDS = {
    "equal": {
        "statistics": "ports, renamed copies, other dtypes, caches; statistics",
        "tensors": "the same; tensors",
        "saved": "the same; the reference saved",
    },
    "sweep": {
        f"{place}: {sort}": f"{words}: {sort}"
        for place, words in (("ports", "every module of the ports"), ("zoo", "transformers models of the zoo"))
        for sort in ("weight", "bias", "epsilon", "weight, renamed")
    },
    "zoo": {
        "twice": "zoo models run twice",
        "saved": "zoo models, saved against live",
        "sdpa-and-eager": "zoo models, sdpa against eager attention",
    },
    "mutants": {
        "right": "mutants: the cause is told",
        "half": "mutants: a part of it",
        "absent": "mutants: the place alone",
        "wrong": "mutants: another cause",
        "elsewhere": "mutants: another place",
        "equal": "mutants called equal",
        "sound": "mutants without their fault, other names and a healthy rewrite",
    },
    "numbers": {"producer": "planted producers of NaN and infinity named", "healthy": "healthy zoo models, checked"},
}


def _silence(results: list[Checked]) -> str:
    rows = ["| what | number | as it should be | wrong |", "|---|---:|---:|---:|"]
    for part, modes in WORDS.items():
        for mode, words in modes.items():
            found = [checked for checked in results if (checked.part, checked.mode) == (part, mode)]
            found = [checked for checked in found if not checked.skipped]
            if found:
                quiet = _quiet(found)
                rows.append(f"| {words} | {len(found)} | {quiet} | {len(found) - quiet} |")
    return "\n".join(rows) if len(rows) > 2 else ""


def _wrong(results: list[Checked]) -> str:
    """A line for each, with all the modes in which the same came out."""
    modes: dict[tuple[str, str], list[str]] = {}
    for checked in results:
        if checked.answer is not None and not checked.answer.right:
            modes.setdefault((checked.name, _said(checked.answer)), []).append(checked.mode)
        elif checked.alarms and not checked.skipped:
            said = (
                f"{len(checked.alarms)} found, first {checked.alarms[0].partition(', error ')[0].splitlines()[0][:200]}"
            )
            modes.setdefault((checked.name, said), []).append(checked.mode)
    lines = [f"- {name}, {' and '.join(of)}: {said}" for (name, said), of in modes.items()]
    return "Misses and false alarms:\n\n" + "\n".join(lines) if lines else ""


def _said(answer: Any) -> str:
    named = "nothing" if answer.path is None else f"`{answer.path or '(root)'}` `{answer.op}` ({answer.kind})"
    wanted = " or ".join(f"`{path or '(root)'}`" for path in sorted(answer.calls))
    ops = ", ".join(f"`{op}`" for op in sorted(answer.ops) if op != "-")
    return f"named {named}; right is {wanted}, {ops}"


def as_json(thing: Any) -> Any:
    """Data classes and sets for ``json.dumps``."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return asdict(thing)
    return sorted(thing)
