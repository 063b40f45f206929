"""A deleted trace frees all it holds at once: model, output, records. No reference cycle is left to the collector."""

from __future__ import annotations

import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.stats.measure import measure


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x).relu()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(4, 2))


def read(trace: Trace) -> Trace:
    assert trace.call_graphs is not None
    return trace


def asked(trace: Trace) -> Trace:
    assert len(trace.ops("relu")) == 2 and trace.find("*.inner") and trace.check() is not None and str(trace)
    return trace


def ours() -> set[str]:
    """Return the types in reference cycles: records, tensors, modules. (Graphs of torch.fx and closures are cycles.)"""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        types = [type(thing) for thing in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    told = [
        kind for kind in types if kind.__module__.startswith("fxdebug") or issubclass(kind, (torch.Tensor, nn.Module))
    ]
    return {kind.__name__ for kind in told}


WAYS = {
    "tree": lambda model, x, folder: fx_debug(model, x, graph=False),
    "graph": lambda model, x, folder: fx_debug(model, x),
    "read": lambda model, x, folder: read(fx_debug(model, x)),
    "samples": lambda model, x, folder: fx_debug(model, x, values="samples"),
    "tensors": lambda model, x, folder: fx_debug(model, x, values="tensors", save=folder),
    "gradients": lambda model, x, folder: fx_debug(model, x.clone().requires_grad_()),
}


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("way", WAYS)
def test_a_deleted_trace_leaves_nothing_to_the_collector(way, tmp_path, no_collector):
    x = torch.randn(3, 4)
    for number in range(3):  # what is learned of the class at first stays
        model = net()
        gc.collect()
        trace = WAYS[way](model, x, tmp_path / str(number))
        alive = [weakref.ref(thing) for thing in (model, model[0].inner.weight, trace.output, trace, trace.calls[1])]
        del trace, model
        if number:
            assert [reference() for reference in alive] == [None] * 5
    assert ours() == set()


def test_a_call_that_outlives_its_trace_still_leads_to_the_other_calls(no_collector):
    x = torch.randn(3, 4)
    for hold in (
        lambda trace: trace.calls[2],
        lambda trace: trace.find("0.inner")[0],
        lambda trace: next(call for call in trace.root.walk() if call.path == "0.inner"),
    ):
        call = hold(fx_debug(net(), x))
        assert (call.path, call.parent.path, call.parent.parent.type) == ("0.inner", "0", "Sequential")
        assert [child.path for child in call.parent.parent.children] == ["0", "1", "2"]
        assert call.status == "verified" and "linear" in call.code
        assert torch.equal(call.fx(x), net()[0].inner(x))
    calls = fx_debug(net(), x).calls
    assert [call.parent is None for call in calls] == [True] + [False] * 5
    children = fx_debug(net(), x).root.children
    assert [child.parent.path for child in children] == ["", "", ""]


def test_a_copy_a_pickle_and_a_loaded_trace_outlive_the_original(tmp_path, no_collector):
    trace = fx_debug(net(), torch.randn(3, 4))
    again, path = pickle.loads(pickle.dumps(trace)), trace.save(tmp_path / "run")
    one = str(trace)
    del trace
    for other in (again, fxdebug.load(path)):
        assert str(other) == one and other.calls[2].parent is other.calls[1] and other.calls[2].status == "verified"


def test_a_deleted_trace_that_was_queried_leaves_nothing_to_the_collector_either(no_collector):
    for number in range(2):  # what is learned of the class at first stays
        model = net()
        gc.collect()
        trace = asked(fx_debug(model, torch.randn(3, 4)))
        alive = [weakref.ref(thing) for thing in (model, trace, trace.calls[1])]
        del trace, model
        if number:
            assert [reference() for reference in alive] == [None] * 3
    assert ours() == set()


def test_a_call_object_made_again_equals_the_first_and_is_the_same_while_it_is_referenced(no_collector):
    trace = fx_debug(net(), torch.randn(3, 4))
    first, copied, notes = trace.calls[1], pickle.loads(pickle.dumps(trace.calls[1])), trace.calls[1].notes
    held = trace.calls[2]
    assert held.parent is first and first.children[0] is held and copied == first and copied.parent is None
    gone = weakref.ref(first)
    del trace, first
    assert gone() is None
    again = held.parent
    assert again == copied and hash(again) == hash(copied) and held.parent is again and again.notes == notes
    assert again.children[0] is held and repr(again) == repr(copied)
    alive = weakref.ref(again)
    del again, held
    assert alive() is None


def test_measuring_creates_no_type_for_each_size(no_collector):
    measure(torch.ones(70_000))
    gc.collect()
    for count in range(70_000, 70_050):
        measure(torch.ones(count))
    assert gc.collect() == 0
