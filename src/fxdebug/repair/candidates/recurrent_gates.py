"""Try how a recurrent layer is written wrongly, where one model has torch's own and the other one writes it out.

An operation such as ``gru`` cannot be looked into. So it is computed with its gates in every other order, and in other
ways that ports take: where one makes both models return the same, it is the cause, and proven.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fxdebug.comparison.result import ComparisonData, Row, Side
from fxdebug.operators.names import GATES
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Ran, ReplacedOperations
from fxdebug.repair.trials.edits_of_operations import op_of, place_of
from fxdebug.repair.trials.tried_repairs import are_the_same, returns_the_same

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of a layer and direction, in torch's order
_SOME_WEIGHTS: dict[str, Collection[int]] = {
    "weight_hh": (1,), "weight_ih": (0,), "bias_ih": (2,), "bias_hh": (3,), "both biases": (2, 3),
    "weight_hh and bias_hh": (1, 3), "weight_ih and bias_ih": (0, 2),
}  # fmt: skip


def told_of_gates(findings: Sequence[Row], plain: ComparisonData, runs: EditedRuns, budget: float) -> list[Row]:
    """Return the findings, the first about a recurrent operation with the gates that are exchanged.

    Nothing is told where no order of the gates makes both models return the same, where they do so already, or where a
    finding is proven. No run begins after ``budget`` seconds.
    """
    rows, until = list(findings), time.monotonic() + budget
    if any(row.proven for row in rows) or returns_the_same(plain):
        return rows
    for number, row in enumerate(rows):
        sides: tuple[tuple[Literal["a", "b"], Side | None], ...] = (("a", row.a), ("b", row.b))
        for name, side in sides:
            other = row.b if name == "a" else row.a
            place, gates = place_of(side), _gates(side)
            if (
                row.kind not in ("values", "weights")
                or place is None
                or not gates
                or (other is not None and other.op == op_of(side))
            ):
                continue
            for words, edit in _hypotheses(gates):
                if time.monotonic() > until:
                    return rows
                stepper = ReplacedOperations({place: edit})
                found = runs.run(name, stepper)
                if found is not None and stepper.made and are_the_same(found):
                    told = f"{op_of(side)} in {name}; in {'b' if name == 'a' else 'a'} {words}"
                    if row.kind == "weights" and name == "b":
                        told = f"{words} in the weights of {op_of(side)}"
                    proof = f"{op_of(side)} of {name} computed like that: both models return the same"
                    rows[number] = replace(row, because=told).proven_by(proof)
                    return rows
    return rows


def _gates(side: Side | None) -> str:
    """Return the gates of an operation of torch in the order of its weights; empty for other operations."""
    return GATES.get(op_of(side).removesuffix("_cell"), "")


def _hypotheses(gates: str) -> Iterator[tuple[str, Callable[[Ran], Any]]]:
    """Yield ways to write the layer wrongly, in words, with a function that computes the operation in that way."""
    names = "GRU" if len(gates) == 3 else "LSTM"
    if names == "GRU":
        yield "the bias of the new gate n stands outside of the product with the reset gate r", _bias_outside
        yield "the reset gate r multiplies the state before the matrix of the new gate n, not after it", _reset_before
    yield "every step begins with the first state: the state is not passed on", _without_state
    orders = sorted(itertools.permutations(range(len(gates))), key=_moved)
    for order in orders[1:]:
        moved = [gates[at] for at, other in enumerate(order) if at != other]
        if len(moved) == 2:
            words = f"the gates {moved[0]} and {moved[1]} are exchanged"
        else:
            words = f"the gates stand in the order {', '.join(gates[at] for at in order)}, and not {', '.join(gates)}"
        yield words, partial(_reordered, order, range(len(_WEIGHTS)))
    for some, kept in _SOME_WEIGHTS.items():
        for order in orders[1:]:
            moved = [gates[at] for at, other in enumerate(order) if at != other]
            if len(moved) == 2:
                words = f"the gates {moved[0]} and {moved[1]} of {some} are exchanged"
                yield words, partial(_reordered, order, kept)


def _moved(order: Sequence[int]) -> int:
    return sum(at != other for at, other in enumerate(order))


def _reordered(order: Sequence[int], of: Collection[int], ran: Ran) -> Any:
    """Compute an operation with its gates in another order: these are blocks of rows of a layer's weights.

    ``of``: which of these, by their numbers in a layer.
    """

    def change(weights: list[Tensor]) -> list[Tensor]:
        has_biases = any(weight.ndim == 1 for weight in weights)
        numbers = [at % (len(_WEIGHTS) if has_biases else 2) for at in range(len(weights))]
        return [
            torch.cat([weight.chunk(len(order))[at] for at in order]) if number in of else weight
            for number, weight in zip(numbers, weights)
        ]

    return ran.function(*_changed(ran.args, change), **ran.kwargs)


def _changed(args: Sequence[Any], change: Callable[[list[Tensor]], list[Tensor]]) -> list[Any]:
    """Return arguments with the weights among them changed: those in a list, or the last ones of a cell."""
    lists = [at for at, x in enumerate(args) if isinstance(x, (list, tuple)) and len(x) > 1 and _are_weights(x)]
    if lists:
        at = lists[-1]
        return [*args[:at], change(list(args[at])), *args[at + 1 :]]
    own = [at for at, x in enumerate(args) if isinstance(x, torch.nn.Parameter)]
    new = dict(zip(own, change([args[at] for at in own])))
    return [new.get(at, x) for at, x in enumerate(args)]


def _are_weights(things: Sequence[Any]) -> bool:
    return all(isinstance(x, torch.nn.Parameter) for x in things)


def _without_state(ran: Ran) -> Any:
    """Compute a layer each of whose steps begins with the state that the first one is given."""
    along = 1 if ran.args[-1] is True else 0  # batch_first
    parts = [ran.function(part, *ran.args[1:], **ran.kwargs) for part in ran.args[0].split(1, along)]
    return (torch.cat([part[0] for part in parts], along), *parts[-1][1:])


def _bias_outside(ran: Ran) -> Any:
    """Compute a GRU whose second bias of the new gate is added to the first one, outside of the reset's product."""

    def change(weights: list[Tensor]) -> list[Tensor]:
        new = [weight.detach().clone() for weight in weights]
        biases = [weight for weight in new if weight.ndim == 1]
        for given, hidden in zip(biases[::2], biases[1::2]):
            third = len(hidden) // 3
            given[-third:] += hidden[-third:]
            hidden[-third:] = 0
        return new

    return ran.function(*_changed(ran.args, change), **ran.kwargs)


def _reset_before(ran: Ran) -> Any:
    """Compute a GRU of one direction whose reset gate multiplies the state that goes into the new gate's matrix."""
    x, first, weights, has_biases, layers, _, _, both, batch_first = ran.args
    if both:
        return ran.function(*ran.args, **ran.kwargs)
    x = x.transpose(0, 1) if batch_first else x
    last, per_layer = [], len(weights) // layers
    for layer in range(layers):
        w, u, *biases = weights[layer * per_layer : (layer + 1) * per_layer]
        b, c = biases if has_biases else (torch.zeros_like(w[:, 0]), torch.zeros_like(w[:, 0]))
        h, steps = first[layer], []
        for given in F.linear(x, w, b):
            r, z = ((part + F.linear(h, rows, bias)).sigmoid() for part, rows, bias in _thirds(given, u, c)[:2])
            part, rows, bias = _thirds(given, u, c)[2]
            h = z * h + (1 - z) * (part + F.linear(r * h, rows, bias)).tanh()
            steps.append(h)
        x = torch.stack(steps)
        last.append(h)
    return x.transpose(0, 1) if batch_first else x, torch.stack(last)


def _thirds(given: Tensor, weight: Tensor, bias: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    return list(zip(given.chunk(3, -1), weight.chunk(3), bias.chunk(3)))
