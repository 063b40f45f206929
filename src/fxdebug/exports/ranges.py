"""Write names that differ in their numbers as one, with ranges: ``h.0…11.mlp ×12``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fxdebug.query.folding import times

_NUMBER = re.compile(r"\d{1,18}")
_MOST_NAMED = 3  # numbers that are named where some between them are missing


def without_numbers(name: str) -> str:
    """Return a name with ``#`` for its numbers: the same for all that make one range.

    >>> without_numbers("h.3.attn.2")
    'h.#.attn.#'
    """
    return _NUMBER.sub("#", name)


def path_ranges(paths: Iterable[str]) -> list[str]:
    """Return paths that differ in their numbers as one each, with the range of these numbers.

    >>> path_ranges(["h.0.drop", "h.1.drop", "h.2.drop", "head", "0", "3"])
    ['h.0…2.drop ×3', 'head', '0,3 ×2']
    """
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(without_numbers(path), []).append(path)
    return [path_range(group) for group in groups.values()]


def path_range(paths: Sequence[str]) -> str:
    """Return paths that differ in their numbers only as one, and how many they are.

    >>> path_range(["layer.0.norm", "layer.1.norm", "layer.2.norm"]), path_range(["norm"]), path_range(["cell", "cell"])
    ('layer.0…2.norm ×3', 'norm', 'cell ×2')
    """
    return name_range(paths) + times(len(paths))


def name_range(names: Sequence[str]) -> str:
    """Return names that differ in their numbers only as one.

    >>> name_range(["h.0.mlp", "h.1.mlp"]), name_range(["h.00", "h.03", "h.07", "h.11"]), name_range(["norm", "norm"])
    ('h.0…1.mlp', 'h.00…11', 'norm')
    """
    columns = iter([_range(column) for column in zip(*map(_NUMBER.findall, names))])
    return _NUMBER.sub(lambda _: next(columns), names[0])


def _range(numbers: Sequence[str]) -> str:
    """Return numbers as one text: all where a few are missing between them, else the first and the last."""
    written = {int(number): number for number in reversed(numbers)}
    known = sorted(written)
    if len(known) > 1 and (known[-1] - known[0] == len(known) - 1 or len(known) > _MOST_NAMED):
        return f"{written[known[0]]}…{written[known[-1]]}"
    return ",".join(written[number] for number in known)
