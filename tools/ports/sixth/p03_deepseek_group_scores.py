"""vllm-project/vllm#13474: grouped top-k ranks a group by its best expert instead of the sum of its two best.

With a score correction bias the official DeepSeek-V3 gate sums the top-2 biased scores of each group before choosing
groups.  The port is a functional grouped_topk with stacked expert weights; the reference keeps one module per expert.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIM, FFN, EXPERTS, GROUPS, TOP_GROUPS, TOP_K, SCALE = 20, 16, 9, 3, 2, 3, 1.5


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, DIM) * 0.3)
        self.bias = nn.Parameter(torch.randn(EXPERTS) * 0.2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        original_scores = F.linear(x, self.weight).sigmoid()
        scores = original_scores + self.bias
        grouped = scores.view(x.shape[0], GROUPS, -1)
        group_scores = grouped.topk(2, dim=-1)[0].sum(dim=-1)
        keep = group_scores.topk(TOP_GROUPS, dim=-1)[1]
        mask = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, keep, False)
        scores = grouped.masked_fill(mask.unsqueeze(-1), float("-inf")).flatten(1)
        indices = scores.topk(TOP_K, dim=-1)[1]
        weights = original_scores.gather(1, indices)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights * SCALE, indices


class MLP(nn.Module):
    def __init__(self, width: int = FFN) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(width, DIM) * DIM**-0.5)
        self.w2 = nn.Parameter(torch.randn(DIM, width) * width**-0.5)
        self.w3 = nn.Parameter(torch.randn(width, DIM) * DIM**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, self.w1)) * F.linear(x, self.w3), self.w2)


class MoE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.experts = nn.ModuleList(MLP() for _ in range(EXPERTS))
        self.shared_experts = MLP(2 * FFN)

    def forward(self, x: Tensor) -> Tensor:
        weights, indices = self.gate(x)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            idx, top = torch.where(indices == i)
            if idx.numel() == 0:
                continue
            y[idx] += expert(x[idx]) * weights[idx, top, None]
        return y + self.shared_experts(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ffn_norm = nn.RMSNorm(DIM, eps=1e-6)
        self.ffn = MoE()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.ffn(self.ffn_norm(x))


class DeepseekStack(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.proj_in = nn.Linear(10, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.RMSNorm(DIM, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.proj_in(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def grouped_topk(
    gating_output: Tensor, correction_bias: Tensor, sum_of_two: bool, num_expert_group: int = GROUPS
) -> tuple[Tensor, Tensor]:
    scores = gating_output.sigmoid()
    tokens = scores.shape[0]
    choice = scores + correction_bias.unsqueeze(0)
    per_group = choice.view(tokens, num_expert_group, -1)
    if sum_of_two:
        group_rank = per_group.sort(dim=-1, descending=True).values[..., :2].sum(-1)
    else:
        group_rank = per_group.max(dim=-1).values
    group_idx = torch.topk(group_rank, k=TOP_GROUPS, dim=-1, sorted=False)[1]
    group_mask = torch.zeros_like(group_rank).scatter_(1, group_idx, 1)
    score_mask = group_mask.unsqueeze(-1).expand_as(per_group).reshape(tokens, -1)
    masked = choice.masked_fill(score_mask == 0, float("-inf"))
    topk_ids = torch.topk(masked, k=TOP_K, dim=-1, sorted=False)[1]
    topk_weights = scores.gather(1, topk_ids)
    return topk_weights / topk_weights.sum(dim=-1, keepdim=True) * SCALE, topk_ids


class FusedMoE(nn.Module):
    def __init__(self, sum_of_two: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.e_score_correction_bias = nn.Parameter(torch.empty(EXPERTS))
        self.w13 = nn.Parameter(torch.empty(EXPERTS, 2 * FFN, DIM))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, DIM, FFN))
        self.sum_of_two = sum_of_two

    def forward(self, hidden: Tensor) -> Tensor:
        weights, ids = grouped_topk(self.gate(hidden), self.e_score_correction_bias, self.sum_of_two)
        gate, up = torch.einsum("td,efd->tef", hidden, self.w13).chunk(2, dim=-1)
        every = torch.einsum("tef,edf->ted", F.silu(gate) * up, self.w2)
        dense = torch.zeros(hidden.shape[0], EXPERTS).scatter_(1, ids, weights)
        return torch.einsum("te,ted->td", dense, every)


class DecoderLayer(nn.Module):
    def __init__(self, sum_of_two: bool) -> None:
        super().__init__()
        self.post_attention_layernorm = nn.RMSNorm(DIM, eps=1e-6)
        self.routed = FusedMoE(sum_of_two)
        self.shared_gate_up = nn.Linear(DIM, 4 * FFN, bias=False)
        self.shared_down = nn.Linear(2 * FFN, DIM, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.post_attention_layernorm(hidden)
        gate, up = self.shared_gate_up(normed).chunk(2, dim=-1)
        shared = self.shared_down(F.silu(gate) * up)
        return hidden + (shared + self.routed(normed))


class ServedStack(nn.Module):
    def __init__(self, source: DeepseekStack, sum_of_two: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(10, DIM)
        self.decoder = nn.ModuleList(DecoderLayer(sum_of_two) for _ in source.layers)
        self.final_norm = nn.RMSNorm(DIM, eps=1e-6)
        self.embed.load_state_dict(source.proj_in.state_dict())
        self.final_norm.load_state_dict(source.norm.state_dict())
        with torch.no_grad():
            for src, dst in zip(source.layers, self.decoder, strict=True):
                moe = src.ffn
                dst.post_attention_layernorm.weight.copy_(src.ffn_norm.weight)
                dst.routed.gate.weight.copy_(moe.gate.weight)
                dst.routed.e_score_correction_bias.copy_(moe.gate.bias)
                dst.routed.w13.copy_(torch.stack([torch.cat([e.w1, e.w3]) for e in moe.experts]))
                dst.routed.w2.copy_(torch.stack([e.w2 for e in moe.experts]))
                dst.shared_gate_up.weight.copy_(torch.cat([moe.shared_experts.w1, moe.shared_experts.w3]))
                dst.shared_down.weight.copy_(moe.shared_experts.w2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x)
        for layer in self.decoder:
            hidden = layer(hidden)
        return self.final_norm(hidden)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(103)
    original = DeepseekStack().eval()
    port = ServedStack(original, sum_of_two=fixed).eval()
    return original, port, (torch.randn(24, 10),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
