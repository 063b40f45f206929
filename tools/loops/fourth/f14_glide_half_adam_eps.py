"""afiaka87/glide-finetune#6: in half precision Adam's default eps of 1e-8 is zero and the weights turn to NaN.

A small text-conditioned denoiser whose parameters are all float16.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
BATCH, PIXELS, WORDS = 64, 16, 6


class TextDenoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.caption = nn.Embedding(WORDS, 16)
        self.inp = nn.Linear(PIXELS, 48)
        self.cond = nn.Linear(16, 48)
        self.mid = nn.Linear(48, 48)
        self.out = nn.Linear(48, PIXELS)

    def forward(self, noisy: Tensor, word: Tensor) -> Tensor:
        h = torch.relu(self.inp(noisy) + self.cond(self.caption(word)))
        return self.out(torch.relu(self.mid(h)))


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(19)
    HISTORY.clear()
    pictures = torch.randn(WORDS, PIXELS)
    model = TextDenoiser().half()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, eps=1e-8 if bad else 1e-4)

    def step(i: int) -> None:
        word = torch.randint(0, WORDS, (BATCH,))
        clean = pictures[word]
        noisy = (clean + 0.7 * torch.randn_like(clean)).half()
        loss = (model(noisy, word).float() - clean).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
