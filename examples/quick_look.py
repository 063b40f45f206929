"""A quick look: what does the model call, with which shapes, and how large are the numbers?"""

import torch
from torch import nn

from fxdebug import fx_debug


class Residual(nn.Module):
    """A convolution with a way around it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.conv(x))


def main() -> None:
    torch.manual_seed(0)
    blocks = [Residual(8) for _ in range(6)]
    model = nn.Sequential(nn.Conv2d(3, 8, kernel_size=4, stride=4), *blocks, nn.Flatten(), nn.Linear(512, 10))

    trace = fx_debug(model, torch.randn(2, 3, 32, 32))
    print(trace)

    print("\nHow the activations grow from block to block:")
    for call in trace.find(type="Residual"):
        before, after = call.inputs[0].stats, call.outputs[0].stats
        print(f"  {call.path}: std {before.std:.3f} → {after.std:.3f}, largest {after.absmax:.2f}")


if __name__ == "__main__":
    main()
