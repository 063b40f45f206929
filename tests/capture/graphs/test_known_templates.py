"""Bodies are traced once for each outline, however many a class has; nothing looks through all objects for that."""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.capture.graphs import known_templates
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.graphs.verify import GraphVerifier


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Bodies that were traced symbolically, by class."""
    found: Counter[str] = Counter()
    original = GraphVerifier._attempt

    def counted(verifier: GraphVerifier, tape: Any) -> Any:
        found[type(tape.module).__name__] += 1
        return original(verifier, tape)

    monkeypatch.setattr(GraphVerifier, "_attempt", counted)
    forget_templates()
    return found


def statuses(model: nn.Module, *inputs: Any) -> Counter[str]:
    return Counter(call.status for call in fx_debug(model, inputs).calls)


class ConvNormAct(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, stride, 1, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outside)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))


class Dense(nn.Module):
    """A layer that takes all results before it."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, 4, 1)

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.conv(torch.cat(features, 1))


class DenseNet(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Dense(4 * (i + 1)) for i in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class Head(nn.Module):
    """A constant of each instance, and a size of the input."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], self.heads, -1).flatten(1)


class DropPath(nn.Module):
    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return x if not self.training else x * (1 - self.share)


def _convolutions() -> tuple[nn.Module, Tensor]:
    strides, groups = itertools.cycle([1, 1, 1, 2]), [g for g in (1, 2, 4, 8, 16) for _ in range(4)]
    return nn.Sequential(*[ConvNormAct(16, 16, s, g) for g, s in zip(groups, strides)]), torch.randn(1, 16, 40, 40)


NETS = {
    "Conv2d": (_convolutions, 10),  # 2 strides × 5 groups
    "Dense": (lambda: (DenseNet(24), torch.randn(1, 4, 3, 3)), 24),  # each takes another number of tensors
    "Head": (lambda: (nn.Sequential(*[Head(2**i) for i in range(12)]), torch.randn(2, 2**12)), 12),
    "DropPath": (lambda: (nn.Sequential(*[DropPath(i / 20) for i in range(20)]), torch.randn(2)), 20),
}


@pytest.mark.parametrize("name", NETS)
def test_each_kind_of_a_body_is_traced_once_and_matched_ever_after(name: str, traced: Counter[str]) -> None:
    make, kinds = NETS[name]
    model, x = make()
    model.eval()
    assert set(statuses(model, x)) == {"verified"}
    assert traced[name] == kinds
    traced.clear()
    assert set(statuses(model, x)) == {"verified"}
    other, _ = make()
    assert set(statuses(other.eval(), x)) == {"verified"}
    assert traced == {}


def test_a_known_module_is_matched_with_one_template(traced: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = NETS["Head"][0]()
    assert set(statuses(model, x)) == {"verified"}
    tried = []
    original = known_templates._Templates.of
    monkeypatch.setattr(
        known_templates._Templates,
        "of",
        lambda known, tape: (tried.append(tape.module) or template for template in original(known, tape)),
    )
    assert set(statuses(model, x)) == {"verified"}
    assert len(tried) == 13


def test_the_oldest_templates_go_when_there_are_too_many(traced: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_templates, "ENTRIES_PER_CLASS", 12)  # a Head has two operations and questions of sizes
    model, x = NETS["Head"][0]()
    for _ in range(2):
        assert set(statuses(model, x)) == {"verified"}
    assert traced["Head"] > 12
    templates = [each for of_class in known_templates._known.values() for each in of_class.values()]
    assert all(known._entries <= 12 or len(known._oldest) == 1 for known in templates)
    assert all(set(known._last.values()) <= {template for _, template in known._oldest} for known in templates)


# Bodies that cannot be traced ---------------------------------------------------------------------


class Opens(nn.Module):
    """Writes to a file, which its Python must not do a second time."""

    def __init__(self, path: Path, opens: bool) -> None:
        super().__init__()
        self.path, self.opens = path, opens

    def forward(self, x: Tensor) -> Tensor:
        if self.opens:
            with open(self.path, "a") as file:
                file.write(".")
        return x * 2 + x


def test_a_body_that_cannot_be_traced_is_tried_once_for_each_way_it_runs(traced: Counter[str], tmp_path: Path) -> None:
    model, x = Opens(tmp_path / "log", True), torch.ones(2)
    first = fx_debug(model, x)
    assert first.root.status == "recorded"
    again = fx_debug(model, x)
    assert again.root.body == first.root.body
    assert traced == {"Opens": 1}
    other = Opens(tmp_path / "log", True)  # of another module nothing is known
    assert fx_debug(other, x).root.status == "recorded"
    assert traced == {"Opens": 2}
    model.opens = False  # the operations are the same
    assert fx_debug(model, x).root.status == "verified"
    assert traced == {"Opens": 3}


# Nothing looks through all objects ---------------------------------------------------------------


class Lazy:
    """An object that computes its result when it is asked for, and keeps it: those of gpytorch are like that."""

    def __init__(self, layer: nn.Module, x: Tensor) -> None:
        self.layer, self.x, self.known = layer, x, {}

    def result(self) -> Tensor:
        if "result" not in self.known:
            self.known["result"] = self.x @ self.x.T
        return self.known["result"]


class Kernel(nn.Module):
    def forward(self, x: Tensor) -> Lazy:
        return Lazy(self, x * 2)


class Scaled(nn.Module):
    """Each run of its body keeps a tensor in an object that a child has made."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = Kernel()

    def forward(self, x: Tensor) -> Tensor:
        made = self.kernel(x)
        made.known.clear()
        made.known["shape"] = made.x + 1
        return made.result() * 3


class Recursive(nn.Module):
    """Leaves a reference cycle that holds a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        def walk(steps: int) -> Tensor:
            return x if not steps else walk(steps - 1) + 1

        return walk(3)


@pytest.mark.parametrize("kind", [Scaled, Recursive, lambda: DenseNet(6)])
def test_no_garbage_is_collected_and_no_heap_is_searched(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("collect", "get_referrers", "get_objects"):
        monkeypatch.setattr(gc, name, lambda *args, name=name: asked.append(name))
    model, x = nn.Sequential(kind()).eval(), torch.randn(3, 3) if kind is Scaled else torch.randn(1, 4, 3, 3)
    forget_templates()
    for _ in range(2):
        fx_debug(model, x).call_graphs  # noqa: B018
    assert asked == []
