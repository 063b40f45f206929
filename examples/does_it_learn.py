"""The loss of a small language model does not fall: `watch` says why, twice, and what was changed each time.

It reads characters of this repository's licence. The first loop takes the softmax once too often, the second has a
learning rate of 1, and the third has both as the verdicts advise.
"""

from pathlib import Path

import torch
from torch import nn

import fxdebug

TEXT = (Path(__file__).resolve().parent.parent / "LICENSE").read_text(encoding="utf-8")


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen, self.memory = nn.Embedding(128, 32), nn.GRU(32, 32, batch_first=True)
        self.head = nn.Linear(32, 128)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.memory(self.seen(text))[0])  # type: ignore[no-any-return]


for rate, activation in ((1.0, nn.Softmax(-1)), (1.0, nn.Identity()), (0.1, nn.Identity())):
    torch.manual_seed(0)
    model, text = Reader(), torch.tensor(list(TEXT.encode()))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with fxdebug.watch(model, save="runs/train") as watched:
        for _ in range(100):
            batch = torch.stack([text[i : i + 25] for i in torch.randint(len(text) - 25, (16,)).tolist()])
            answers = activation(model(batch[:, :-1]))
            loss = nn.functional.cross_entropy(answers.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(str(watched.verdict()).partition(":")[0])
