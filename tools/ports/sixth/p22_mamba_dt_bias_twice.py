"""modular/modular#5748: dt_proj is created with a bias although the selective scan already adds delta_bias.

The reference applies softplus(dt_proj(dt)) with the projection's own bias.  The port passes the bias to its scan kernel
and keeps it on the projection as well.  The scan is a parallel prefix over (decay, update) pairs instead of a loop.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MambaBlock(nn.Module):
    def __init__(self, d_model: int, d_state: int = 4, d_conv: int = 4, expand: int = 2, dt_rank: int = 2) -> None:
        super().__init__()
        self.d_inner = expand * d_model
        self.dt_rank, self.d_state = dt_rank, d_state
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv1d = nn.Conv1d(self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(self.d_inner, dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, self.d_inner)
        a = torch.arange(1, d_state + 1, dtype=torch.float32).repeat(self.d_inner, 1)
        self.A_log = nn.Parameter(a.log())
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)
        target = torch.empty(self.d_inner).uniform_(0.05, 1.0)
        with torch.no_grad():
            self.dt_proj.bias.copy_(target + torch.log(-torch.expm1(-target)))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = F.silu(self.conv1d(u.transpose(1, 2))[:, :, :length].transpose(1, 2))
        dt, b, c = self.x_proj(u).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        delta = F.softplus(self.dt_proj(dt))
        a = -torch.exp(self.A_log)
        h = u.new_zeros(u.shape[0], self.d_inner, self.d_state)
        ys = []
        for t in range(length):
            step = delta[:, t].unsqueeze(-1)
            h = torch.exp(step * a) * h + step * b[:, t].unsqueeze(1) * u[:, t].unsqueeze(-1)
            ys.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
        y = torch.stack(ys, dim=1) + u * self.D
        return self.out_proj(y * F.silu(z))


class ResidualBlock(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(d_model, eps=1e-5)
        self.mixer = MambaBlock(d_model)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mixer(self.norm(x))


class Mamba(nn.Module):
    def __init__(self, vocab: int = 32, d_model: int = 12, depth: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.layers = nn.ModuleList(ResidualBlock(d_model) for _ in range(depth))
        self.norm_f = nn.RMSNorm(d_model, eps=1e-5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm_f(x) @ self.embedding.weight.T


def prefix_scan(decay: Tensor, update: Tensor) -> Tensor:
    """Hillis-Steele scan of h_t = decay_t * h_(t-1) + update_t along dimension 1."""
    stride = 1
    while stride < decay.shape[1]:
        tail = (0, 0) * (decay.dim() - 2)
        earlier_decay = F.pad(decay[:, :-stride], (*tail, stride, 0), value=1.0)
        earlier_update = F.pad(update[:, :-stride], (*tail, stride, 0), value=0.0)
        update = update + decay * earlier_update
        decay = decay * earlier_decay
        stride *= 2
    return update


def selective_scan_fn(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, delta_bias: Tensor
) -> Tensor:
    delta = F.softplus(delta + delta_bias)
    decay = torch.exp(delta.unsqueeze(-1) * a)
    update = (delta * u).unsqueeze(-1) * b.unsqueeze(2)
    states = prefix_scan(decay, update)
    return (states * c.unsqueeze(2)).sum(-1) + d * u


class MambaSSM(nn.Module):
    def __init__(
        self, d_model: int, intermediate: int, d_state: int, d_conv: int, dt_rank: int, dt_has_bias: bool
    ) -> None:
        super().__init__()
        self.sizes = [dt_rank, d_state, d_state]
        self.in_proj_x = nn.Linear(d_model, intermediate, bias=False)
        self.in_proj_z = nn.Linear(d_model, intermediate, bias=False)
        self.conv_weight = nn.Parameter(torch.empty(intermediate, d_conv))
        self.conv_bias = nn.Parameter(torch.empty(intermediate))
        self.x_proj = nn.Linear(intermediate, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(dt_rank, intermediate, bias=dt_has_bias)
        self.dt_bias = nn.Parameter(torch.empty(intermediate))
        self.A = nn.Parameter(torch.empty(intermediate, d_state))
        self.D = nn.Parameter(torch.empty(intermediate))
        self.out_proj = nn.Linear(intermediate, d_model, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        x, z = self.in_proj_x(hidden), self.in_proj_z(hidden)
        width = self.conv_weight.shape[1]
        windows = F.pad(x, (0, 0, width - 1, 0)).unfold(1, width, 1)
        x = F.silu(torch.einsum("bldk,dk->bld", windows, self.conv_weight) + self.conv_bias)
        dt, b, c = torch.split(self.x_proj(x), self.sizes, dim=-1)
        y = selective_scan_fn(x, self.dt_proj(dt), self.A, b, c, self.D, self.dt_bias)
        return self.out_proj(y * F.silu(z))


class MaxMamba(nn.Module):
    def __init__(self, source: Mamba, dt_has_bias: bool) -> None:
        super().__init__()
        first = source.layers[0].mixer
        vocab, d_model = source.embedding.weight.shape
        width = first.conv1d.kernel_size[0]
        self.embeddings = nn.Embedding(vocab, d_model)
        self.norms = nn.ModuleList(nn.RMSNorm(d_model, eps=1e-5) for _ in source.layers)
        self.mixers = nn.ModuleList(
            MambaSSM(d_model, first.d_inner, first.d_state, width, first.dt_rank, dt_has_bias) for _ in source.layers
        )
        self.norm_f = nn.RMSNorm(d_model, eps=1e-5)
        self.lm_head = nn.Linear(d_model, vocab, bias=False)
        self.load_from(source)

    @torch.no_grad()
    def load_from(self, source: Mamba) -> None:
        self.embeddings.weight.copy_(source.embedding.weight)
        self.lm_head.weight.copy_(source.embedding.weight)
        self.norm_f.weight.copy_(source.norm_f.weight)
        for layer, norm, mixer in zip(source.layers, self.norms, self.mixers, strict=True):
            block = layer.mixer
            norm.weight.copy_(layer.norm.weight)
            x_half, z_half = block.in_proj.weight.chunk(2)
            mixer.in_proj_x.weight.copy_(x_half)
            mixer.in_proj_z.weight.copy_(z_half)
            mixer.conv_weight.copy_(block.conv1d.weight.squeeze(1))
            mixer.conv_bias.copy_(block.conv1d.bias)
            mixer.x_proj.weight.copy_(block.x_proj.weight)
            mixer.dt_proj.weight.copy_(block.dt_proj.weight)
            if mixer.dt_proj.bias is not None:
                mixer.dt_proj.bias.copy_(block.dt_proj.bias)
            mixer.dt_bias.copy_(block.dt_proj.bias)
            mixer.A.copy_(-block.A_log.exp())
            mixer.D.copy_(block.D)
            mixer.out_proj.weight.copy_(block.out_proj.weight)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embeddings(ids)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            hidden = hidden + mixer(norm(hidden))
        return self.lm_head(self.norm_f(hidden))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(122)
    original = Mamba().eval()
    with torch.no_grad():
        for layer in original.layers:
            for linear in (layer.mixer.in_proj, layer.mixer.x_proj, layer.mixer.out_proj):
                linear.weight.mul_(2.5)
    port = MaxMamba(original, dt_has_bias=not fixed).eval()
    return original, port, (torch.randint(0, 32, (2, 10)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
