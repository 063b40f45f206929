"""Note what arrives, in a backward, at the log-probabilities of what was picked, and what meets a mean too late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.loss.loss_graph import (
    PASSED,
    behind_views,
    elements_of,
    ends_of,
    name_of,
    read_function,
    scalar_of,
    signed,
)
from fxdebug.features.training.loss.loss_parts import action_of, is_of_labels, log_probability, parts_of, ratio_in
from fxdebug.features.training.loss.loss_terms import first_of, inputs_of

MOST = 300  # nodes of a loss
FEWEST, FEWEST_LOOKS = 8, 3
DEPTH = 8
NEARLY_ALL = 0.95
SUNK = 0.3  # of the probability at first
LEAST = 0.1  # of what was picked, on either side
_PICKS = frozenset("Gather Index NllLoss NllLoss2D Select".split())
_REDUCED = frozenset("Mean Sum".split())


@dataclass
class Arrived:
    """The gradient that arrived at picked log-probabilities in one backward.

    ``is_nothing``: all of it is 0. Of classes ``share`` is that of the examples whose right one becomes less likely,
    ``picked`` the mean probability of the right one; ``apart``: those examples are all the ones where it is low.
    """

    is_nothing: bool
    share: float | None = None
    picked: float = 0.0
    apart: bool = False


class Arrivals:
    """The gradients that arrived at the picked log-probabilities of a training's losses, at some looks."""

    def __init__(self) -> None:
        self._looks = 0
        self._is_rewarded = False  # by numbers that do not learn
        self._seen: list[list[Arrived]] = []
        self._now: list[Arrived] = []
        self._late: list[tuple[str, float, float]] = []

    def look(self, root: Tensor, outputs: Sequence[Tensor]) -> None:
        """Look at one loss, whose backward is about to begin."""
        if self._now:
            self._seen.append(self._now)
        self._now = []
        self._looks += 1
        ends = ends_of(outputs)
        late = None
        nodes = list(_walk(root.grad_fn, ends))
        parts = [one.node for one in parts_of(root.grad_fn, ends)]
        actions = [action for one in parts if (action := action_of(one)) is not None]
        is_ratio = any(ratio_in(one) is not None for one in parts)
        self._is_rewarded = self._is_rewarded or is_ratio or any(one.weights is not None for one in actions)
        takers = _takers(nodes)
        for node in nodes:
            with untracked():
                late = late or weighed_late(node)
            if name_of(node) not in (*_PICKS, "Sub", "Log") or elements_of(node) < FEWEST:
                continue
            if log_probability(node) or _inner_softmax(node) is not None:
                node.register_prehook(self._noting(node, _is_weight(node, takers), is_ratio or not is_of_labels(node)))
        self._late += [] if late is None else [late]

    def _noting(self, node: Any, is_weight: bool, is_drawn: bool) -> Any:
        now = self._now

        def note(gradients: tuple[Tensor | None, ...]) -> None:
            try:
                if gradients and gradients[0] is not None:
                    with untracked():
                        found = arrived_at(node, gradients[0].detach())
                        is_nothing = found.is_nothing and is_drawn
                        now.append(replace(found, is_nothing=is_nothing) if is_weight else Arrived(is_nothing))
            except Exception:  # of a gradient of a kind that is not known: nothing is noted
                now.clear()

        return note

    def signs(self) -> Iterator[Sign]:
        """Yield what was seen at all looks, or at most of them."""
        seen = [*self._seen, *([self._now] if self._now else [])]
        if len(self._late) >= max(FEWEST_LOOKS, NEARLY_ALL * self._looks):
            kind, numbers, means = self._late[-1]
            yield Sign("weighed late", (kind,), (numbers, means))
        if len(seen) < max(FEWEST_LOOKS, NEARLY_ALL * self._looks):
            return
        if all(one.is_nothing for look in seen for one in look):
            yield Sign("no credit", (), (float(len(seen)),))
            return
        picks = [[one for one in look if one.share is not None] for look in seen]
        if self._is_rewarded or not all(picks):
            return
        shares = [fmean([one.share or 0.0 for one in look]) for look in picks]
        first, last = (fmean([one.picked for one in look]) for look in (picks[0], picks[-1]))
        apart = sum(all(one.apart for one in look) for look in picks)
        if min(shares) > NEARLY_ALL and last < SUNK * first:
            yield Sign("hard ones sink", (), (min(shares), first, last))
        elif apart >= max(FEWEST_LOOKS, len(picks) / 2) and shares[0] > LEAST:
            yield Sign("hard ones sink", (), (max(shares), first, last))


def _walk(root: Any, ends: set[Any] | frozenset[Any]) -> Iterator[Any]:
    pending, known = [root], set[Any]()
    while pending and len(known) < MOST:
        node = pending.pop(0)
        if node is None or node in known or node in ends:
            continue
        known.add(node)
        yield node
        pending += inputs_of(node)


def _takers(nodes: Sequence[Any]) -> dict[Any, list[Any]]:
    """Return the operations that take what each node made."""
    found: dict[Any, list[Any]] = {}
    for node in nodes:
        for inner in inputs_of(node):
            found.setdefault(inner, []).append(node)
    return found


def _is_weight(node: Any, takers: dict[Any, list[Any]]) -> bool:
    """Is what a node picked used more than once: as the loss, and as the weight of it?"""
    for _ in range(DEPTH):
        after = takers.get(node, [])
        if len(after) != 1:
            return len(after) > 1
        if name_of(after[0]) not in ("Neg", "ClampMin", "Clamp", *PASSED):
            return False
        node = after[0]
    return False


def arrived_at(node: Any, gradient: Tensor) -> Arrived:
    """Return what a gradient does to what a node picked.

    >>> import torch
    >>> logits = torch.zeros(8, 4, requires_grad=True)
    >>> picked = logits.log_softmax(1).gather(1, torch.zeros(8, 1, dtype=torch.long))
    >>> arrived_at(picked.grad_fn, torch.full((8, 1), 2.0))
    Arrived(is_nothing=False, share=1.0, picked=0.25, apart=False)
    """
    known = probabilities_of(node)
    if not bool(gradient.any()) or known is None or known[0].numel() != gradient.numel():
        return Arrived(not bool(gradient.any()))
    picked, sign = known[0].reshape(-1), known[1]
    ways = gradient.reshape(-1).double() * sign
    sinks, rises = picked[ways > 0], picked[ways < 0]
    both = len(sinks) + len(rises)
    share = len(sinks) / both if both else 0.0
    apart = LEAST < share < 1 - LEAST and bool(sinks.max() < rises.min())
    return Arrived(False, share, round(float(picked.mean()), 6), apart)


def probabilities_of(node: Any) -> tuple[Tensor, float] | None:
    """Return the probabilities that a node picked, and the sign of what it returned; ``None`` of other nodes."""
    name = name_of(node)
    if name == "NllLoss" and elements_of(node) > 1:
        logs, target = node._saved_self.detach(), node._saved_target
        known = target.clamp(0, logs.shape[-1] - 1)
        return logs.gather(-1, known[..., None])[..., 0].double().exp(), -1.0
    inner = _inner_softmax(node)
    if inner is None:
        return None
    picked = inner._saved_result.detach().gather(signed(node._saved_dim), node._saved_index).double()
    return (picked.exp() if name_of(inner) == "LogSoftmax" else picked), 1.0


def _inner_softmax(node: Any) -> Any:
    """Return the softmax, or its logarithm, of which classes are gathered."""
    inner = inputs_of(node)[0] if name_of(node) == "Gather" and inputs_of(node) else None
    return inner if name_of(inner) in ("LogSoftmax", "Softmax") else None


def weighed_late(node: Any) -> tuple[str, float, float] | None:
    """Return the loss of which only the mean meets numbers for each example: what, how many numbers, how many losses.

    >>> import torch
    >>> x, w = torch.randn(8, 3, requires_grad=True), torch.rand(8)
    >>> y = torch.zeros(8, dtype=torch.long)
    >>> of = torch.nn.functional.cross_entropy
    >>> weighed_late((of(x, y) * w).grad_fn), weighed_late((of(x, y, reduction="none") * w).grad_fn)
    (('cross_entropy', 8.0, 8.0), None)
    """
    inputs = inputs_of(node)
    if name_of(node) != "Mul" or len(inputs) != 1 or elements_of(inputs[0]) != 1 or elements_of(node) < FEWEST:
        return None
    other = getattr(node, "_saved_other", None)
    other = getattr(node, "_saved_self", None) if other is None else other
    if not isinstance(other, Tensor) or other.numel() < FEWEST or bool((other == other.reshape(-1)[0]).all()):
        return None
    inner = inputs[0]
    for _ in range(DEPTH):
        is_scaled = name_of(inner) in ("Mul", "Div") and len(inputs_of(inner)) == 1 and elements_of(inner) == 1
        if not (name_of(inner) in ("Neg", *PASSED) or is_scaled):
            break
        inner = first_of(inner)
    found = read_function(inner)
    if found is not None:
        target = found.target
        count = 0 if target is None else target.numel()
        rows = count if target is None or not target.dim() else len(target)
        kind = found.kind
    elif name_of(inner) in _REDUCED and inputs_of(inner):
        made = first_of(inner)
        count = elements_of(inputs_of(inner)[0])
        sizes = inputs_of(inner)[0]._input_metadata[0].shape
        rows = int(sizes[0]) if len(sizes) else 0
        is_pick = log_probability(made) != 0
        read = read_function(made)
        kind = "log_prob" if is_pick else read.kind if read is not None else _written(made)
    else:
        return None
    return (kind, float(other.numel()), float(count)) if kind and count > 1 and other.numel() in (count, rows) else None


def _written(node: Any) -> str:
    """Return a loss of each example that was written out, as far as its last operation tells."""
    node = behind_views(node)
    if name_of(node) == "Pow" and scalar_of(node._saved_exponent) == 2 and name_of(first_of(node)) == "Sub":
        return "mse_loss"
    return "l1_loss" if name_of(node) == "Abs" and name_of(first_of(node)) == "Sub" else ""
