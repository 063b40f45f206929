"""nvidia-cosmos/cosmos-predict2.5#15: LoRA was added before init_weights(), which left lora_A all zero beside lora_B.

With both factors zero each one's gradient is a product with the other, so nothing ever moves.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 180
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, alpha: float = 8.0) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        self.scale = alpha / rank
        nn.init.kaiming_uniform_(self.lora_A.weight, a=5**0.5)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scale * self.lora_B(self.lora_A(x))


class VideoDenoiser(nn.Module):
    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        self.dim = dim
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.output_proj = nn.Linear(dim, dim)

    def init_weights(self) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                if "lora" in name:
                    nn.init.zeros_(module.weight)
                else:
                    nn.init.trunc_normal_(module.weight, std=self.dim**-0.5)
                    nn.init.zeros_(module.bias)

    def add_lora(self) -> None:
        self.requires_grad_(False)
        for name in ("q_proj", "k_proj", "v_proj", "output_proj"):
            setattr(self, name, LoRALinear(getattr(self, name)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attention = F.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return x + self.output_proj(attention)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(11)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(13)
    style = torch.randn(24, 2, generator=generator) @ torch.randn(2, 24, generator=generator) / 5.0
    model = VideoDenoiser()
    if bad:
        model.add_lora()
        model.init_weights()
    else:
        model.init_weights()
        model.add_lora()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)

    def step(i: int) -> None:
        latents = torch.randn(16, 1, 24, generator=generator) + 0.2 * torch.randn(16, 6, 24, generator=generator)
        target = latents.mean(dim=1, keepdim=True) @ style
        loss = F.mse_loss(model(latents) - latents, target.expand_as(latents))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
