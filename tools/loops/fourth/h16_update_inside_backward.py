"""OpenLMLab/LOMO#14: the weights seem never to be updated; the update happens in hooks during the backward pass.

optimizer.step() does nothing, and after backward no parameter has a gradient left.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, VOCAB, LENGTH, DIM = 32, 20, 8, 32


class Lomo(torch.optim.Optimizer):
    """Fuses the gradient computation with a plain SGD update, so no gradient has to be kept."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, clip: float) -> None:
        super().__init__(params, {"lr": lr, "clip": clip})
        for group in self.param_groups:
            for p in group["params"]:
                p.register_post_accumulate_grad_hook(self._fused_update)

    @torch.no_grad()
    def _fused_update(self, p: nn.Parameter) -> None:
        group = self.param_groups[0]
        p.add_(p.grad.clamp_(-group["clip"], group["clip"]), alpha=-group["lr"])
        p.grad = None

    def step(self, closure: Callable[[], Tensor] | None = None) -> None:
        return None


class TinyLm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.mix = nn.Linear(2 * DIM, 64)
        self.out = nn.Linear(64, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        pair = torch.cat([x[:, 1:], x[:, :-1]], dim=-1)
        return self.out(torch.tanh(self.mix(pair)))


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(16)
    HISTORY.clear()
    table = torch.randint(0, VOCAB, (VOCAB,))
    model = TinyLm()
    optimizer = Lomo(model.parameters(), lr=0.5, clip=0.1)

    def step(i: int) -> None:
        ids = [torch.randint(0, VOCAB, (BATCH,)), torch.randint(0, VOCAB, (BATCH,))]
        for _ in range(LENGTH):
            ids.append(table[ids[-2]])
        tokens = torch.stack(ids, dim=1)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 2:].flatten())
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
