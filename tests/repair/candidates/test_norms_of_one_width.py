"""Weights that are one too small in the norms of one width, beside right ones of the same code, are named."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug


class Norm(nn.Module):
    """Scales by its weight, or by one more."""

    def __init__(self, width: int, offset: float) -> None:
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.randn(width) * 0.2 + 1 - offset), offset

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight + self.offset if self.offset else self.weight, 1e-6)


class Layer(nn.Module):
    def __init__(self, offset: float) -> None:
        super().__init__()
        self.before, self.of_head = Norm(12, offset), Norm(4, 0.0)
        self.up, self.down = nn.Linear(12, 12, bias=False), nn.Linear(12, 12, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.of_head(self.up(self.before(x)).unflatten(-1, (3, 4)))
        return x + self.down(heads.flatten(-2).relu())  # type: ignore[no-any-return]


class Tower(nn.Module):
    def __init__(self, offset: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Layer(offset) for _ in range(2))
        self.last = Norm(12, offset)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)  # type: ignore[no-any-return]


def ported(model: Tower, added: float) -> Tower:
    port = Tower(0.0).eval()
    wide = {name: value + added for name, value in model.state_dict().items() if value.shape == (12,)}
    port.load_state_dict({**model.state_dict(), **wide})
    return port


x = torch.randn(3, 12, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("added", "says"), [(1.0, None), (0.0, "1 less"), (2.0, "1 more")])
def test_a_weight_with_the_wrong_offset_is_told_and_no_norm_of_another_width(added: float, says: str | None) -> None:
    model = Tower(1.0).eval()
    first = fxdebug.compare_models(model, ported(model, added), x).first
    if says is None:
        assert first is None
        return
    assert first is not None and first.proven
    assert f"{says} than a's values need" in first.because
    assert "at 2 more places" in first.repair
