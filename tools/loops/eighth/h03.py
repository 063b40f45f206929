"""pytorch/examples (time_sequence_prediction): sine waves, two LSTM cells in double precision, the whole
data in every step, twenty steps of LBFGS with learning rate 0.8."""

import torch
import torch.nn as nn


class Sequence(nn.Module):
    def __init__(self, hidden=9):
        super().__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, input, future=0):
        outputs = []

        def zeros():
            return torch.zeros(input.size(0), self.hidden, dtype=torch.double)

        h_t, c_t, h_t2, c_t2 = zeros(), zeros(), zeros(), zeros()
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs.append(output)
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs.append(output)
        return torch.cat(outputs, dim=1)


def generate_sine_wave(n, length, period=8):
    shift = torch.randint(-4 * period, 4 * period, (n, 1)).double()
    return torch.sin((torch.arange(length).double()[None] + shift) / period * 2)


def train(tick, mended=False):
    torch.manual_seed(0)
    data = generate_sine_wave(13, 24)
    input, target = data[3:, :-1], data[3:, 1:]
    test_input, test_target = data[:3, :-1], data[:3, 1:]
    seq = Sequence().double()
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.8, max_iter=6)
    tick.model(seq)
    tick.optimizer(optimizer)
    losses = []
    for _i in range(20):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        losses.append(loss.item())
        tick.step(loss)
    with torch.no_grad():
        train.final = criterion(seq(test_input, future=10)[:, :-10], test_target).item()
    return losses
