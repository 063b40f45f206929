"""Where does the first NaN come from? Compare what went in and what came out, layer by layer.

A sentence that is all padding leaves rows of scores with nothing but -Inf in them; their softmax is NaN.
"""

import torch
from torch import nn

from fxdebug import fx_debug


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        return x + self.softmax(scores.masked_fill(padding[:, None], -torch.inf)) @ self.value(x)


def main() -> None:
    torch.manual_seed(0)
    padding = torch.tensor([[False] * 5, [True] * 5])
    trace = fx_debug(Attention(16), (torch.randn(2, 5, 16), padding))

    for call in sorted(trace.calls, key=lambda call: call.finished):  # in the order in which they returned
        given, returned = call.inputs[0].stats, call.outputs[0].stats
        print(f"{call.path:8} in: absmax {given.absmax:.2f}, {given.nan} NaN, {given.neginf} -Inf", end="")
        print(f"   out: absmax {returned.absmax:.2f}, {returned.nan} NaN")
        if returned.nan and not given.nan:
            print(f"The first NaN: {returned.nan} of the {returned.count} elements that {call.path} returned.")
            break


if __name__ == "__main__":
    main()
