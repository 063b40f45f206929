"""Losses for which one optimizer steps, all of whose terms have one and the same target: a critic told one thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.loss.loss_graph import name_of
from fxdebug.features.training.loss.loss_terms import Term, inputs_of, reached_by

TOLD = frozenset("BinaryCrossEntropy BinaryCrossEntropyWithLogits".split())
MOST_NODES, MOST_TERMS = 200, 8
FEWEST_LOOKS = 3
LEAST_TERMS = 2


class OneTarget:
    """The targets of the terms of the first losses, by the weights that are changed for them."""

    def __init__(self) -> None:
        self._terms: list[tuple[frozenset[int], float | None]] = []  # what each reaches, and its target if it is one
        self._looks: Counter[frozenset[int]] = Counter()
        self._alike: dict[frozenset[int], list[tuple[float, int]]] = {}

    def look(self, root: Tensor) -> None:
        """Note the terms of one loss."""
        pending: list[Any] = [root.grad_fn]
        for _ in range(MOST_NODES):
            if not pending or len(self._terms) >= MOST_TERMS:
                return
            node = pending.pop()
            if name_of(node) in TOLD:
                target = node._saved_target.detach()
                value = float(target.reshape(-1)[0]) if target.numel() else None
                is_one = value is not None and bool((target == value).all())
                self._terms.append((reached_by(Term(node, 1.0)) or frozenset(), value if is_one else None))
            elif name_of(node) in ("Add", "Sub", "Mul", "Div", "Mean", "Neg", "Sum"):
                pending += inputs_of(node)
            else:
                self._terms.append((frozenset(), None))

    def on_step(self, changed: set[int]) -> None:
        """Judge the terms since the last step: those of the weights that are changed now."""
        terms, self._terms = self._terms, []
        if not terms:
            return
        key = frozenset(changed)
        self._looks[key] += 1
        values = {value for _, value in terms}
        is_own = all(reached and reached <= key for reached, _ in terms)
        if len(terms) >= LEAST_TERMS and is_own and len(values) == 1 and (value := next(iter(values))) is not None:
            self._alike.setdefault(key, []).append((value, len(terms)))

    def signs(self, names: Mapping[int, str]) -> list[Sign]:
        """Return the optimizers that are told one thing at every look."""
        found = []
        for key, seen in self._alike.items():
            first = next((names[one] for one in key if one in names), "")
            if first and len(seen) == self._looks[key] >= FEWEST_LOOKS and len({value for value, _ in seen}) == 1:
                found.append(Sign("told alike", (first,), (seen[0][0], float(seen[0][1]))))
        return found
