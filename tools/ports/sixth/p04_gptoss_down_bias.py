"""NVIDIA-NeMo/Automodel#2591: grouped experts add the down-projection bias without the routing probability.

The probability is multiplied into the activation before the grouped down projection (which is fine for the weight), but
the bias that the projection adds is then counted in full for each of the chosen experts.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Router(nn.Module):
    def __init__(self, dim: int, num_experts: int, top_k: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, num_experts)
        self.top_k = top_k

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = self.linear(x).topk(self.top_k, dim=-1)
        return values.softmax(dim=-1), indices


class GptOssExperts(nn.Module):
    """Interleaved gate/up columns, clamped swiglu with alpha 1.702, weights stored (expert, in, out)."""

    def __init__(self, dim: int, ffn: int, num_experts: int, limit: float = 7.0) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(num_experts, dim, 2 * ffn) * dim**-0.5)
        self.gate_up_proj_bias = nn.Parameter(torch.randn(num_experts, 2 * ffn) * 0.1)
        self.down_proj = nn.Parameter(torch.randn(num_experts, ffn, dim) * ffn**-0.5)
        self.down_proj_bias = nn.Parameter(torch.randn(num_experts, dim) * 0.2)
        self.limit = limit

    def forward(self, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for expert in range(self.down_proj.shape[0]):
            token, slot = (indices == expert).nonzero(as_tuple=True)
            if token.numel() == 0:
                continue
            hidden = x[token] @ self.gate_up_proj[expert] + self.gate_up_proj_bias[expert]
            gate = hidden[:, ::2].clamp(max=self.limit)
            up = hidden[:, 1::2].clamp(-self.limit, self.limit)
            gated = (up + 1) * gate * torch.sigmoid(1.702 * gate)
            result = gated @ self.down_proj[expert] + self.down_proj_bias[expert]
            out.index_add_(0, token, result * weights[token, slot, None])
        return out


class GptOssBlock(nn.Module):
    def __init__(self, dim: int, ffn: int, num_experts: int, top_k: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.router = Router(dim, num_experts, top_k)
        self.experts = GptOssExperts(dim, ffn, num_experts)

    def forward(self, x: Tensor) -> Tensor:
        flat = self.norm(x).flatten(0, -2)
        weights, indices = self.router(flat)
        return x + self.experts(flat, weights, indices).view_as(x)


class GptOssTrunk(nn.Module):
    def __init__(self, vocab: int, dim: int, ffn: int, num_experts: int, top_k: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(GptOssBlock(dim, ffn, num_experts, top_k) for _ in range(depth))
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.unembedding = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.unembedding(self.norm(x))


class GroupedLinear(nn.Module):
    """Rows are sorted by expert; counts says how many belong to each.  Weights are (out, in), the bias is inside."""

    def __init__(self, num_gemms: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_gemms, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(num_gemms, out_features))

    def forward(self, x: Tensor, counts: list[int]) -> Tensor:
        parts = x.split(counts)
        return torch.cat([F.linear(part, w, b) for part, w, b in zip(parts, self.weight, self.bias, strict=True)])


def quick_geglu(x: Tensor, permuted_probs: Tensor, limit: float = 7.0) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    gate = gate.clamp(max=limit)
    up = up.clamp(min=-limit, max=limit)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1) * permuted_probs


class GroupedExpertsTE(nn.Module):
    def __init__(self, dim: int, ffn: int, num_experts: int, correct_bias: bool) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.gate_up_linear = GroupedLinear(num_experts, dim, 2 * ffn)
        self.down_linear = GroupedLinear(num_experts, ffn, dim)
        self.correct_bias = correct_bias

    def forward(self, x: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
        top_k = indices.shape[1]
        order = indices.flatten().argsort(stable=True)
        expert_of_row = indices.flatten()[order]
        counts = torch.bincount(expert_of_row, minlength=self.num_experts).tolist()
        token_of_row = order // top_k
        permuted_probs = probs.flatten()[order].unsqueeze(-1)
        hidden = self.gate_up_linear(x[token_of_row], counts)
        output = self.down_linear(quick_geglu(hidden, permuted_probs), counts)
        if self.correct_bias:
            output = output + (permuted_probs - 1) * self.down_linear.bias[expert_of_row]
        unpermuted = torch.empty_like(output)
        unpermuted[order] = output
        return unpermuted.view(x.shape[0], top_k, -1).sum(1)


class MoELayer(nn.Module):
    def __init__(self, dim: int, ffn: int, num_experts: int, top_k: int, correct_bias: bool) -> None:
        super().__init__()
        self.pre_norm = nn.RMSNorm(dim, eps=1e-5)
        self.gate = nn.Linear(dim, num_experts)
        self.experts = GroupedExpertsTE(dim, ffn, num_experts, correct_bias)
        self.top_k = top_k

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.pre_norm(x)
        rows = hidden.reshape(-1, hidden.shape[-1])
        logits, indices = torch.topk(self.gate(rows), self.top_k)
        probs = logits.exp() / logits.exp().sum(-1, keepdim=True)
        return x + self.experts(rows, probs, indices).reshape(x.shape)


class AutoTrunk(nn.Module):
    def __init__(self, source: GptOssTrunk, correct_bias: bool) -> None:
        super().__init__()
        vocab, dim = source.embedding.weight.shape
        experts, ffn, _ = source.blocks[0].experts.down_proj.shape
        top_k = source.blocks[0].router.top_k
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(MoELayer(dim, ffn, experts, top_k, correct_bias) for _ in source.blocks)
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.load_from(source)

    @torch.no_grad()
    def load_from(self, source: GptOssTrunk) -> None:
        self.embed_tokens.weight.copy_(source.embedding.weight)
        self.norm.weight.copy_(source.norm.weight)
        self.lm_head.weight.copy_(source.unembedding.weight)
        for block, layer in zip(source.blocks, self.layers, strict=True):
            layer.pre_norm.weight.copy_(block.norm.weight)
            layer.gate.load_state_dict(block.router.linear.state_dict())
            fused = block.experts.gate_up_proj.transpose(1, 2)
            layer.experts.gate_up_linear.weight.copy_(torch.cat([fused[:, ::2], fused[:, 1::2]], dim=1))
            bias = block.experts.gate_up_proj_bias
            layer.experts.gate_up_linear.bias.copy_(torch.cat([bias[:, ::2], bias[:, 1::2]], dim=1))
            layer.experts.down_linear.weight.copy_(block.experts.down_proj.transpose(1, 2))
            layer.experts.down_linear.bias.copy_(block.experts.down_proj_bias)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(104)
    original = GptOssTrunk(vocab=30, dim=16, ffn=12, num_experts=5, top_k=2, depth=2).eval()
    port = AutoTrunk(original, correct_bias=fixed).eval()
    return original, port, (torch.randint(0, 30, (2, 6)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
