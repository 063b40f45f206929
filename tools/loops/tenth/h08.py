"""After pytorch/examples (time_sequence_prediction): LSTM cells in double precision trained
with LBFGS, lr 0.8, a closure and the whole data at once."""

import math

import torch
import torch.nn as nn


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 16)
        self.lstm2 = nn.LSTMCell(16, 16)
        self.linear = nn.Linear(16, 1)

    def forward(self, input):
        outputs = []
        h_t = torch.zeros(input.size(0), 16, dtype=torch.double)
        c_t, h_t2, c_t2 = h_t.clone(), h_t.clone(), h_t.clone()
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            outputs.append(self.linear(h_t2))
        return torch.cat(outputs, dim=1)


def train(tick, mended=False):
    torch.manual_seed(0)
    t = torch.arange(31, dtype=torch.double) + torch.randint(-20, 20, (16, 1))
    data = torch.sin(t * 2 * math.pi / 20)
    input, target = data[:, :-1], data[:, 1:]
    seq = Sequence().double()
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.8, max_iter=4)
    losses = []
    tick.model(seq)
    tick.optimizer(optimizer)
    for _i in range(17):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        tick.step(loss)
        losses.append(loss.item())
    return losses
