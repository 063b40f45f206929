"""Our own statistics against the digits that transformers' debugger prints, number by number."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

import torch

from support.reference import Written

_NUMBER = re.compile(r"(?<=\()(-?\d\.\d+e[+-]\d+|-?\d+\.|nan|-?inf)")


@dataclass
class Digits:
    """How the statistics of a SUMMARY made from our own numbers compare with the reference's printed ones."""

    strings: int = 0
    last_digit: int = 0  # off by one in the last printed digit
    rounding: int = 0  # off by more, within what the reference's own arithmetic rounds away
    overflow: int = 0  # the reference's sum of finite elements is too large for its dtype; ours is not
    unexplained: list[str] = field(default_factory=list)
    widest: float = 0.0  # the largest difference by rounding, as a part of the tensor's largest element

    def add(self, other: Digits) -> None:
        """Count another one in."""
        self.strings += other.strings
        self.last_digit += other.last_digit
        self.rounding += other.rounding
        self.overflow += other.overflow
        self.unexplained += other.unexplained
        self.widest = max(self.widest, other.widest)


def digits(theirs: Written, ours: Written) -> Digits:
    """Compare two SUMMARY files number by number; everything else in them must be equal."""
    found = Digits()
    if ours.error is not None:
        found.unexplained.append(f"raises {type(ours.error).__name__}: {ours.error}")
        return found
    a, b = ([text for name, text in x.trees().items() if "SUMMARY" in name] for x in (theirs, ours))
    if len(a) != len(b):
        found.unexplained.append(f"{len(b)} summaries instead of {len(a)}")
    for one, other in zip(a, b):
        _walk(json.loads(one), json.loads(other), "", found)
    return found


def _walk(a: Any, b: Any, at: str, found: Digits) -> None:
    pending = [(a, b, at)]
    while pending:
        a, b, at = pending.pop()
        if type(a) is not type(b) or (isinstance(a, (dict, list)) and len(a) != len(b)):
            found.unexplained.append(f"{at}: {b!r} instead of {a!r}"[:300])
        elif isinstance(a, dict):
            if list(a) != list(b):
                found.unexplained.append(f"{at}: keys {list(b)} instead of {list(a)}"[:300])
            elif isinstance(a.get("mean"), str) and "dtype" in a:
                _statistics(a, b, at, found)
            else:
                pending.extend((a[key], b[key], f"{at}.{key}") for key in a)
        elif isinstance(a, list):
            pending.extend((x, y, f"{at}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
        elif a != b:
            found.unexplained.append(f"{at}: {b!r} instead of {a!r}"[:300])


def _statistics(a: dict[str, str], b: dict[str, str], at: str, found: Digits) -> None:
    if (a["shape"], a["dtype"]) != (b["shape"], b["dtype"]):
        found.unexplained.append(f"{at}: {b} instead of {a}")
        return
    dtype = torch.finfo(getattr(torch, a["dtype"].removeprefix("torch.")))
    largest = max((abs(x) for x in (_number(a["min"]), _number(a["max"])) if math.isfinite(x)), default=0.0)
    for key in ("mean", "std", "min", "max"):
        found.strings += 1
        if a[key] == b[key]:
            continue
        x, y = _number(a[key]), _number(b[key])
        same_words = _NUMBER.sub("#", a[key]) == _NUMBER.sub("#", b[key])
        if same_words and math.isfinite(y) and not math.isfinite(x) and largest > dtype.max**0.5 / 100:
            found.overflow += 1
        elif not (same_words and math.isfinite(x) and math.isfinite(y)):
            found.unexplained.append(f"{at}.{key}: {b[key]} instead of {a[key]}")
        else:
            unit = 10.0 ** (math.floor(math.log10(max(abs(x), abs(y)))) - 4)
            if abs(x - y) <= 1.01 * unit:
                found.last_digit += 1
            elif abs(x - y) <= dtype.eps * largest:  # a mean near zero, of which rounding left no digit right
                found.rounding += 1
                found.widest = max(found.widest, abs(x - y) / largest)
            else:
                found.unexplained.append(f"{at}.{key}: {b[key]} instead of {a[key]}")


def _number(text: str) -> float:
    match = _NUMBER.search(text)
    return float(match.group(1)) if match else math.nan
