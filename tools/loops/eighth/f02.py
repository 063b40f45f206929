"""pytorch/pytorch#1053: a sentence classifier with three convolution widths (3, 4, 5) over given word
vectors; it runs without an error, but its accuracy hardly rises over guessing."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class config:
    WORD_VEC_SIZE = 16
    VOCAB = 60
    LENGTH = 14
    WIDTHS = (3, 4, 5)


class Net(nn.Module):
    def __init__(self, registered):
        super().__init__()
        convs = [nn.Conv1d(config.WORD_VEC_SIZE, 2, w) for w in config.WIDTHS]
        self.conv1d = nn.ModuleList(convs) if registered else convs
        self.norm = nn.LayerNorm(2 * len(config.WIDTHS))
        self.fc1 = nn.Linear(2 * len(config.WIDTHS), 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        x = x.transpose(1, 2)
        pooled = [F.relu(conv(x)).max(dim=2).values for conv in self.conv1d]
        h = self.norm(torch.cat(pooled, dim=1))
        return self.fc2(F.relu(self.fc1(h)))


def make_sentences(n, word_vectors):
    words = torch.randint(6, config.VOCAB, (n, config.LENGTH))
    labels = torch.randint(0, 3, (n,))
    cue = labels * 2 + torch.randint(0, 2, (n,))
    words[torch.arange(n), torch.randint(1, config.LENGTH - 1, (n,))] = cue
    return word_vectors[words], labels


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        acc = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return acc


def train(tick, mended=False):
    torch.manual_seed(3)
    word_vectors = F.normalize(torch.randn(config.VOCAB, config.WORD_VEC_SIZE), dim=1) * 2
    x_train, y_train = make_sentences(1200, word_vectors)
    x_test, y_test = make_sentences(400, word_vectors)
    net = Net(registered=mended)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss()
    tick.model(net)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(8):
        for idx in torch.randperm(len(x_train)).split(40):
            optimizer.zero_grad()
            loss = criterion(net(x_train[idx]), y_train[idx])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = accuracy(net, x_test, y_test)
    return losses
