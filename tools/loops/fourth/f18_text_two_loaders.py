"""FernandoLpz/Text-Classification-LSTMs-PyTorch#3: with shuffling in the DataLoader accuracy stays at one half.

Texts and labels come from two loaders, each of which shuffles by itself.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS: int = 200
HISTORY: list[float] = []
VOCAB, LENGTH, BATCH, TWEETS = 60, 12, 50, 1500


class TweetClassifier(nn.Module):
    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden, padding_idx=0)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=1, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(self.embedding(x))
        return torch.sigmoid(self.fc(self.dropout(out[:, -1]))).squeeze(1)


def tweets() -> tuple[Tensor, Tensor]:
    """Some words speak of a disaster, some do not; the text counts them."""
    weight = torch.randn(VOCAB)
    ids = torch.randint(1, VOCAB, (TWEETS, LENGTH))
    return ids, (weight[ids].sum(dim=1) > 0).float()


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(41)
    HISTORY.clear()
    x, y = tweets()
    if bad:
        texts = DataLoader(TensorDataset(x), batch_size=BATCH, shuffle=True)
        labels = DataLoader(TensorDataset(y), batch_size=BATCH, shuffle=True)

        def epoch() -> list[tuple[Tensor, Tensor]]:
            return [(a[0], b[0]) for a, b in zip(texts, labels, strict=True)]

    else:
        pairs = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)

        def epoch() -> list[tuple[Tensor, Tensor]]:
            return [(a, b) for a, b in pairs]

    model = TweetClassifier()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
    queue: list[tuple[Tensor, Tensor]] = []

    def step(i: int) -> None:
        if not queue:
            queue.extend(epoch())
        text, label = queue.pop()
        loss = nn.functional.binary_cross_entropy(model(text), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
