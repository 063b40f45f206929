"""huggingface/transformers#47395: labels are shifted by hand and then once more inside the loss function.

A captioning decoder with image prefix positions; it ends up trained to name the token after the next one.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS: int = 200
HISTORY: list[float] = []
VOCAB, LENGTH, IMAGE_TOKENS, BATCH = 24, 14, 3, 32


def causal_lm_loss(logits: Tensor, labels: Tensor, shift_labels: Tensor | None = None) -> Tensor:
    if shift_labels is None:
        padded = F.pad(labels, (0, 1), value=-100)
        shift_labels = padded[..., 1:].contiguous()
    return F.cross_entropy(logits.reshape(-1, VOCAB), shift_labels.reshape(-1), ignore_index=-100)


class CaptionDecoder(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.visual = nn.Linear(8, dim)
        self.embed = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(IMAGE_TOKENS + LENGTH, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.output = nn.Linear(dim, VOCAB)

    def forward(self, image: Tensor, input_ids: Tensor) -> Tensor:
        x = torch.cat([self.visual(image), self.embed(input_ids)], dim=1) + self.pos
        size = x.shape[1]
        mask = torch.triu(torch.full((size, size), float("-inf")), diagonal=1)
        return self.output(self.decoder(x, mask=mask))


def captions(jump: Tensor) -> tuple[Tensor, Tensor]:
    """Every second token is free; the one after it is fixed by it."""
    free = torch.randint(0, VOCAB, (BATCH, LENGTH // 2))
    ids = torch.stack([free, jump[free]], dim=-1).flatten(1)
    return torch.randn(BATCH, IMAGE_TOKENS, 8), ids


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(31)
    HISTORY.clear()
    jump = torch.randperm(VOCAB)
    model = CaptionDecoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(i: int) -> None:
        image, ids = captions(jump)
        logits = model(image, ids)
        shifted_logits = logits[:, IMAGE_TOKENS:-1, :]
        labels = ids[:, 1:]
        if bad:
            loss = causal_lm_loss(shifted_logits, labels)
        else:
            loss = causal_lm_loss(shifted_logits, labels, shift_labels=labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
