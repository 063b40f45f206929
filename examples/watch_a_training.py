"""Which operation, batch and line turn a training loop into NaN? `watch` names them at the step where it happens.

A bfloat16 model divides by the standard deviation of each row, which is 0 for one row of the batch in step 7.
"""

import warnings

import torch
from torch import nn

import fxdebug


class Normalise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


def main() -> None:
    torch.manual_seed(0)
    warnings.simplefilter("ignore", fxdebug.api.FxDebugWarning)  # the warning says the same at once
    model = nn.Sequential(Normalise(), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with fxdebug.watch(model, every=5, save="runs/train") as watched:
        for step in range(12):
            batch = torch.randn(8, 16, dtype=torch.bfloat16)
            if step == 7:
                batch[3] = 1.0
            loss = (model(batch) - batch.mean(-1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    (incident,) = watched.incidents
    print(f"step {incident.step}, {incident.path} {incident.op}: {incident.what}")
    print(f"at {incident.source.rpartition('/')[2]}, given a batch of {incident.inputs[0]}")


if __name__ == "__main__":
    main()
