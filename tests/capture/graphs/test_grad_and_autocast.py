"""Grad, inference and autocast blocks of a body are in its graph: the graph runs each operation in the right state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug


def bfloat16() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)


class SwitchesAutocastOff(Layers):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.a(x)
        with torch.autocast("cpu", enabled=False):
            z = self.b(y.float()) @ x[0].float()
        return y, z, self.a(y)


class UsesAnotherDtype(Layers):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.a(x)
        with torch.autocast("cpu", dtype=torch.float16):
            z = self.b(x)
        return y, z, self.a(y)


class InInferenceMode(Layers):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.inference_mode():
            y = self.a(x)
        return y, self.b(y.clone())


class OutOfInferenceMode(Layers):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.a(x)
        with torch.inference_mode(False), torch.enable_grad():
            z = self.b(x.clone()) * 2
        return y, z


class OneAfterTheOther(Layers):
    """Which block is inside which is on no tape: after the second, only the outer one of the third is left."""

    def forward(self, x: torch.Tensor) -> Any:
        with bfloat16():
            y = self.a(x)
        with torch.inference_mode():
            with bfloat16():
                z = self.b(x)
            u = self.b(x)
        with torch.no_grad():
            v = self.a(x)
        return y, z, u, v, self.a(x)


class Around(nn.Module):
    def __init__(self, inner: nn.Module, block: Any) -> None:
        super().__init__()
        self.inner = inner
        self.block = block

    def forward(self, x: torch.Tensor) -> Any:
        with self.block():
            return self.inner(x)


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.requires_grad, tensor.is_inference(), tensor.tolist()


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        (SwitchesAutocastOff, bfloat16),
        (UsesAnotherDtype, bfloat16),
        (InInferenceMode, torch.enable_grad),
        (OutOfInferenceMode, torch.inference_mode),
        (OneAfterTheOther, torch.enable_grad),
    ],
)
def test_a_graph_has_the_blocks_of_its_body(kind: type[Layers], block: Any) -> None:
    model = Around(kind(), block)
    trace = fx_debug(model, torch.randn(2, 8, 8))
    assert [call.status for call in trace.calls] == ["verified"] * len(trace.calls)
    inner = trace.find("inner")[0].fx
    for rows in (2, 5):
        x = torch.randn(rows, 8, 8)
        expected = [facts(tensor) for tensor in model(x)]
        assert [facts(tensor) for tensor in trace.root.fx(x)] == expected
        assert [facts(tensor) for tensor in inner(x)] == expected
    assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")) == (
        True, False, False,
    )  # fmt: skip


BROKEN: list[str] = []


class Breaks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if BROKEN and not isinstance(x, torch._subclasses.FakeTensor):
            raise ValueError(BROKEN[0])
        return x * 2


class BreaksInABlock(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.breaks = Breaks()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with bfloat16(), torch.inference_mode():
            return self.breaks(self.a(x))


def test_where_a_child_raises_inside_a_block_the_block_is_left() -> None:
    graph = fx_debug(BreaksInABlock(), torch.randn(2, 8)).root.fx
    graph(torch.randn(2, 8))
    BROKEN.append("no")
    try:
        with pytest.raises(ValueError, match="no"):
            graph(torch.randn(2, 8))
    finally:
        BROKEN.clear()
    assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")) == (
        True, False, False,
    )  # fmt: skip
