"""After uxlfoundation/oneDNN#617: a DeepSpeech2-like acoustic model whose bidirectional GRU (the
two directions summed) was rebuilt from another library's GRU primitive. For some inputs the two
outputs coincide, in general they do not."""

import torch
import torch.nn as nn
import torch.nn.functional as F

FEAT, HID, CHARS = 12, 16, 9


class BatchRNN(nn.Module):
    def __init__(self, cin):
        super().__init__()
        self.norm = nn.LayerNorm(cin)
        self.rnn = nn.GRU(cin, HID, bidirectional=True)

    def forward(self, x):
        y, _ = self.rnn(self.norm(x))
        return y.view(y.shape[0], y.shape[1], 2, HID).sum(2)


class DeepSpeechRef(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(FEAT, HID, 5, stride=2, padding=2)
        self.rnns = nn.Sequential(BatchRNN(HID), BatchRNN(HID))
        self.fc = nn.Linear(HID, CHARS)

    def forward(self, spect):
        x = F.hardtanh(self.conv(spect), 0, 20).permute(2, 0, 1)
        return self.fc(self.rnns(x)).transpose(0, 1).log_softmax(-1)


class GruPrimitive(nn.Module):
    """One direction; weights in ldigo layout: (input, gate, output), gates u, r, o."""

    def __init__(self, cin, reverse, fixed):
        super().__init__()
        self.weights_layer = nn.Parameter(torch.empty(cin, 3, HID))
        self.weights_iter = nn.Parameter(torch.empty(HID, 3, HID))
        self.bias = nn.Parameter(torch.empty(4, HID))
        self.reverse, self.fixed = reverse, fixed

    def cell(self, pre, h):
        rec = torch.einsum("nc,cgh->ngh", h, self.weights_iter)
        u = torch.sigmoid(pre[:, 0] + rec[:, 0] + self.bias[0])
        r = torch.sigmoid(pre[:, 1] + rec[:, 1] + self.bias[1])
        if self.fixed:
            cand = pre[:, 2] + self.bias[2] + r * (rec[:, 2] + self.bias[3])
        else:
            cand = pre[:, 2] + (r * h) @ self.weights_iter[:, 2] + self.bias[2] + self.bias[3]
        return u * h + (1 - u) * cand.tanh()

    def forward(self, src):
        pre = torch.einsum("tnc,cgh->tngh", src, self.weights_layer)
        steps = range(len(src) - 1, -1, -1) if self.reverse else range(len(src))
        h = src.new_zeros(src.shape[1], HID)
        dst = [None] * len(src)
        for t in steps:
            h = self.cell(pre[t], h)
            dst[t] = h
        return torch.stack(dst)


class BidirectionalSum(nn.Module):
    def __init__(self, cin, fixed):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.empty(cin)), nn.Parameter(torch.empty(cin))
        self.l2r = GruPrimitive(cin, False, fixed)
        self.r2l = GruPrimitive(cin, True, fixed)

    def forward(self, x):
        x = F.layer_norm(x, x.shape[-1:]) * self.gamma + self.beta
        return self.l2r(x) + self.r2l(x)


class DS2Engine(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.front = nn.Linear(FEAT * 5, HID)
        self.layers = nn.ModuleList(BidirectionalSum(HID, fixed) for _ in range(2))
        self.classifier = nn.Linear(HID, CHARS)

    def forward(self, spect):
        windows = F.pad(spect, (2, 2)).unfold(2, 5, 2).permute(2, 0, 1, 3).flatten(2)
        x = self.front(windows).clamp(0, 20)
        for layer in self.layers:
            x = layer(x)
        return F.log_softmax(self.classifier(x), -1).transpose(0, 1)


def ldigo(w):
    r, z, n = w.chunk(3)
    return torch.stack([z, r, n], 0).permute(2, 0, 1)


def convert(sd):
    out = {
        "front.weight": sd["conv.weight"].flatten(1),
        "front.bias": sd["conv.bias"],
        "classifier.weight": sd["fc.weight"],
        "classifier.bias": sd["fc.bias"],
    }
    for i in range(2):
        s, d = f"rnns.{i}.", f"layers.{i}."
        out[d + "gamma"], out[d + "beta"] = sd[s + "norm.weight"], sd[s + "norm.bias"]
        for name, suffix in (("l2r", ""), ("r2l", "_reverse")):
            out[d + name + ".weights_layer"] = ldigo(sd[s + f"rnn.weight_ih_l0{suffix}"])
            out[d + name + ".weights_iter"] = ldigo(sd[s + f"rnn.weight_hh_l0{suffix}"])
            bi, bh = sd[s + f"rnn.bias_ih_l0{suffix}"].chunk(3), sd[s + f"rnn.bias_hh_l0{suffix}"].chunk(3)
            out[d + name + ".bias"] = torch.stack([bi[1] + bh[1], bi[0] + bh[0], bi[2], bh[2]])
    return out


def build(fixed):
    torch.manual_seed(617)
    original = DeepSpeechRef().eval()
    for p in original.parameters():
        p.data.mul_(1.8)
    port = DS2Engine(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, FEAT, 26),)
