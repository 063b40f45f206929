"""osaurus-ai/vmlx-swift#188: FalconH1RMSNormGated ignores n_groups and normalises over the whole last dimension.

A Mamba-2 mixer with two groups of B / C.  The reference scans step by step; the port computes the same sums in the
quadratic (attention-like) form with cumulative log decays and a depthwise convolution written as shifted products.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

D_MODEL, HEADS, HEAD_DIM, GROUPS, STATE, CONV = 16, 4, 6, 2, 5, 4
INNER = HEADS * HEAD_DIM
CONV_DIM = INNER + 2 * GROUPS * STATE


class GatedRMSNorm(nn.Module):
    def __init__(self, hidden: int, n_groups: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.n_groups = n_groups
        self.variance_epsilon = eps

    def forward(self, hidden: Tensor, gate: Tensor) -> Tensor:
        hidden = hidden * F.silu(gate)
        grouped = hidden.unflatten(-1, (self.n_groups, -1))
        grouped = grouped * torch.rsqrt(grouped.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * grouped.flatten(-2)


class Mamba2Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(D_MODEL, INNER + CONV_DIM + HEADS, bias=False)
        self.conv1d = nn.Conv1d(CONV_DIM, CONV_DIM, CONV, groups=CONV_DIM, padding=CONV - 1)
        self.dt_bias = nn.Parameter(torch.randn(HEADS) * 0.3)
        self.A_log = nn.Parameter(torch.rand(HEADS))
        self.D = nn.Parameter(torch.rand(HEADS))
        self.norm = GatedRMSNorm(INNER, GROUPS)
        self.out_proj = nn.Linear(INNER, D_MODEL, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        batch, length, _ = u.shape
        gate, xbc, dt = self.in_proj(u).split([INNER, CONV_DIM, HEADS], dim=-1)
        xbc = F.silu(self.conv1d(xbc.transpose(1, 2))[..., :length].transpose(1, 2))
        x, b, c = xbc.split([INNER, GROUPS * STATE, GROUPS * STATE], dim=-1)
        x = x.view(batch, length, HEADS, HEAD_DIM)
        b = b.view(batch, length, GROUPS, STATE).repeat_interleave(HEADS // GROUPS, dim=2)
        c = c.view(batch, length, GROUPS, STATE).repeat_interleave(HEADS // GROUPS, dim=2)
        dt = F.softplus(dt + self.dt_bias)
        decay = torch.exp(-dt * self.A_log.exp())
        state = u.new_zeros(batch, HEADS, HEAD_DIM, STATE)
        ys = []
        for t in range(length):
            update = dt[:, t, :, None, None] * x[:, t, :, :, None] * b[:, t, :, None, :]
            state = state * decay[:, t, :, None, None] + update
            ys.append((state * c[:, t, :, None, :]).sum(-1) + self.D[:, None] * x[:, t])
        y = torch.stack(ys, dim=1).view(batch, length, INNER)
        return self.out_proj(self.norm(y, gate))


class HybridBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(D_MODEL, eps=1e-5)
        self.mamba = Mamba2Mixer()
        self.ff_norm = nn.RMSNorm(D_MODEL, eps=1e-5)
        self.ff = nn.Sequential(nn.Linear(D_MODEL, 30), nn.SiLU(), nn.Linear(30, D_MODEL))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mamba(self.input_layernorm(x))
        return x + self.ff(self.ff_norm(x))


class FalconStack(nn.Module):
    def __init__(self, depth: int = 2, vocab: int = 28) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, D_MODEL)
        self.layers = nn.ModuleList(HybridBlock() for _ in range(depth))
        self.final_layernorm = nn.RMSNorm(D_MODEL, eps=1e-5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.final_layernorm(x)


class SwiftRMSNormGated(nn.Module):
    def __init__(self, hidden: int, n_groups: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.n_groups = n_groups
        self.eps = eps

    def forward(self, hidden: Tensor, gate: Tensor) -> Tensor:
        gated = hidden * gate * torch.sigmoid(gate)
        rows = gated.reshape(*gated.shape[:-1], self.n_groups, gated.shape[-1] // self.n_groups)
        return self.weight * F.rms_norm(rows, rows.shape[-1:], eps=self.eps).reshape(gated.shape)


class SwiftMixer(nn.Module):
    def __init__(self, norm_groups: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(D_MODEL, INNER, bias=False)
        self.xbc_proj = nn.Linear(D_MODEL, CONV_DIM, bias=False)
        self.dt_proj = nn.Linear(D_MODEL, HEADS)
        self.taps = nn.Parameter(torch.empty(CONV, CONV_DIM))
        self.conv_bias = nn.Parameter(torch.empty(CONV_DIM))
        self.neg_a = nn.Parameter(torch.empty(HEADS))
        self.skip = nn.Parameter(torch.empty(HEADS))
        self.mixer_norm = SwiftRMSNormGated(INNER, norm_groups, eps=1e-5)
        self.out = nn.Linear(INNER, D_MODEL, bias=False)

    def causal_conv(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        padded = F.pad(x, (0, 0, CONV - 1, 0))
        return sum(padded[:, i : i + length] * self.taps[i] for i in range(CONV)) + self.conv_bias

    def forward(self, u: Tensor) -> Tensor:
        xbc = F.silu(self.causal_conv(self.xbc_proj(u)))
        x, b, c = xbc.tensor_split([INNER, INNER + GROUPS * STATE], dim=-1)
        x = x.unflatten(-1, (GROUPS, HEADS // GROUPS, HEAD_DIM))
        b, c = b.unflatten(-1, (GROUPS, STATE)), c.unflatten(-1, (GROUPS, STATE))
        dt = F.softplus(self.dt_proj(u))
        log_decay = (dt * self.neg_a).cumsum(1).unflatten(-1, (GROUPS, -1))
        dt = dt.unflatten(-1, (GROUPS, -1))
        causal = torch.ones(u.shape[1], u.shape[1], dtype=torch.bool).tril()[None, :, :, None, None]
        segment = (log_decay.unsqueeze(2) - log_decay.unsqueeze(1)).masked_fill(~causal, float("-inf")).exp()
        attention = torch.einsum("btgn,bsgn->btsg", c, b).unsqueeze(-1) * segment
        y = torch.einsum("btsgh,bsgh,bsghp->btghp", attention, dt, x)
        y = y + x * self.skip.view(GROUPS, -1, 1)
        return self.out(self.mixer_norm(y.flatten(2), self.gate_proj(u)))


class SwiftLayer(nn.Module):
    def __init__(self, norm_groups: int) -> None:
        super().__init__()
        self.pre_norm = nn.RMSNorm(D_MODEL, eps=1e-5)
        self.mixer = SwiftMixer(norm_groups)
        self.mlp_norm = nn.RMSNorm(D_MODEL, eps=1e-5)
        self.mlp_in = nn.Linear(D_MODEL, 30)
        self.mlp_out = nn.Linear(30, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.pre_norm(x))
        return x + self.mlp_out(F.silu(self.mlp_in(self.mlp_norm(x))))


class SwiftFalcon(nn.Module):
    def __init__(self, source: FalconStack, norm_groups: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(*source.embed_tokens.weight.shape)
        self.h = nn.ModuleList(SwiftLayer(norm_groups) for _ in source.layers)
        self.norm_f = nn.RMSNorm(D_MODEL, eps=1e-5)
        self.tokens.load_state_dict(source.embed_tokens.state_dict())
        self.norm_f.load_state_dict(source.final_layernorm.state_dict())
        with torch.no_grad():
            for src, dst in zip(source.layers, self.h, strict=True):
                mixer = src.mamba
                gate, xbc, dt = mixer.in_proj.weight.split([INNER, CONV_DIM, HEADS])
                dst.pre_norm.load_state_dict(src.input_layernorm.state_dict())
                dst.mlp_norm.load_state_dict(src.ff_norm.state_dict())
                dst.mlp_in.load_state_dict(src.ff[0].state_dict())
                dst.mlp_out.load_state_dict(src.ff[2].state_dict())
                dst.mixer.gate_proj.weight.copy_(gate)
                dst.mixer.xbc_proj.weight.copy_(xbc)
                dst.mixer.dt_proj.weight.copy_(dt)
                dst.mixer.dt_proj.bias.copy_(mixer.dt_bias)
                dst.mixer.taps.copy_(mixer.conv1d.weight.squeeze(1).T)
                dst.mixer.conv_bias.copy_(mixer.conv1d.bias)
                dst.mixer.neg_a.copy_(-mixer.A_log.exp())
                dst.mixer.skip.copy_(mixer.D)
                dst.mixer.mixer_norm.weight.copy_(mixer.norm.weight)
                dst.mixer.out.weight.copy_(mixer.out_proj.weight)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for layer in self.h:
            x = layer(x)
        return self.norm_f(x)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(110)
    original = FalconStack().eval()
    port = SwiftFalcon(original, norm_groups=GROUPS if fixed else 1).eval()
    return original, port, (torch.randint(0, 28, (2, 11)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
