"""vllm-project/speculators#765: parameters held in bfloat16, the norm weights never move away from 1.0.

A draft head whose projection is taken from the frozen verifier; only its norms are trained.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 300
HISTORY: list[float] = []
BATCH, HIDDEN, VOCAB = 48, 32, 40


class RmsNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        return (x * self.weight.float()).to(torch.bfloat16)


class DraftHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(HIDDEN)
        self.fc = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.norm = RmsNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.fc.requires_grad_(False)
        self.lm_head.requires_grad_(False)

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.fc(self.input_layernorm(hidden))
            return self.lm_head(self.norm(h)).float()


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(61)
    HISTORY.clear()
    draft, verifier = DraftHead(), DraftHead()
    verifier.fc.load_state_dict(draft.fc.state_dict())
    verifier.lm_head.weight.mul_(6.0)
    draft.lm_head.load_state_dict(verifier.lm_head.state_dict())
    with torch.no_grad():
        verifier.input_layernorm.weight.uniform_(0.75, 1.25)
        verifier.norm.weight.uniform_(0.75, 1.25)
    if bad:
        draft = draft.to(torch.bfloat16)
    trainable = [p for p in draft.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-3, weight_decay=0.0)

    def step(i: int) -> None:
        hidden = torch.randn(BATCH, HIDDEN)
        with torch.no_grad():
            target = verifier(hidden).softmax(dim=-1)
        log_probs = draft(hidden).log_softmax(dim=-1)
        loss = nn.functional.kl_div(log_probs, target, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return draft, optimizer, step
