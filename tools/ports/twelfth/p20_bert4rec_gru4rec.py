"""After asash/bert4rec_repro#4: a GRU4Rec session recommender as run with the framework's cuDNN
kernel (its default activations) and the hand-unrolled version of the reproducibility package,
which names its own activation. Item scores differ under equal weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ITEMS, EMB, HID = 50, 16, 24


class CudnnGRU4Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.item_embedding = nn.Embedding(ITEMS + 1, EMB, padding_idx=0)
        self.gru1 = nn.GRU(EMB, HID, batch_first=True)
        self.gru2 = nn.GRU(HID, HID, batch_first=True)
        self.project = nn.Linear(HID, EMB)
        self.item_bias = nn.Parameter(torch.randn(ITEMS + 1) * 0.1)

    def forward(self, sessions):
        x = self.item_embedding(sessions)
        x, _ = self.gru1(x)
        x, _ = self.gru2(x)
        last = self.project(x[:, -1])
        return last @ self.item_embedding.weight.t() + self.item_bias


class KerasGRULayer(nn.Module):
    """Keras layout: kernels are (input, 3 * units), gate order z, r, h, two bias rows."""

    def __init__(self, cin, units, activation):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(cin, 3 * units))
        self.recurrent_kernel = nn.Parameter(torch.empty(units, 3 * units))
        self.bias = nn.Parameter(torch.empty(2, 3 * units))
        self.units, self.activation = units, activation

    def step(self, inp, h):
        rz, rr, rh = (h @ self.recurrent_kernel + self.bias[1]).chunk(3, -1)
        xz, xr, xh = inp.chunk(3, -1)
        z = torch.sigmoid(xz + rz)
        hh = self.activation(xh + torch.sigmoid(xr + rr) * rh)
        return z * h + (1 - z) * hh

    def forward(self, seq):
        inputs = seq @ self.kernel + self.bias[0]
        h = seq.new_zeros(seq.shape[0], self.units)
        states = []
        for t in range(seq.shape[1]):
            h = self.step(inputs[:, t], h)
            states.append(h)
        return torch.stack(states, 1)


class SessionEncoder(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.layers = nn.ModuleList([KerasGRULayer(EMB, HID, activation), KerasGRULayer(HID, HID, activation)])
        self.out_kernel = nn.Parameter(torch.empty(HID, EMB))
        self.out_bias = nn.Parameter(torch.empty(EMB))

    def forward(self, seq):
        for layer in self.layers:
            seq = layer(seq)
        return seq[:, -1] @ self.out_kernel + self.out_bias


class ItemScorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(ITEMS + 1, EMB))
        self.popularity = nn.Parameter(torch.empty(ITEMS + 1))

    def lookup(self, ids):
        return self.matrix[ids]

    def forward(self, query):
        return torch.addmm(self.popularity, query, self.matrix.t())


class ReproGRU4Rec(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.scorer = ItemScorer()
        self.encoder = SessionEncoder(activation)

    def forward(self, sessions):
        return self.scorer(self.encoder(self.scorer.lookup(sessions)))


def keras_gates(w):
    r, z, n = w.chunk(3)
    return torch.cat([z, r, n])


def convert(sd):
    out = {
        "scorer.matrix": sd["item_embedding.weight"],
        "scorer.popularity": sd["item_bias"],
        "encoder.out_kernel": sd["project.weight"].t(),
        "encoder.out_bias": sd["project.bias"],
    }
    for i, name in enumerate(("gru1", "gru2")):
        d = f"encoder.layers.{i}."
        out[d + "kernel"] = keras_gates(sd[name + ".weight_ih_l0"]).t()
        out[d + "recurrent_kernel"] = keras_gates(sd[name + ".weight_hh_l0"]).t()
        out[d + "bias"] = torch.stack([keras_gates(sd[name + ".bias_ih_l0"]), keras_gates(sd[name + ".bias_hh_l0"])])
    return out


def build(fixed):
    torch.manual_seed(4)
    original = CudnnGRU4Rec().eval()
    for n, p in original.named_parameters():
        if "gru" in n:
            p.data.mul_(2.0)
    port = ReproGRU4Rec(torch.tanh if fixed else F.relu).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(1, ITEMS + 1, (4, 9)),)
