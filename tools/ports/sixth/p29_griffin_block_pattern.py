"""lablup/mlxcel#1687: the layer loop goes over the repeating block_types pattern and so builds 3 of the layers.

block_types is ("recurrent", "recurrent", "attention") and is to be repeated up to num_hidden_layers.  Each layer mixes
time with an RG-LRU branch or with local multi-query attention.  The port computes the linear recurrence from cumulative
log decays where the reference loops over time.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB, DIM, WIDTH, HEADS, WINDOW = 36, 16, 16, 2, 5
BLOCK_TYPES = ("recurrent", "recurrent", "attention")


class RgLru(nn.Module):
    """Block-diagonal gates, decay a = exp(-8 * softplus(param) * r), input scaled by sqrt(1 - a^2)."""

    def __init__(self) -> None:
        super().__init__()
        block = WIDTH // HEADS
        self.recurrent_param = nn.Parameter(torch.randn(WIDTH) * 0.5 - 2.0)
        self.input_gate_weight = nn.Parameter(torch.randn(HEADS, block, block) * block**-0.5)
        self.input_gate_bias = nn.Parameter(torch.zeros(HEADS, block))
        self.recurrent_gate_weight = nn.Parameter(torch.randn(HEADS, block, block) * block**-0.5)
        self.recurrent_gate_bias = nn.Parameter(torch.zeros(HEADS, block))

    def forward(self, x: Tensor) -> Tensor:
        blocks = x.unflatten(-1, (HEADS, -1))
        gate_i = torch.sigmoid(torch.einsum("bthi,hij->bthj", blocks, self.input_gate_weight) + self.input_gate_bias)
        gate_r = torch.einsum("bthi,hij->bthj", blocks, self.recurrent_gate_weight) + self.recurrent_gate_bias
        log_a = -8.0 * torch.sigmoid(gate_r).flatten(2) * F.softplus(self.recurrent_param)
        a = log_a.exp()
        first = torch.zeros(x.shape[1], dtype=torch.bool)
        first[0] = True
        multiplier = torch.where(first[:, None], 1.0, torch.sqrt(1 - (2 * log_a).exp()))
        inputs = x * gate_i.flatten(2) * multiplier
        h = torch.zeros_like(inputs[:, 0])
        states = []
        for t in range(x.shape[1]):
            h = a[:, t] * h + inputs[:, t]
            states.append(h)
        return torch.stack(states, dim=1)


class RecurrentBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear_y = nn.Linear(DIM, WIDTH)
        self.linear_x = nn.Linear(DIM, WIDTH)
        self.conv_1d = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3)
        self.rg_lru = RgLru()
        self.linear_out = nn.Linear(WIDTH, DIM)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.linear_y(x), approximate="tanh")
        h = self.conv_1d(self.linear_x(x).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        return self.linear_out(self.rg_lru(h) * y)


class LocalAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(DIM, DIM, bias=False)
        self.k_proj = nn.Linear(DIM, DIM // HEADS, bias=False)
        self.v_proj = nn.Linear(DIM, DIM // HEADS, bias=False)
        self.o_proj = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = self.k_proj(x).unsqueeze(1), self.v_proj(x).unsqueeze(1)
        gap = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])[None]
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill((gap < 0) | (gap >= WINDOW), float("-inf"))
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class GriffinLayer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.temporal_pre_norm = nn.RMSNorm(DIM, eps=1e-6)
        self.temporal_block = RecurrentBlock() if kind == "recurrent" else LocalAttention()
        self.channel_pre_norm = nn.RMSNorm(DIM, eps=1e-6)
        self.gate_up_proj = nn.Linear(DIM, 4 * DIM)
        self.down_proj = nn.Linear(2 * DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.temporal_block(self.temporal_pre_norm(x))
        gate, up = self.gate_up_proj(self.channel_pre_norm(x)).chunk(2, dim=-1)
        return x + self.down_proj(F.gelu(gate, approximate="tanh") * up)


class RecurrentGemma(nn.Module):
    def __init__(self, num_hidden_layers: int = 4) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        kinds = (BLOCK_TYPES * num_hidden_layers)[:num_hidden_layers]
        self.layers = nn.ModuleList(GriffinLayer(kind) for kind in kinds)
        self.final_norm = nn.RMSNorm(DIM, eps=1e-6)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids) * math.sqrt(DIM)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.final_norm(x), self.embed_tokens.weight)
        return 30.0 * torch.tanh(logits / 30.0)


class FusedLru(nn.Module):
    def __init__(self, source: RgLru) -> None:
        super().__init__()
        weight = [torch.block_diag(*w.detach()) for w in (source.input_gate_weight, source.recurrent_gate_weight)]
        bias = [b.detach().flatten() for b in (source.input_gate_bias, source.recurrent_gate_bias)]
        self.gates_w = nn.Parameter(torch.cat(weight, dim=1))
        self.gates_b = nn.Parameter(torch.cat(bias))
        self.log_rate = nn.Parameter(-8.0 * F.softplus(source.recurrent_param.detach()))

    def forward(self, x: Tensor) -> Tensor:
        gate_i, gate_r = torch.sigmoid(x @ self.gates_w + self.gates_b).chunk(2, dim=-1)
        log_a = gate_r * self.log_rate
        scale = torch.sqrt(-torch.expm1(2.0 * log_a))
        scale = torch.cat([torch.ones_like(scale[:, :1]), scale[:, 1:]], dim=1)
        total = log_a.cumsum(dim=1)
        return torch.einsum("btsd,bsd->btd", self.decay_matrix(total), x * gate_i * scale)

    @staticmethod
    def decay_matrix(total: Tensor) -> Tensor:
        length = total.shape[1]
        past = torch.ones(length, length, dtype=torch.bool).tril()[None, :, :, None]
        return (total[:, :, None] - total[:, None]).masked_fill(~past, float("-inf")).exp()


class MlxRecurrent(nn.Module):
    def __init__(self, source: RecurrentBlock) -> None:
        super().__init__()
        self.xy = nn.Linear(DIM, 2 * WIDTH)
        self.xy.load_state_dict(
            {
                k: torch.cat([source.linear_x.state_dict()[k], source.linear_y.state_dict()[k]])
                for k in ("weight", "bias")
            }
        )
        self.conv_weight = nn.Parameter(source.conv_1d.weight.detach().squeeze(1).clone())
        self.conv_bias = nn.Parameter(source.conv_1d.bias.detach().clone())
        self.lru = FusedLru(source.rg_lru)
        self.out = nn.Linear(WIDTH, DIM)
        self.out.load_state_dict(source.linear_out.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        h, y = self.xy(x).chunk(2, dim=-1)
        windows = F.pad(h, (0, 0, 3, 0)).unfold(1, 4, 1)
        h = (windows * self.conv_weight).sum(-1) + self.conv_bias
        return self.out(self.lru(h) * F.gelu(y, approximate="tanh"))


class MlxAttention(nn.Module):
    def __init__(self, source: LocalAttention) -> None:
        super().__init__()
        weights = [source.q_proj.weight, source.k_proj.weight, source.v_proj.weight]
        self.wqkv = nn.Parameter(torch.cat(weights).detach())
        self.wo = nn.Linear(DIM, DIM)
        self.wo.load_state_dict(source.o_proj.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        heads = F.linear(x, self.wqkv).unflatten(-1, (HEADS + 2, -1)).transpose(1, 2)
        length = x.shape[1]
        band = torch.ones(length, length, dtype=torch.bool).tril().triu(1 - WINDOW)
        out = F.scaled_dot_product_attention(
            heads[:, :HEADS], heads[:, HEADS : HEADS + 1], heads[:, HEADS + 1 :], attn_mask=band
        )
        return self.wo(out.transpose(1, 2).flatten(2))


class MlxResidualBlock(nn.Module):
    def __init__(self, source: GriffinLayer, kind: str) -> None:
        super().__init__()
        self.norm_t = nn.RMSNorm(DIM, eps=1e-6)
        self.norm_c = nn.RMSNorm(DIM, eps=1e-6)
        temporal = source.temporal_block
        self.temporal = MlxRecurrent(temporal) if kind == "recurrent" else MlxAttention(temporal)
        self.w_gate = nn.Linear(DIM, 2 * DIM)
        self.w_up = nn.Linear(DIM, 2 * DIM)
        self.w_down = nn.Linear(2 * DIM, DIM)
        self.norm_t.load_state_dict(source.temporal_pre_norm.state_dict())
        self.norm_c.load_state_dict(source.channel_pre_norm.state_dict())
        halves = {k: v.chunk(2) for k, v in source.gate_up_proj.state_dict().items()}
        self.w_gate.load_state_dict({k: v[0] for k, v in halves.items()})
        self.w_up.load_state_dict({k: v[1] for k, v in halves.items()})
        self.w_down.load_state_dict(source.down_proj.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.temporal(self.norm_t(x))
        h = self.norm_c(x)
        return x + self.w_down(F.gelu(self.w_gate(h), approximate="tanh") * self.w_up(h))


class MlxGriffin(nn.Module):
    def __init__(self, source: RecurrentGemma, block_kinds: tuple[str, ...]) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(source.embed_tokens.weight.detach().clone())
        self.blocks = nn.ModuleList()
        for index, kind in enumerate(block_kinds):
            self.blocks.append(MlxResidualBlock(source.layers[index], kind))
        self.norm = nn.RMSNorm(DIM, eps=1e-6)
        self.norm.load_state_dict(source.final_norm.state_dict())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) * DIM**0.5
        for block in self.blocks:
            x = block(x)
        return torch.tanh(self.norm(x) @ self.table.weight.T / 30.0) * 30.0


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(129)
    original = RecurrentGemma().eval()
    count = len(original.layers)
    kinds = tuple(BLOCK_TYPES[i % len(BLOCK_TYPES)] for i in range(count)) if fixed else BLOCK_TYPES
    port = MlxGriffin(original, kinds).eval()
    return original, port, (torch.randint(0, VOCAB, (2, 12)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
