"""After tensorflow/tensorflow#29308.

Weights of a BasicLSTMCell tagger (one joint kernel for input and state) are moved to a
layer with separate kernel and recurrent kernel, the cuDNN way.  Shapes fit; the tag
scores are different.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

V, E, U, TAGS = 30, 12, 16, 5


class BasicLSTMCell(nn.Module):
    """kernel [input + units, 4 * units], columns i, j (new), f, o; forget_bias 1."""

    def __init__(self, n_in, units, forget_bias=1.0):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(n_in + units, 4 * units) * (1.5 / (n_in + units) ** 0.5))
        self.bias = nn.Parameter(torch.randn(4 * units) * 0.3)
        self.forget_bias, self.units = forget_bias, units

    def forward(self, x):
        c = h = x.new_zeros(x.shape[0], self.units)
        outs = []
        for x_t in x.unbind(1):
            i, j, f, o = (torch.cat([x_t, h], 1) @ self.kernel + self.bias).chunk(4, 1)
            c = c * torch.sigmoid(f + self.forget_bias) + torch.sigmoid(i) * torch.tanh(j)
            h = torch.tanh(c) * torch.sigmoid(o)
            outs.append(h)
        return torch.stack(outs, 1)


class TF1Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Parameter(torch.randn(V, E))
        self.fw, self.bw = BasicLSTMCell(E, U), BasicLSTMCell(E, U)
        self.softmax_w = nn.Parameter(torch.randn(2 * U, TAGS) * 0.5)
        self.softmax_b = nn.Parameter(torch.randn(TAGS) * 0.1)

    def forward(self, tokens):
        x = self.embeddings[tokens]
        y = torch.cat([self.fw(x), self.bw(x.flip(1)).flip(1)], -1)
        return torch.log_softmax(y @ self.softmax_w + self.softmax_b, -1)


class CuDNNTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, E)
        self.rnn = nn.LSTM(E, U, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(2 * U, TAGS)

    def forward(self, tokens):
        y, _ = self.rnn(self.emb(tokens))
        return F.log_softmax(self.proj(y), dim=-1)


def split_kernel(kernel, bias, order):
    """-> weight_ih, weight_hh, bias with gate blocks (input, forget, new, output)."""
    blocks = kernel.chunk(4, 1)
    biases = list(bias.chunk(4))
    biases[2] = biases[2] + 1.0
    w = torch.cat([blocks[k] for k in order], 1).T
    return w[:, :E].contiguous(), w[:, E:].contiguous(), torch.cat([biases[k] for k in order])


def convert(sd, order=(0, 1, 2, 3)):
    new = {"emb.weight": sd["embeddings"], "proj.weight": sd["softmax_w"].T.contiguous(), "proj.bias": sd["softmax_b"]}
    for o, suffix in (("fw", ""), ("bw", "_reverse")):
        ih, hh, b = split_kernel(sd[o + ".kernel"], sd[o + ".bias"], order)
        new["rnn.weight_ih_l0" + suffix], new["rnn.weight_hh_l0" + suffix] = ih, hh
        new["rnn.bias_ih_l0" + suffix], new["rnn.bias_hh_l0" + suffix] = b, torch.zeros_like(b)
    return new


def build(fixed):
    torch.manual_seed(29308)
    original = TF1Tagger().eval()
    port = CuDNNTagger().eval()
    sd = original.state_dict()
    port.load_state_dict(convert(sd, (0, 2, 1, 3)) if fixed else convert(sd))
    return original, port, (torch.randint(0, V, (3, 12)),)
