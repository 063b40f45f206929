"""After NVIDIA/sentiment-discovery#18: between two versions of a multiplicative-LSTM language
model the rows of the gates were stored in another order (input, forget, output, candidate before;
input, forget, candidate, output after). Checkpoints of the old version load into the new cell."""

import torch
import torch.nn as nn

VOCAB, EMB, HID = 28, 12, 20


class OldMLSTMCell(nn.Module):
    def __init__(self, cin):
        super().__init__()
        self.w_mih = nn.Parameter(torch.randn(HID, cin) * cin**-0.5)
        self.w_mhh = nn.Parameter(torch.randn(HID, HID) * HID**-0.5)
        self.w_ih = nn.Parameter(torch.randn(4 * HID, cin) * cin**-0.5)
        self.w_hh = nn.Parameter(torch.randn(4 * HID, HID) * HID**-0.5)
        self.bias = nn.Parameter(torch.randn(4 * HID) * 0.3)

    def forward(self, x, state):
        h, c = state
        m = (x @ self.w_mih.t()) * (h @ self.w_mhh.t())
        i, f, o, j = (x @ self.w_ih.t() + m @ self.w_hh.t() + self.bias).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
        return torch.sigmoid(o) * torch.tanh(c), c


class SentimentLMv04(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(VOCAB, EMB)
        self.rnn = nn.ModuleList([OldMLSTMCell(EMB), OldMLSTMCell(HID)])
        self.decoder = nn.Linear(HID, VOCAB)

    def forward(self, text):
        b = text.shape[0]
        states = [(torch.zeros(b, HID), torch.zeros(b, HID)) for _ in self.rnn]
        logits = []
        for t in range(text.shape[1]):
            x = self.encoder(text[:, t])
            for n, cell in enumerate(self.rnn):
                states[n] = cell(x, states[n])
                x = states[n][0]
            logits.append(self.decoder(x))
        return torch.stack(logits, 1)


class MultiplicativeState(nn.Module):
    def __init__(self, cin):
        super().__init__()
        self.from_input = nn.Linear(cin, HID, bias=False)
        self.from_hidden = nn.Linear(HID, HID, bias=False)

    def forward(self, x, h):
        return self.from_input(x) * self.from_hidden(h)


class GateUnit(nn.Module):
    def __init__(self, cin):
        super().__init__()
        self.gates = nn.Linear(cin + HID, 4 * HID)

    def forward(self, x, m, c):
        a = self.gates(torch.cat([x, m], 1)).view(-1, 4, HID)
        ingate, forget, outgate = a[:, 0].sigmoid(), a[:, 1].sigmoid(), a[:, 3].sigmoid()
        c = torch.addcmul(forget * c, ingate, a[:, 2].tanh())
        return outgate * c.tanh(), c


class StackedLayer(nn.Module):
    """One layer run over the whole sequence before the next layer starts."""

    def __init__(self, cin):
        super().__init__()
        self.mult = MultiplicativeState(cin)
        self.unit = GateUnit(cin)

    def forward(self, seq):
        h = seq.new_zeros(seq.shape[1], HID)
        c = torch.zeros_like(h)
        outs = []
        for x in seq:
            h, c = self.unit(x, self.mult(x, h), c)
            outs.append(h)
        return torch.stack(outs)


class SentimentLMv05(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMB)
        self.layer0, self.layer1 = StackedLayer(EMB), StackedLayer(HID)
        self.out = nn.Linear(HID, VOCAB)

    def forward(self, text):
        seq = self.embed(text.t())
        return self.out(self.layer1(self.layer0(seq))).transpose(0, 1)


def reorder_gates(param, fixed):
    blocks = param.chunk(4)
    order = (0, 1, 3, 2) if fixed else (0, 1, 2, 3)
    return torch.cat([blocks[k] for k in order])


def convert(sd, fixed=False):
    out = {"embed.weight": sd["encoder.weight"], "out.weight": sd["decoder.weight"], "out.bias": sd["decoder.bias"]}
    for n in range(2):
        s, d = f"rnn.{n}.", f"layer{n}."
        out[d + "mult.from_input.weight"] = sd[s + "w_mih"]
        out[d + "mult.from_hidden.weight"] = sd[s + "w_mhh"]
        fused = torch.cat([sd[s + "w_ih"], sd[s + "w_hh"]], 1)
        out[d + "unit.gates.weight"] = reorder_gates(fused, fixed)
        out[d + "unit.gates.bias"] = reorder_gates(sd[s + "bias"], fixed)
    return out


def build(fixed):
    torch.manual_seed(18)
    original = SentimentLMv04().eval()
    port = SentimentLMv05().eval()
    port.load_state_dict(convert(original.state_dict(), fixed))
    return original, port, (torch.randint(0, VOCAB, (3, 10)),)
