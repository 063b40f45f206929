"""After apache/tvm#3410.

A user brought his own recurrent model, trained with TensorFlow, into a compiler's frontend.
The predictions differed, though the frontend's tests with LSTM and PTB models pass.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LSTMBlockCell(nn.Module):
    """tf.contrib.rnn.LSTMBlockCell: kernel [input + hidden, 4 * hidden], gates i, ci, f, o."""

    def __init__(self, input_size, num_units, forget_bias=1.0):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(input_size + num_units, 4 * num_units) / (input_size + num_units) ** 0.5)
        self.bias = nn.Parameter(torch.randn(4 * num_units) * 0.1)
        self.num_units, self.forget_bias = num_units, forget_bias

    def forward(self, x, cs_prev, h_prev):
        icfo = torch.cat([x, h_prev], -1) @ self.kernel + self.bias
        i, ci, f, o = icfo.chunk(4, -1)
        cs = torch.sigmoid(f + self.forget_bias) * cs_prev + torch.sigmoid(i) * torch.tanh(ci)
        return cs, torch.sigmoid(o) * torch.tanh(cs)


class TFCharModel(nn.Module):
    def __init__(self, vocab=40, dim=16, units=24, layers=2, forget_bias=1.0):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocab, dim))
        self.cells = nn.ModuleList([LSTMBlockCell(dim if i == 0 else units, units, forget_bias) for i in range(layers)])
        self.softmax_w, self.softmax_b = (
            nn.Parameter(torch.randn(units, vocab) * 0.5),
            nn.Parameter(torch.randn(vocab) * 0.1),
        )

    def forward(self, ids):
        x = self.embedding[ids]
        state = [(x.new_zeros(x.shape[0], c.num_units),) * 2 for c in self.cells]
        logits = []
        for t in range(x.shape[1]):
            y = x[:, t]
            for n, cell in enumerate(self.cells):
                state[n] = cell(y, *state[n])
                y = state[n][1]
            logits.append(y @ self.softmax_w + self.softmax_b)
        return torch.stack(logits, 1)


class Dense(nn.Module):
    def __init__(self, units_in, units_out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(units_out, units_in)), nn.Parameter(torch.zeros(units_out))

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class RelayLSTM(nn.Module):
    def __init__(self, input_size, num_units, forget_bias):
        super().__init__()
        self.gates = Dense(input_size + num_units, 4 * num_units)
        self.num_units, self.forget_bias = num_units, forget_bias

    def cell(self, gate_list, in_state_c):
        in_gate = gate_list[0].sigmoid()
        in_transform = gate_list[1].tanh()
        forget_gate = gate_list[2].sigmoid()
        forget_gate = forget_gate + self.forget_bias
        out_gate = gate_list[3].sigmoid()
        next_c = forget_gate * in_state_c + in_gate * in_transform
        return next_c, out_gate * next_c.tanh()

    def forward(self, data):
        c = h = data.new_zeros(data.shape[1], self.num_units)
        out = []
        for step in data:
            gate_list = self.gates(torch.cat((step, h), dim=1)).split(self.num_units, dim=1)
            c, h = self.cell(gate_list, c)
            out.append(h)
        return torch.stack(out)


class RelayLSTMMended(RelayLSTM):
    def cell(self, gate_list, in_state_c):
        i, g, f, o = gate_list
        next_c = (f + self.forget_bias).sigmoid() * in_state_c + i.sigmoid() * g.tanh()
        return next_c, o.sigmoid() * next_c.tanh()


class RelayModule(nn.Module):
    def __init__(self, lstm, vocab=40, dim=16, units=24, layers=2, forget_bias=1.0):
        super().__init__()
        self.take = nn.Embedding(vocab, dim)
        self.rnn = nn.ModuleList([lstm(dim if i == 0 else units, units, forget_bias) for i in range(layers)])
        self.dense = Dense(units, vocab)

    def forward(self, tokens):
        x = self.take(tokens.t())
        for layer in self.rnn:
            x = layer(x)
        return self.dense(x).transpose(0, 1)


def from_tensorflow(params, layers=2):
    out = {
        "take.weight": params["embedding"],
        "dense.weight": params["softmax_w"].t(),
        "dense.bias": params["softmax_b"],
    }
    for i in range(layers):
        out[f"rnn.{i}.gates.weight"] = params[f"cells.{i}.kernel"].t()
        out[f"rnn.{i}.gates.bias"] = params[f"cells.{i}.bias"]
    return out


def build(fixed):
    torch.manual_seed(9)
    original = TFCharModel().eval()
    port = RelayModule(RelayLSTMMended if fixed else RelayLSTM).eval()
    port.load_state_dict(from_tensorflow(original.state_dict()))
    return original, port, (torch.randint(0, 40, (3, 12)),)
