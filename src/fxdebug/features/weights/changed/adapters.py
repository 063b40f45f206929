"""Weights that changed by the product of their own adapter (LoRA), which the second checkpoint has beside them, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import counted
from fxdebug.features.weights.changed.kinds import finding_on
from fxdebug.features.weights.record import WeightChange
from fxdebug.store.tensors.checkpoints import Weights

SAME = 0.99  # cosine of a change and a product: both are the same but for rounding and a factor
DOWN, UP = "lora_A", "lora_B"


def find_merged_adapters(a: Weights, b: Weights, changes: Sequence[WeightChange]) -> Iterator[Finding]:
    """Yield weights to which the product of an adapter was added that stands beside them still: it counts twice.

    Hu et al. 2021, LoRA: the weight is W + s · B A, with B and A apart as long as W is frozen.
    """
    merged: list[tuple[str, float]] = []
    parts = _parts(b)
    for change in changes if parts else ():
        module = change.name.removesuffix(".weight").removesuffix(".base_layer")
        if not change.differing or not change.name.endswith(".weight") or len(change.shape_a or ()) != 2:
            continue
        names = parts.get((module, DOWN), []), parts.get((module, UP), [])
        if len(names[0]) != 1 or len(names[1]) != 1:
            continue
        down, up = (b[name]() for (name,) in names)
        if down.ndim != 2 or up.ndim != 2 or up.shape[1] != down.shape[0]:
            continue
        product, moved = up.double() @ down.double(), b[change.name]().double() - a[change.name]().double()
        sizes = float(product.norm()) * float(moved.norm())
        if product.shape == moved.shape and sizes and float((product * moved).sum()) > SAME * sizes:
            merged.append((change.name, float(moved.norm() / product.norm())))
    if merged:
        name, factor = merged[0]
        others = f", as {counted(len(merged) - 1, 'other weight')}" if len(merged) > 1 else ""
        yield finding_on(
            "adapter merged",
            WARNING,
            [other for other, _ in merged],
            f"{name} changed by {factor:.3g} times the product of its own {UP} and {DOWN}{others}, and both are "
            "there still: loaded, the adapter counts twice",
            "Save before eval() or merge() adds the adapter to its weight, or leave its parts out of the file.",
        )


def _parts(weights: Weights) -> dict[tuple[str, str], list[str]]:
    """Return the names of adapters' parts (``lora_A``, ``lora_A.default.weight``) by their module and which part."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in weights:
        for part in (DOWN, UP):
            module, _, rest = name.partition(f".{part}")
            if name.startswith(f"{module}.{part}") and rest[:1] in ("", "."):
                found.setdefault((module, part), []).append(name)
    return found
