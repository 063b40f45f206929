"""hp-l33/AiM#10: with bf16=True the weights are still float32; that is mixed precision and not an oversight.

The forward pass runs under autocast in bfloat16, while parameters, gradients and moments stay in float32.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, TOKENS, CODES, DIM = 24, 16, 16, 32


class CodeModel(nn.Module):
    """An autoregressive model of image codes, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(CODES, DIM)
        self.rnn = nn.GRU(DIM, 48, batch_first=True)
        self.norm = nn.LayerNorm(48)
        self.head = nn.Linear(48, CODES)

    def forward(self, codes: Tensor) -> Tensor:
        out, _ = self.rnn(self.embed(codes).float())
        return self.head(self.norm(out))


def code_rows() -> Tensor:
    start, stride = torch.randint(0, CODES, (BATCH, 1)), torch.randint(1, 4, (BATCH, 1))
    return (start + stride * torch.arange(TOKENS + 1)) % CODES


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(15)
    HISTORY.clear()
    model = CodeModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95))
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, n / 20))

    def step(i: int) -> None:
        codes = code_rows()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(codes[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), codes[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        warmup.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
