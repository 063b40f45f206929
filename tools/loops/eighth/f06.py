"""pytorch/pytorch#1538: digit rows read by an LSTM, one row a step; with one setting of the layer it
learns as it should, with the other one the loss hardly moves."""

import torch
import torch.nn as nn

ROWS, COLS, CLASSES = 10, 8, 6


class Rnn(nn.Module):
    def __init__(self, in_dim, hidden_dim, n_layer, n_class, **lstm_options):
        super().__init__()
        self.n_layer = n_layer
        self.hidden_dim = hidden_dim
        self.lstm = nn.LSTM(in_dim, hidden_dim, n_layer, **lstm_options)
        self.classifier = nn.Linear(hidden_dim, n_class)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.classifier(out[:, -1, :])


class StrokeDigits(torch.utils.data.Dataset):
    def __init__(self, n, seed, noise=0.35):
        gen = torch.Generator().manual_seed(99)
        turns = torch.randint(0, COLS, (CLASSES, ROWS), generator=gen)
        templates = nn.functional.one_hot(turns, COLS).float()
        templates[:, ROWS - 2 :] = templates[0, ROWS - 2 :]
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES, (n,), generator=gen)
        self.images = templates[self.labels] + noise * torch.randn(n, ROWS, COLS, generator=gen)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i][None], self.labels[i]


def evaluate(model, dataset):
    model.eval()
    right = 0
    loader = torch.utils.data.DataLoader(dataset, batch_size=50)
    with torch.no_grad():
        for img, label in loader:
            right += (model(img.squeeze(1)).argmax(1) == label).sum().item()
    model.train()
    return right / len(dataset)


def train(tick, mended=False):
    torch.manual_seed(0)
    train_dataset, test_dataset = StrokeDigits(1000, 1), StrokeDigits(300, 2)
    gen = torch.Generator().manual_seed(0)
    train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=50, shuffle=True, generator=gen)
    options = {"batch_first": True} if mended else {}
    model = Rnn(COLS, 40, 2, CLASSES, **options)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(9):
        for img, label in train_loader:
            _b, c, _h, _w = img.size()
            assert c == 1
            out = model(img.squeeze(1))
            loss = criterion(out, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = evaluate(model, test_dataset)
    return losses
