"""Operations that are replaced in a run, where a trace counts those of Python's numbers, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.api.run_model import returned_with, run_and_store
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations
from support.same import difference


class Cut(nn.Module):
    """Cuts as many columns as a number says, and adds twice."""

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[1] + 1
        return (x[:, :count] + x) + 1


def returned(stepper: ReplacedOperations) -> list[float]:
    run = run_and_store(Cut(), torch.ones(1, 3), None, values="tensors", stepper=stepper)
    return run.output[0].tolist()  # type: ignore[no-any-return]


def sums() -> list[str]:
    trace = fx_debug(Cut(), torch.ones(1, 3))
    body = trace.call_graphs.bodies[0]  # type: ignore[union-attr]
    named = zip(trace.graphs[body.graph].ops, body.results)  # type: ignore[index]
    return [op.name for op, result in named if op.op == "add" and hasattr(result, "number")]


def test_a_place_is_that_of_its_name_in_the_trace() -> None:
    trace = fx_debug(Cut(), torch.ones(1, 3))
    for name, wanted in zip(sums(), (11.0, 10.0)):
        stepper = ReplacedOperations({(0, name): lambda ran: ran.result * 0 + 10})
        assert returned(stepper.as_in(trace)) == [wanted] * 3 and stepper.made == {(0, name)}


def test_what_is_replaced_before_stays_so_whatever_is_replaced_after_it() -> None:
    trace = fx_debug(Cut(), torch.ones(1, 3))
    first, last = sums()
    before = ReplacedOperations({(0, first): lambda ran: ran.result * 0 + 10}).as_in(trace)
    assert returned(ReplacedOperations({}).as_in(trace).behind(before).as_in(trace)) == [11.0] * 3
    after = ReplacedOperations({(0, last): lambda ran: ran.result * 2})
    assert returned(after.as_in(trace).behind(before)) == [22.0] * 3 and after.made == {(0, last)}


@dataclass
class Held:
    """What a model returns in an object of its own."""

    first: Tensor
    rest: list[Tensor]


class Returns(nn.Module):
    """Returns what a function makes of its input and its buffer."""

    def __init__(self, made: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("own", torch.arange(3.0))
        self._made = made

    def forward(self, x: Tensor) -> Any:
        return self._made(x + 1, self.own)


RETURNED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a tensor": lambda x, own: x * own,
    "one twice, and the input": lambda x, own: [x, x, {"own": own}],
    "an object": lambda x, own: Held(x.t(), [x[0], own.expand(2, 3)]),
    "a conjugate": lambda x, own: torch.complex(x, x * 2).conj(),
    "sparse ones": lambda x, own: (x.to_sparse(), x.to_sparse_csr()),
    "integers and halves": lambda x, own: (x.long(), x.half(), x > 1),
    "nothing": lambda x, own: None,
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_a_run_returns_is_what_it_has_where_all_values_are_kept(name: str) -> None:
    model, x = Returns(RETURNED[name]), torch.ones(2, 3)
    edits = {(0, "add"): lambda ran: ran.result * 2}
    run = run_and_store(model, x, None, values="tensors", stepper=ReplacedOperations(edits))
    kept = [run.tensor(value) for value in run.root.outputs or ()]
    stepper = ReplacedOperations(edits)
    found = returned_with(model, x, None, stepper)
    model.own.add_(1)  # what was returned is a copy
    assert stepper.made == edits.keys() and len(found) == len(kept)
    assert not [each for each in zip(kept, found) if difference(*each)]


def test_what_a_hook_writes_to_after_a_model_returned_it_is_not_told() -> None:
    def writes(module: nn.Module, args: Any, output: Any) -> None:
        output[0].mul_(3)

    model = Returns(lambda x, own: (x, x * 2))
    model.register_forward_hook(writes)
    assert [each is None for each in returned_with(model, torch.ones(2, 3), None, ReplacedOperations({}))] == [
        True, False,
    ]  # fmt: skip
