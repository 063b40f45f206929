"""Operations that are replaced in a run, where a trace counts those of Python's numbers, too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.api.run_model import run_and_store
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations


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
