"""NVlabs/MambaVision#118: bias=conv_bias // 2 is always False, so both depthwise convolutions lose their bias.

The checkpoint of a model that does have the biases is then read with strict=False, without a complaint.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mixer(nn.Module):
    """Half of the channels go through a selective scan, the other half through a plain convolution branch."""

    def __init__(self, dim: int, state: int = 4, rank: int = 2) -> None:
        super().__init__()
        half = dim // 2
        self.state, self.rank = state, rank
        self.in_proj = nn.Linear(dim, dim, bias=False)
        self.conv_x = nn.Conv1d(half, half, 3, padding="same", groups=half)
        self.conv_z = nn.Conv1d(half, half, 3, padding="same", groups=half)
        self.x_proj = nn.Linear(half, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, half)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(half, 1))
        self.D = nn.Parameter(torch.ones(half))
        self.out_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x, z = self.in_proj(tokens).transpose(1, 2).chunk(2, dim=1)
        x, z = F.silu(self.conv_x(x)), F.silu(self.conv_z(z))
        dt, b, c = self.x_proj(x.transpose(1, 2)).split([self.rank, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        a = -torch.exp(self.A_log)
        h = x.new_zeros(x.shape[0], x.shape[1], self.state)
        ys = []
        for t in range(x.shape[2]):
            step = dt[:, t, :, None]
            h = torch.exp(step * a) * h + step * b[:, t, None, :] * x[:, :, t, None]
            ys.append((h * c[:, t, None, :]).sum(-1) + self.D * x[:, :, t])
        y = torch.stack(ys, dim=2)
        return self.out_proj(torch.cat([y, z], dim=1).transpose(1, 2))


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.mixer = Mixer(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.gamma = nn.Parameter(torch.full((2, dim), 0.7))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gamma[0] * self.mixer(self.norm1(x))
        return x + self.gamma[1] * self.mlp(self.norm2(x))


class HybridVision(nn.Module):
    def __init__(self, dim: int = 16, depth: int = 2, classes: int = 6) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, 4)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class MambaVisionMixer(nn.Module):
    def __init__(self, d_model: int, d_state: int = 4, dt_rank: int = 2, conv_bias: bool | int = True) -> None:
        super().__init__()
        d_inner = d_model // 2
        self.d_state, self.dt_rank = d_state, dt_rank
        self.in_x = nn.Linear(d_model, d_inner, bias=False)
        self.in_z = nn.Linear(d_model, d_inner, bias=False)
        self.conv1d_x = nn.Conv1d(d_inner, d_inner, 3, padding=1, groups=d_inner, bias=bool(conv_bias))
        self.conv1d_z = nn.Conv1d(d_inner, d_inner, 3, padding=1, groups=d_inner, bias=bool(conv_bias))
        self.x_proj = nn.Linear(d_inner, dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, d_inner)
        self.A_log = nn.Parameter(torch.zeros(d_inner, d_state))
        self.D = nn.Parameter(torch.zeros(d_inner))
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def selective_scan(self, u: Tensor, delta: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Unrolled recurrence as one lower-triangular product, (B, L, D) in and out."""
        log_decay = torch.einsum("bld,dn->bldn", delta, -self.A_log.exp()).cumsum(dim=1)
        length = u.shape[1]
        causal = torch.ones(length, length).tril().bool().view(1, length, length, 1, 1)
        between = (log_decay[:, :, None] - log_decay[:, None, :]).masked_fill(~causal, float("-inf")).exp()
        drive = torch.einsum("bld,bln->bldn", delta * u, b)
        return torch.einsum("btsdn,bsdn,btn->btd", between, drive, c) + u * self.D

    def forward(self, hidden_states: Tensor) -> Tensor:
        x = F.silu(self.conv1d_x(self.in_x(hidden_states).mT)).mT
        z = F.silu(self.conv1d_z(self.in_z(hidden_states).mT)).mT
        dt, b, c = torch.split(self.x_proj(x), [self.dt_rank, self.d_state, self.d_state], dim=-1)
        y = self.selective_scan(x, F.softplus(self.dt_proj(dt)), b, c)
        return self.out_proj(torch.cat((y, z), dim=-1))


class MambaVisionBlock(nn.Module):
    """Layer scale already multiplied into the last projections."""

    def __init__(self, dim: int, conv_bias: bool | int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.mixer = MambaVisionMixer(dim, conv_bias=conv_bias)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class MambaVision(nn.Module):
    def __init__(self, dim: int = 16, depth: int = 2, num_classes: int = 6, conv_bias: bool | int = True) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, dim, kernel_size=4, stride=4)
        self.levels = nn.Sequential(*[MambaVisionBlock(dim, conv_bias) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.levels(self.stem(x).flatten(2).mT)
        return self.head(torch.mean(self.norm(x), dim=1))


def convert(src: HybridVision) -> dict[str, Tensor]:
    state = {}
    names = {"conv_x": "conv1d_x", "conv_z": "conv1d_z"}
    for key, value in src.state_dict().items():
        if not key.startswith("blocks."):
            state[key.replace("patch_embed", "stem")] = value
            continue
        _, i, rest = key.split(".", 2)
        gamma = src.blocks[int(i)].gamma
        target = f"levels.{i}."
        if rest == "mixer.in_proj.weight":
            state[f"{target}mixer.in_x.weight"], state[f"{target}mixer.in_z.weight"] = value.chunk(2)
        elif rest == "mixer.out_proj.weight":
            state[target + rest] = value * gamma[0, :, None]
        elif rest.startswith("mlp.0"):
            state[f"{target}fc1.{rest[6:]}"] = value
        elif rest.startswith("mlp.2"):
            state[f"{target}fc2.{rest[6:]}"] = value * gamma[1].view(-1, *[1] * (value.dim() - 1))
        elif rest != "gamma":
            for old, new in names.items():
                rest = rest.replace(old, new)
            state[target + rest] = value
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(118)
    original = HybridVision()
    for block in original.blocks:
        nn.init.normal_(block.mixer.conv_x.bias, std=0.4)
        nn.init.normal_(block.mixer.conv_z.bias, std=0.4)
    conv_bias = True
    port = MambaVision(conv_bias=conv_bias if fixed else conv_bias // 2)
    with torch.no_grad():
        port.load_state_dict(convert(original), strict=False)
    return original.eval(), port.eval(), (torch.randn(2, 3, 16, 16),)
