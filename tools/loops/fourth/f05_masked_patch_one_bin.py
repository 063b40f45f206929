"""lucidrains/vit-pytorch#97: masked-patch targets are all one and the same bin, so the loss drops to nothing.

The pixels were already normalised to [0, 1], but the discretiser divides by 256 once more.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, PATCHES, PIXELS, BINS = 32, 9, 16, 8


class MaskedPatchModel(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.to_tokens = nn.Linear(PIXELS, dim)
        self.mask_token = nn.Parameter(torch.zeros(dim))
        self.positions = nn.Parameter(0.02 * torch.randn(PATCHES, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.transformer = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.to_bins = nn.Linear(dim, BINS)

    def forward(self, patches: Tensor, masked: Tensor) -> Tensor:
        tokens = self.to_tokens(patches)
        tokens = torch.where(masked[..., None], self.mask_token.expand_as(tokens), tokens)
        return self.to_bins(self.transformer(tokens + self.positions))


def images() -> Tensor:
    """Smooth ramps: every patch has a mean that its neighbours give away."""
    low, slope = torch.rand(BATCH, 1), torch.rand(BATCH, 1) - 0.5
    means = (low + slope * torch.linspace(-1, 1, PATCHES)).clamp(0.02, 0.98)
    return (means[..., None] + 0.02 * torch.randn(BATCH, PATCHES, PIXELS)).clamp(0, 1)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(8)
    HISTORY.clear()
    model = MaskedPatchModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    max_pixel_value = 256.0 if bad else 1.0
    edges = torch.linspace(0, max_pixel_value, BINS + 1)[1:-1]

    def step(i: int) -> None:
        patches = images()
        masked = torch.rand(BATCH, PATCHES) < 0.4
        labels = torch.bucketize(patches.mean(dim=-1), edges)
        logits = model(patches, masked)
        loss = nn.functional.cross_entropy(logits[masked], labels[masked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
