"""Weights that changed by the product of their own adapter (LoRA), which the second checkpoint has beside them, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import counted
from fxdebug.features.weights.record import WeightChange
from fxdebug.store.tensors.checkpoints import Weights

SAME = 0.99  # cosine of a change and a product: both are the same but for rounding and a factor
DOWN, UP = "lora_A", "lora_B"


def find_merged_adapters(a: Weights, b: Weights, changes: Sequence[WeightChange]) -> Iterator[Finding]:
    """Yield weights to which the product of an adapter was added that stands beside them still: it counts twice.

    Hu et al. 2021, LoRA: the weight is W + s · B A, with B and A apart as long as W is frozen.
    """
    merged: list[tuple[str, float]] = []
    for change in changes:
        module = change.name.removesuffix(".weight").removesuffix(".base_layer")
        if not change.differing or not change.name.endswith(".weight") or len(change.shape_a or ()) != 2:
            continue
        down, up = (_part(b, module, part) for part in (DOWN, UP))
        if down is None or up is None or down.ndim != 2 or up.ndim != 2 or up.shape[1] != down.shape[0]:
            continue
        product, moved = up.double() @ down.double(), b[change.name]().double() - a[change.name]().double()
        sizes = float(product.norm()) * float(moved.norm())
        if product.shape == moved.shape and sizes and float((product * moved).sum()) > SAME * sizes:
            merged.append((change.name, float(moved.norm() / product.norm())))
    if merged:
        name, factor = merged[0]
        others = f", as {counted(len(merged) - 1, 'other weight')}" if len(merged) > 1 else ""
        yield Finding(
            rule="adapter merged",
            severity=WARNING,
            path=name.rpartition(".")[0],
            call=f"{name.rpartition('.')[0]}#0",
            op=name,
            what=f"{name} changed by {factor:.3g} times the product of its own {UP} and {DOWN}{others}, and both are "
            "there still: loaded, the adapter counts twice",
            measured=float(len(merged)),
            threshold=0.0,
            advice="Save before eval() or merge() adds the adapter to its weight, or leave its parts out of the file.",
            others=tuple(other for other, _ in merged[1:]),
        )


def _part(weights: Weights, module: str, part: str) -> Tensor | None:
    """Return one part of the adapter of a module: ``lora_A``, ``lora_A.weight``, ``lora_A.default.weight``."""
    names = [name for name in weights if name == f"{module}.{part}" or name.startswith(f"{module}.{part}.")]
    return weights[names[0]]() if len(names) == 1 else None
