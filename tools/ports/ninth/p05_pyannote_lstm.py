"""CrispStrobe/CrispASR#106

A speaker-segmentation network whose recurrent weights come from an ONNX file was
rebuilt as a native runtime.  Convolutions and the classifier agree, but on audio
with several speakers the rebuilt network gives everything to one speaker.
"""

import torch
import torch.nn.functional as F
from torch import nn


class OnnxLSTM(nn.Module):
    """LSTM operator of ONNX, bidirectional: W (2, 4H, in), R (2, 4H, H), B (2, 8H)."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.W = nn.Parameter(torch.empty(2, 4 * hidden_size, input_size))
        self.R = nn.Parameter(torch.empty(2, 4 * hidden_size, hidden_size))
        self.B = nn.Parameter(torch.empty(2, 8 * hidden_size))
        self.hidden_size = hidden_size

    def run(self, x, direction):
        H = self.hidden_size
        W, R = self.W[direction], self.R[direction]
        b = self.B[direction, : 4 * H] + self.B[direction, 4 * H :]
        h = c = x.new_zeros(x.shape[1], H)
        steps = range(len(x)) if direction == 0 else reversed(range(len(x)))
        out = [None] * len(x)
        for t in steps:
            gates = x[t] @ W.t() + h @ R.t() + b
            i, o, f = gates[:, : 3 * H].sigmoid().split(H, 1)
            c = f * c + i * gates[:, 3 * H :].tanh()
            h = o * c.tanh()
            out[t] = h
        return torch.stack(out)

    def forward(self, x):
        return torch.cat([self.run(x, 0), self.run(x, 1)], dim=-1)


class SegmentationOnnx(nn.Module):
    def __init__(self, filters=8, hidden=8, classes=5, layers=2):
        super().__init__()
        self.wav_norm = nn.InstanceNorm1d(1, affine=True)
        self.conv0, self.norm0 = nn.Conv1d(1, filters, 9, stride=4), nn.InstanceNorm1d(filters, affine=True)
        self.conv1, self.norm1 = nn.Conv1d(filters, filters, 5), nn.InstanceNorm1d(filters, affine=True)
        self.lstm = nn.ModuleList(OnnxLSTM(filters if i == 0 else 2 * hidden, hidden) for i in range(layers))
        self.linear = nn.Linear(2 * hidden, 12)
        self.classifier = nn.Linear(12, classes)

    def forward(self, wav):
        x = self.wav_norm(wav)
        x = F.leaky_relu(self.norm0(F.max_pool1d(self.conv0(x).abs(), 2)))
        x = F.leaky_relu(self.norm1(F.max_pool1d(self.conv1(x), 2)))
        x = x.permute(2, 0, 1)
        for layer in self.lstm:
            x = layer(x)
        x = self.classifier(F.leaky_relu(self.linear(x.transpose(0, 1))))
        return x.log_softmax(-1)


class LSTMWeights(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        for d in ("fwd", "bwd"):
            setattr(self, "w_ih_" + d, nn.Parameter(torch.empty(4 * n_hidden, n_in)))
            setattr(self, "w_hh_" + d, nn.Parameter(torch.empty(4 * n_hidden, n_hidden)))
            setattr(self, "b_" + d, nn.Parameter(torch.empty(4 * n_hidden)))


def split_gates_ifgo(gates):
    i, f, g, o = gates.chunk(4, dim=-1)
    return i, f, g, o


def split_gates_iofc(gates):
    i, o, f, g = gates.chunk(4, dim=-1)
    return i, f, g, o


class BiLSTM(LSTMWeights):
    def __init__(self, n_in, n_hidden, split):
        super().__init__(n_in, n_hidden)
        self.n_hidden, self.split = n_hidden, split

    def direction(self, seq, w_ih, w_hh, b):
        pre = F.linear(seq, w_ih, b)
        h = c = seq.new_zeros(seq.shape[0], self.n_hidden)
        hs = []
        for t in range(seq.shape[1]):
            i, f, g, o = self.split(pre[:, t] + F.linear(h, w_hh))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            hs.append(h)
        return torch.stack(hs, dim=1)

    def forward(self, seq):
        fwd = self.direction(seq, self.w_ih_fwd, self.w_hh_fwd, self.b_fwd)
        bwd = self.direction(seq.flip(1), self.w_ih_bwd, self.w_hh_bwd, self.b_bwd).flip(1)
        return torch.cat([fwd, bwd], dim=2)


class SincStage(nn.Module):
    def __init__(self, cin, cout, k, stride, rectify):
        super().__init__()
        self.conv, self.rectify = nn.Conv1d(cin, cout, k, stride=stride), rectify
        self.gain, self.shift = nn.Parameter(torch.ones(cout)), nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        x = self.conv(x)
        x = F.max_pool1d(x.abs() if self.rectify else x, 2)
        x = F.layer_norm(x, x.shape[-1:], eps=1e-5)
        return F.leaky_relu(x * self.gain[:, None] + self.shift[:, None])


class PyannoteSeg(nn.Module):
    def __init__(self, filters=8, hidden=8, classes=5, split=split_gates_ifgo):
        super().__init__()
        self.in_gain, self.in_shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.sincnet = nn.Sequential(SincStage(1, filters, 9, 4, True), SincStage(filters, filters, 5, 1, False))
        self.rnn = nn.Sequential(BiLSTM(filters, hidden, split), BiLSTM(2 * hidden, hidden, split))
        self.head = nn.Sequential(nn.Linear(2 * hidden, 12), nn.LeakyReLU(), nn.Linear(12, classes))

    def forward(self, pcm):
        pcm = F.layer_norm(pcm, pcm.shape[-1:], eps=1e-5) * self.in_gain + self.in_shift
        feats = self.sincnet(pcm).transpose(1, 2)
        return F.log_softmax(self.head(self.rnn(feats)), dim=-1)


def convert(sd):
    out = {"in_gain": sd["wav_norm.weight"], "in_shift": sd["wav_norm.bias"]}
    for i in range(2):
        out[f"sincnet.{i}.gain"], out[f"sincnet.{i}.shift"] = sd[f"norm{i}.weight"], sd[f"norm{i}.bias"]
        for w in ("weight", "bias"):
            out[f"sincnet.{i}.conv.{w}"] = sd[f"conv{i}.{w}"]
            out[f"head.{2 * i}.{w}"] = sd[f"{('linear', 'classifier')[i]}.{w}"]
        for d, name in enumerate(("fwd", "bwd")):
            out[f"rnn.{i}.w_ih_{name}"] = sd[f"lstm.{i}.W"][d]
            out[f"rnn.{i}.w_hh_{name}"] = sd[f"lstm.{i}.R"][d]
            out[f"rnn.{i}.b_{name}"] = sd[f"lstm.{i}.B"][d].view(2, -1).sum(0)
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(4)
    original = SegmentationOnnx().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n and n.endswith("weight") else 0.0, 0.4)
    port = PyannoteSeg(split=split_gates_iofc if fixed else split_gates_ifgo).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 1, 240),)
