"""Names that two tables of tensors have but for a prefix."""

from __future__ import annotations

from collections.abc import Sequence

TRIED = 6  # names whose beginnings are tried


def prefix_between(one: Sequence[str], other: Sequence[str]) -> str:
    """Return the prefix that names have on one side alone, where it explains most of them.

    >>> prefix_between(["module.a", "module.b"], ["a", "b", "c"]), prefix_between(["a"], ["b"])
    ('module.', '')
    """
    for longer, shorter in ((one, other), (other, one)):
        for short in list(shorter)[:TRIED]:
            for long in longer:
                prefix = long.removesuffix(short)
                if prefix and prefix != long and prefix.endswith("."):
                    same = sum(f"{prefix}{name}" in set(longer) for name in shorter)
                    if 2 * same > min(len(longer), len(shorter)):
                        return prefix
    return ""
