"""After CrispStrobe/CrispASR#106: the native runtime of a speaker-diarization network reads LSTM
weights that a converter took straight out of the ONNX initializers. Speaker assignments collapse."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class OnnxLSTM(nn.Module):
    """Reference executor of the exported graph (initializers W, R, B as in the file)."""

    def __init__(self, n_in, hidden):
        super().__init__()
        self.hidden = hidden
        k = hidden**-0.5
        self.W = nn.Parameter(torch.empty(2, 4 * hidden, n_in).uniform_(-k, k) * 2)
        self.R = nn.Parameter(torch.empty(2, 4 * hidden, hidden).uniform_(-k, k) * 2)
        self.B = nn.Parameter(torch.empty(2, 8 * hidden).uniform_(-k, k))

    def _direction(self, x, d):
        bsz, steps, _ = x.shape
        h = x.new_zeros(bsz, self.hidden)
        c = x.new_zeros(bsz, self.hidden)
        wb, rb = self.B[d].chunk(2)
        ys = [None] * steps
        order = range(steps) if d == 0 else range(steps - 1, -1, -1)
        for t in order:
            z = x[:, t] @ self.W[d].t() + h @ self.R[d].t() + wb + rb
            i, o, f, g = z.chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            ys[t] = h
        return torch.stack(ys, 1)

    def forward(self, x):
        return torch.cat([self._direction(x, 0), self._direction(x, 1)], dim=-1)


class SegmentationGraph(nn.Module):
    def __init__(self, n_feat=12, hidden=10, n_class=7):
        super().__init__()
        self.frontend = nn.Conv1d(1, n_feat, 10, stride=5)
        self.lstm0 = OnnxLSTM(n_feat, hidden)
        self.lstm1 = OnnxLSTM(2 * hidden, hidden)
        self.linear0 = nn.Linear(2 * hidden, 16)
        self.classifier = nn.Linear(16, n_class)

    def forward(self, wav):
        x = F.leaky_relu(self.frontend(wav)).transpose(1, 2)
        x = self.lstm1(self.lstm0(x))
        return F.log_softmax(self.classifier(F.leaky_relu(self.linear0(x))), dim=-1)


GATES = {"onnx": ("i", "o", "f", "c"), "torch": ("i", "f", "c", "o")}


def bilstm_forward(seq, w_ih, w_hh, bias, layout):
    names = GATES[layout]
    H = w_hh[0].shape[1]
    outs = []
    for d, s in enumerate((seq, seq.flip(1))):
        pre = F.linear(s, w_ih[d], bias[d])
        h = torch.zeros(s.shape[0], H)
        c = torch.zeros(s.shape[0], H)
        track = []
        for t in range(s.shape[1]):
            g = dict(zip(names, (pre[:, t] + F.linear(h, w_hh[d])).split(H, dim=-1)))
            c = g["f"].sigmoid() * c + g["i"].sigmoid() * g["c"].tanh()
            h = g["o"].sigmoid() * c.tanh()
            track.append(h)
        y = torch.stack(track, dim=1)
        outs.append(y if d == 0 else y.flip(1))
    return torch.cat(outs, dim=-1)


class NativeLSTM(nn.Module):
    def __init__(self, n_in, hidden, layout):
        super().__init__()
        self.layout = layout
        self.register_buffer("w_ih", torch.zeros(2, 4 * hidden, n_in))
        self.register_buffer("w_hh", torch.zeros(2, 4 * hidden, hidden))
        self.register_buffer("bias", torch.zeros(2, 4 * hidden))

    def forward(self, x):
        return bilstm_forward(x, self.w_ih, self.w_hh, self.bias, self.layout)


class GgufSegmenter(nn.Module):
    def __init__(self, layout, n_feat=12, hidden=10, n_class=7):
        super().__init__()
        self.conv = nn.Conv1d(1, n_feat, 10, stride=5)
        self.rnn = nn.ModuleList([NativeLSTM(n_feat, hidden, layout), NativeLSTM(2 * hidden, hidden, layout)])
        self.ff = nn.Linear(2 * hidden, 16)
        self.head = nn.Linear(16, n_class)

    def forward(self, pcm):
        h = F.leaky_relu(self.conv(pcm), 0.01).permute(0, 2, 1)
        for layer in self.rnn:
            h = layer(h)
        h = F.leaky_relu(self.ff(h), 0.01)
        return self.head(h).log_softmax(-1)


def write_gguf(graph):
    sd = graph.state_dict()
    out = {}
    for src, dst in (("frontend", "conv"), ("linear0", "ff"), ("classifier", "head")):
        for p in ("weight", "bias"):
            out[f"{dst}.{p}"] = sd[f"{src}.{p}"]
    for n in range(2):
        out[f"rnn.{n}.w_ih"] = sd[f"lstm{n}.W"]
        out[f"rnn.{n}.w_hh"] = sd[f"lstm{n}.R"]
        wb, rb = sd[f"lstm{n}.B"].chunk(2, dim=1)
        out[f"rnn.{n}.bias"] = wb + rb
    return out


def build(fixed):
    torch.manual_seed(101)
    original = SegmentationGraph().eval()
    port = GgufSegmenter("onnx" if fixed else "torch").eval()
    port.load_state_dict(write_gguf(original))
    return original, port, (torch.randn(2, 1, 160),)
