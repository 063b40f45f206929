"""Objects that a call is given and changes: ``call.fx`` runs on filled ones, and changes them as the body does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import UsageError
from support.same import difference
from support.watched import Layer, watched


class Cache:
    """Keys of earlier steps, in lists and in an object that is made when it is first needed."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None
        self.steps = 0
        self.history: list[torch.Tensor] = []
        self.inner: Slots | None = None

    def update(self, keys: torch.Tensor) -> torch.Tensor:
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys])
        self.steps += 1
        self.history.append(keys)
        if self.inner is None:
            self.inner = Slots()
        self.inner.add(keys)
        return self.keys


class Slots:
    last: torch.Tensor

    def __init__(self) -> None:
        self.table: dict[str, torch.Tensor] = {}

    def add(self, keys: torch.Tensor) -> None:
        self.last = keys
        self.table[f"step {len(self.table)}"] = keys.relu()


class Attends(Layer):
    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        return x + cache.update(self.l(x)).sum(0)  # type: ignore[no-any-return]


class Passes(Layer):
    """Hands its cache on, and reads what its children left in it."""

    def setup(self) -> None:
        self.first, self.second = Attends(), Attends()

    def forward(self, x: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
        before = 0 if cache.keys is None else cache.keys.shape[0]
        x = self.second(self.first(x, cache), cache)
        assert cache.keys is not None and cache.inner is not None
        return x * (cache.keys.shape[0] - before) + cache.inner.last.sum(0) + cache.history[0].mean(0), cache


class Root(Layer):
    """Makes a cache of its own, too."""

    def setup(self) -> None:
        self.passes, self.attends = Passes(), Attends()

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        own = Cache()
        own.update(x)
        x, same = self.passes(x, cache=cache)
        return self.attends(x, own) + same.steps


class Forgets(Layer):
    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        if cache.inner is not None:
            del cache.inner.last
        cache.history.clear()
        cache.keys, cache.steps = None, 0
        cache.label = "empty"  # type: ignore[attr-defined]
        return self.l(x)  # type: ignore[no-any-return]


class Writes(Layer):
    """Writes into a tensor that the cache holds, as static caches do."""

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        if cache.keys is None:
            cache.keys = torch.zeros(8, 8)
        cache.keys[: x.shape[0]] = self.l(x)
        return cache.keys.sum(0) + x


MODELS = (Attends, Passes, Root, Forgets, Writes)


def filled(steps: int) -> Cache:
    cache = Cache()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        for _ in range(steps):
            cache.update(torch.randn(4, 8))
    return cache


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_every_call_is_verified(kind: type[nn.Module], steps: int) -> None:
    assert watched(lambda: (kind().eval(), (torch.randn(3, 8), filled(steps)))).not_verified() == {}


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_a_graph_runs_on_an_object_like_its_own_and_changes_it(kind: type[nn.Module], steps: int) -> None:
    model = kind().eval()
    with torch.no_grad():
        graph = fx_debug(model, (torch.randn(3, 8), filled(steps))).root.fx
        for x in (torch.randn(3, 8), torch.randn(5, 8)):
            ours, theirs = filled(steps), filled(steps)
            kept = ours.history
            assert difference(graph(x, ours), model(x, theirs)) is None
            assert difference(vars(ours), vars(theirs)) is None
            assert ours.history is kept


def test_a_graph_refuses_an_object_that_is_filled_otherwise() -> None:
    graph = fx_debug(Attends().eval(), (torch.randn(3, 8), filled(2))).root.fx
    for other in (filled(0), filled(3)):
        held = copy.deepcopy(other)
        with pytest.raises(UsageError):
            graph(torch.randn(3, 8), other)
        assert difference(vars(held), vars(other)) is None


def test_a_template_is_not_reused_for_a_call_that_leaves_something_else() -> None:
    class Labels(Layer):
        label = "a"

        def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
            cache.label = self.label[:1]  # type: ignore[attr-defined]
            return self.l(x)  # type: ignore[no-any-return]

    class Both(Layer):
        def setup(self) -> None:
            self.one, self.other = Labels(), Labels()
            self.other.label = "b"

        def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
            return self.other(self.one(x, cache), cache)  # type: ignore[no-any-return]

    model, cache = Both().eval(), filled(1)
    trace = fx_debug(model, (torch.randn(3, 8), cache))
    assert {call.status for call in trace.calls} == {"verified"}
    for path, label in (("one", "a"), ("other", "b")):
        given = filled(1)
        if path == "other":
            given.label = "a"  # type: ignore[attr-defined]
        trace.find(path)[0].fx(torch.randn(3, 8), given)
        assert given.label == label  # type: ignore[attr-defined]


def test_inputs_of_a_graph_are_the_tensors_in_the_object_that_it_uses() -> None:
    class Reads(Layer):
        def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
            cache.steps += 1
            assert cache.keys is not None
            return x + cache.keys.sum(0)

    root = fx_debug(Reads().eval(), (torch.randn(3, 8), filled(3))).root
    assert root.graph is not None
    assert [op.op for op in root.graph.ops].count("placeholder") == 2


class Opaque(Cache):
    """An object that is more than its attributes: it is not known how it changes."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


def test_an_object_that_is_more_than_its_attributes_is_refused() -> None:
    root = fx_debug(Attends().eval(), (torch.randn(3, 8), Opaque())).root
    assert root.status == "verified"
    with pytest.raises(UsageError, match="it works on an Opaque, whose state is not part of the graph"):
        root.fx(torch.randn(3, 8), Opaque())


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self) -> None:
        self.first = torch.ones(8)


class Fills(Layer):
    def forward(self, x: torch.Tensor, slotted: Slotted) -> torch.Tensor:
        slotted.second = self.l(x) * slotted.first
        del slotted.first
        return x + 1


def test_an_object_with_slots() -> None:
    model, x, ours, theirs = Fills().eval(), torch.randn(3, 8), Slotted(), Slotted()
    with torch.no_grad():
        assert torch.equal(fx_debug(model, (x, Slotted())).root.fx(x, ours), model(x, theirs))
    assert torch.equal(ours.second, theirs.second) and not hasattr(ours, "first")


def test_a_language_model_with_a_filled_cache() -> None:
    from transformers import DynamicCache, LlamaConfig, LlamaModel

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaModel(LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=16)).eval()

    def inputs(steps: int = 3) -> dict[str, Any]:
        cache = DynamicCache()
        with torch.no_grad():
            if steps:
                model(torch.arange(2 * steps).view(2, steps), past_key_values=cache, use_cache=True)
        return {"input_ids": torch.tensor([[3], [5]]), "past_key_values": cache, "use_cache": True}

    with torch.no_grad():
        trace = fx_debug(model, inputs())
    assert {call.status for call in trace.calls} == {"verified"}
    ours, theirs = inputs(), inputs()
    with torch.no_grad():
        assert difference(trace.root.fx(**ours), model(**theirs)) is None
    assert difference(ours["past_key_values"], theirs["past_key_values"]) is None
    attention = trace["layers.1.self_attn"]
    assert attention.graph is not None and "DynamicLayer" in str(attention.fx.graph)
    assert "DynamicLayer" not in str(attention.graph.ops) + attention.code  # what people read is the result alone
    with torch.no_grad():
        empty = fx_debug(model, inputs(0))
    assert {call.status for call in empty.calls} == {"verified"} and len(empty.graphs) < len(empty.calls)
    with pytest.raises(UsageError, match="it works on a DynamicCache"):
        empty.root.fx(**inputs(0))
