"""PacktPublishing/Deep-Reinforcement-Learning-Hands-On#6: the dueling head subtracts the mean over the whole batch.

adv.mean() is one scalar for all states; each state should lose the mean over its own actions.  The port reads frames
channels-last (so the first dense kernel is re-laid out) and fuses the hidden layers of the two streams.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DuelingDQN(nn.Module):
    def __init__(self, frames: int = 2, n_actions: int = 5) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(frames, 8, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 12, kernel_size=3, stride=1),
            nn.ReLU(),
        )
        self.fc_adv = nn.Sequential(nn.Linear(12 * 5 * 4, 32), nn.ReLU(), nn.Linear(32, n_actions))
        self.fc_val = nn.Sequential(nn.Linear(12 * 5 * 4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, obs: Tensor) -> Tensor:
        x = self.conv(obs / 255.0)
        x = x.flatten(1)
        val = self.fc_val(x)
        adv = self.fc_adv(x)
        return val + adv - adv.mean(dim=1, keepdim=True)


class NhwcConv(nn.Module):
    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.kernel = nn.Parameter(conv.weight.detach().permute(2, 3, 1, 0).contiguous())
        self.bias = nn.Parameter(conv.bias.detach().clone())
        self.stride = conv.stride[0]

    def forward(self, x: Tensor) -> Tensor:
        kh, kw = self.kernel.shape[:2]
        patches = x.unfold(1, kh, self.stride).unfold(2, kw, self.stride)
        return torch.tensordot(patches, self.kernel, dims=([4, 5, 3], [0, 1, 2])) + self.bias


class Dense(nn.Module):
    def __init__(self, kernel: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.kernel = nn.Parameter(kernel.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.kernel + self.bias


class DuelingHead(nn.Module):
    def __init__(self, hidden: Dense, value: Dense, advantage: Dense, axis: int | None) -> None:
        super().__init__()
        self.hidden = hidden
        self.value = value
        self.advantage = advantage
        self.axis = axis

    def forward(self, features: Tensor) -> Tensor:
        h_val, h_adv = F.relu(self.hidden(features)).chunk(2, dim=-1)
        advantage = self.advantage(h_adv)
        centre = advantage.mean() if self.axis is None else advantage.mean(self.axis, keepdim=True)
        return self.value(h_val) + (advantage - centre)


class QNetwork(nn.Module):
    def __init__(self, source: DuelingDQN, mean_axis: int | None) -> None:
        super().__init__()
        self.Conv_0 = NhwcConv(source.conv[0])
        self.Conv_1 = NhwcConv(source.conv[2])
        val_in, adv_in = source.fc_val[0], source.fc_adv[0]
        fused = torch.cat([val_in.weight, adv_in.weight]).detach()
        fused = fused.view(-1, 12, 5, 4).permute(2, 3, 1, 0).reshape(5 * 4 * 12, -1)
        self.head = DuelingHead(
            Dense(fused, torch.cat([val_in.bias, adv_in.bias])),
            Dense(source.fc_val[2].weight.T, source.fc_val[2].bias),
            Dense(source.fc_adv[2].weight.T, source.fc_adv[2].bias),
            mean_axis,
        )

    def forward(self, obs: Tensor) -> Tensor:
        x = obs.movedim(1, -1) * (1 / 255.0)
        x = F.relu(self.Conv_0(x))
        x = F.relu(self.Conv_1(x))
        return self.head(x.reshape(x.shape[0], -1))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(111)
    original = DuelingDQN().eval()
    with torch.no_grad():
        original.fc_adv[2].weight.mul_(3.0)
    port = QNetwork(original, mean_axis=-1 if fixed else None).eval()
    return original, port, (torch.randint(0, 256, (6, 2, 16, 14)).float(),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
