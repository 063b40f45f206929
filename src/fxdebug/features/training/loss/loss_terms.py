"""The terms of a loss, by its graph: the sign of each, what it reaches, whether it draws answers together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fxdebug.features.training.loss.loss_graph import PASSED, behind_views, elements_of, ends_of, name_of, scalar_of

MOST_TERMS = 32
MOST_STEPS = 200  # nodes on the way to the terms
MOST_REACHED = 5000  # nodes in which weights are looked for
_DISTANCES = frozenset("MseLoss SmoothL1Loss HuberLoss".split())
_WITHIN = frozenset("Div Sigmoid Tanh Softmax Clamp Hardtanh".split())  # of vectors: divided by their norm


@dataclass(frozen=True)
class Term:
    """A term of a loss: the node that made it, and the sign of the factor on it."""

    node: Any
    factor: float

    @property
    def sides(self) -> tuple[Any, ...]:
        """The nodes of two things that learn, where it draws these together; else none."""
        name, inputs = name_of(self.node), inputs_of(self.node)
        if name in _DISTANCES and self.factor > 0:
            found = inputs
        elif name in ("Pow", "Abs") and self.factor > 0 and inputs and name_of(inputs[0]) == "Sub":
            is_square = name == "Abs" or scalar_of(self.node._saved_exponent) == 2
            found = inputs_of(inputs[0]) if is_square else []
        elif name == "Mul" and self.factor < 0 and [name_of(one) for one in inputs] == ["Div", "Div"]:  # a cosine
            found = [inputs_of(one)[0] for one in inputs]
        else:
            found = []
        return tuple([behind_views(one) for one in found]) if len(found) == 2 else ()

    @property
    def attracts(self) -> bool:
        """Does it draw two things together that both learn?"""
        return bool(self.sides)

    @property
    def repels_freely(self) -> bool:
        """Is it how far two things that learn are apart, which no operation keeps within bounds?"""
        sides = self.sides
        if not sides and name_of(self.node) in ("LinalgVectorNorm", "Norm") and name_of(first_of(self.node)) == "Sub":
            sides = tuple([behind_views(one) for one in inputs_of(first_of(self.node))])
        return len(sides) == 2 and not any(name_of(one) in _WITHIN for one in sides)

    @property
    def is_surrogate_upside_down(self) -> bool:
        """Is it the smaller of a ratio times an advantage and the same of the clipped ratio, which is to be raised?"""
        name = {1.0: "Minimum", -1.0: "Maximum"}.get(math.copysign(1.0, self.factor))
        inputs = inputs_of(self.node)
        if name_of(self.node) != name or [name_of(one) for one in inputs] != ["Mul", "Mul"]:
            return False
        factors = [name_of(inner) for one in inputs for inner in inputs_of(one)]
        return factors.count("Clamp") == 1 or "Clip" in factors


def terms_of(root: Tensor, outputs: Sequence[Tensor] = ()) -> list[Term]:
    """Return the terms that a loss adds up, down to what the model returned, ``outputs``.

    >>> import torch
    >>> x, y = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    >>> loss = torch.nn.functional.mse_loss(x, y) - 0.1 * x.exp().mean()
    >>> [(term.factor, term.attracts) for term in terms_of(loss)]
    [(1.0, True), (-1.0, False)]
    """
    found, ends, steps = list[Term](), ends_of(outputs), 0
    pending: list[tuple[Any, float]] = [(root.grad_fn, 1.0)]
    while pending and len(found) < MOST_TERMS and steps < MOST_STEPS:
        steps += 1
        node, factor = pending.pop()
        name, inputs = name_of(node), inputs_of(node)
        if not name:
            found += [Term(node, factor)] if hasattr(node, "variable") else []
        elif name == "Sub" and len(node.next_functions) == 2 and elements_of(node) == 1 and node not in ends:
            first, second = (one for one, _ in node.next_functions)
            pending += [(second, -factor), (first, factor)]
        elif name == "Add" and elements_of(node) == 1 and node not in ends:
            pending += [(one, factor) for one in reversed(inputs)]
        elif node in ends or len(inputs) != 1 or not (sign := _sign(node, name)):
            found.append(Term(node, factor))
        else:
            pending.append((inputs[0], factor * sign))
    return found


def reached_by(term: Term) -> frozenset[int] | None:
    """Return the ids of the weights that a term depends on; ``None`` where its graph is too large to say."""
    pending, known, found = [term.node], set[Any](), set[int]()
    while pending:
        node = pending.pop()
        if node is None or node in known:
            continue
        known.add(node)
        if len(known) > MOST_REACHED:
            return None
        if (variable := getattr(node, "variable", None)) is not None:
            found.add(id(variable))
        pending += [inner for inner, _ in node.next_functions]
    return frozenset(found)


def first_of(node: Any) -> Any:
    """Return the node that made the first thing that an operation takes and that learns, behind views."""
    return behind_views(next(iter(inputs_of(node)), None))


def inputs_of(node: Any) -> list[Any]:
    """Return the nodes that made what an operation takes and that learns."""
    return [] if node is None else [inner for inner, _ in node.next_functions if inner is not None]


def _sign(node: Any, name: str) -> float:
    """Return the sign that an operation on one tensor gives to it; 0 for an operation that does more."""
    if name in ("Neg", "Rsub"):
        return -1.0
    if name in ("Mul", "Div"):
        number = scalar_of(getattr(node, "_saved_other", None))
        return 0.0 if not number else math.copysign(1.0, number)
    return 1.0 if name in PASSED or (name in ("Mean", "Sum", "Add", "Sub") and len(node.next_functions)) else 0.0
