"""facebookresearch/mae#200: the loss is taken on the masked patches alone, what is visible never counts.

Two thirds of the picture are dropped before the encoder; the decoder's visible outputs may be anything.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 260
PATCHES, PIXELS, KEEP = 9, 8, 3
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class MaskedAutoencoder(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.patch_embed = nn.Linear(PIXELS, dim)
        self.pos_embed = nn.Parameter(0.1 * torch.randn(PATCHES, dim))
        self.encoder = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.mask_token = nn.Parameter(torch.zeros(dim))
        self.decoder_pos = nn.Parameter(0.1 * torch.randn(PATCHES, dim))
        self.decoder = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.decoder_pred = nn.Linear(dim, PIXELS)

    def forward(self, patches: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        n = patches.size(0)
        order = noise.argsort(dim=1)
        restore = order.argsort(dim=1)
        x = self.patch_embed(patches) + self.pos_embed
        kept = x.gather(1, order[:, :KEEP, None].expand(-1, -1, x.size(2)))
        latent = self.encoder(kept)
        filled = torch.cat([latent, self.mask_token.expand(n, PATCHES - KEEP, -1)], dim=1)
        filled = filled.gather(1, restore[:, :, None].expand(-1, -1, x.size(2)))
        pred = self.decoder_pred(self.decoder(filled + self.decoder_pos))
        mask = (restore >= KEEP).float()
        per_patch = (pred - patches).pow(2).mean(dim=-1)
        return (per_patch * mask).sum() / mask.sum()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(13)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(14)
    pictures = torch.randn(8, PATCHES, PIXELS, generator=generator)
    model = MaskedAutoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)

    def step(i: int) -> None:
        which = torch.randint(0, 8, (48,), generator=generator)
        patches = pictures[which] + 0.2 * torch.randn(48, PATCHES, PIXELS, generator=generator)
        loss = model(patches, torch.rand(48, PATCHES, generator=generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
