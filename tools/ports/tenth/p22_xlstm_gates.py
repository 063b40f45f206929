"""NX-AI/xlstm#95: the sLSTM layer of xLSTM read from pretrained weights by another code base.

Parameter names of both sides match, shapes match, nothing is missing; sequences still get other
scores from the second code base.
"""

import torch
import torch.nn.functional as F
from torch import nn


class HeadwiseLinear(nn.Module):
    def __init__(self, heads, d):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, d // heads, d // heads) * (d // heads) ** -0.5)

    def forward(self, x):
        h = x.unflatten(-1, (self.weight.size(0), -1))
        return torch.einsum("bthi,hoi->btho", h, self.weight).flatten(-2)


class sLSTMLayer(nn.Module):
    def __init__(self, d, heads, k=3):
        super().__init__()
        self.heads, self.k = heads, k
        self.conv1d = nn.Conv1d(d, d, k, groups=d)
        self.igate, self.fgate, self.zgate, self.ogate = (HeadwiseLinear(heads, d) for _ in range(4))
        self.recurrent_kernel = nn.Parameter(torch.randn(4, heads, d // heads, d // heads) * 0.4)
        self.bias = nn.Parameter(
            torch.stack([torch.full((d,), v) for v in (-1.0, 2.0, 0.1, 0.2)]) + 0.2 * torch.randn(4, d)
        )
        self.group_norm = nn.Parameter(1 + 0.2 * torch.randn(d))

    def forward(self, x):
        B, T, D = x.shape
        xc = F.silu(self.conv1d(F.pad(x.mT, (self.k - 1, 0)))).mT
        wx = torch.stack([self.igate(xc), self.fgate(xc), self.zgate(x), self.ogate(x)], 2)
        h = c = n = m = x.new_zeros(B, D)
        ys = []
        for t in range(T):
            ry = torch.einsum("bhi,ghio->bgho", h.view(B, self.heads, -1), self.recurrent_kernel).flatten(2)
            i, f, z, o = (wx[:, t] + ry + self.bias).unbind(1)
            logf = m + F.logsigmoid(f)
            m_new = i if t == 0 else torch.maximum(i, logf)
            ig, fg = (i - m_new).exp(), (logf - m_new).exp()
            c, n, m = fg * c + ig * z.tanh(), fg * n + ig, m_new
            h = o.sigmoid() * c / n
            ys.append(h)
        y = torch.stack(ys, 1).unflatten(-1, (self.heads, -1))
        return F.layer_norm(y, y.shape[-1:], eps=1e-5).flatten(-2) * self.group_norm


class xLSTM(nn.Module):
    def __init__(self, vocab=24, d=12, heads=3, depth=2):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, d)
        self.norms = nn.ModuleList([nn.LayerNorm(d, bias=False) for _ in range(depth)])
        self.blocks = nn.ModuleList([sLSTMLayer(d, heads) for _ in range(depth)])
        self.post_norm, self.lm_head = nn.LayerNorm(d, bias=False), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.token_embedding(ids)
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x))
        return self.lm_head(self.post_norm(x))


class SLSTMCell(nn.Module):
    """Dense block-diagonal matrices; all gates of a step in one product."""

    def __init__(self, d, order):
        super().__init__()
        self.order = order
        self.w_conv = nn.Parameter(torch.empty(2 * d, d))
        self.w_in = nn.Parameter(torch.empty(2 * d, d))
        self.r = nn.Parameter(torch.empty(4 * d, d))
        self.b = nn.Parameter(torch.empty(4 * d))

    def forward(self, x, x_conv):
        pre = torch.cat([x_conv @ self.w_conv.t(), x @ self.w_in.t()], -1) + self.b
        y = torch.zeros_like(x[:, 0])
        cell, norm, stab = y, y, None
        out = []
        for step in pre.unbind(1):
            gates = dict(zip(self.order, (step + y @ self.r.t()).chunk(4, dim=-1)))
            keep = -F.softplus(-gates["forget"])
            if stab is None:
                stab_next, cell, norm = gates["input"], gates["cell"].tanh(), torch.ones_like(y)
            else:
                keep = keep + stab
                stab_next = torch.where(gates["input"] > keep, gates["input"], keep)
                scale_in, scale_keep = torch.exp(gates["input"] - stab_next), torch.exp(keep - stab_next)
                cell = torch.addcmul(scale_keep * cell, scale_in, gates["cell"].tanh())
                norm = torch.addcmul(scale_in, scale_keep, norm)
            stab = stab_next
            y = torch.sigmoid(gates["output"]) * (cell / norm)
            out.append(y)
        return torch.stack(out, 1)


class SLSTMBlock(nn.Module):
    def __init__(self, d, heads, order):
        super().__init__()
        self.pre = nn.LayerNorm(d, bias=False)
        self.taps, self.taps_bias = nn.Parameter(torch.empty(3, d)), nn.Parameter(torch.empty(d))
        self.cell = SLSTMCell(d, order)
        self.head_norm = nn.GroupNorm(heads, d)

    def forward(self, x):
        h = self.pre(x)
        p = F.pad(h, (0, 0, 2, 0))
        conv = self.taps_bias + sum(p[:, j : j + h.size(1)] * self.taps[j] for j in range(3))
        y = self.cell(h, conv * conv.sigmoid())
        return x + self.head_norm(y.flatten(0, 1)).view_as(y)


class XLSTMReader(nn.Module):
    def __init__(self, vocab=24, d=12, heads=3, depth=2, order=("forget", "input", "cell", "output")):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.Sequential(*[SLSTMBlock(d, heads, order) for _ in range(depth)])
        self.logits = nn.Sequential(nn.LayerNorm(d, bias=False), nn.Linear(d, vocab, bias=False))

    def forward(self, ids):
        return self.logits(self.layers(self.embed(ids)))


def convert(sd):
    out = {
        "embed.weight": sd["token_embedding.weight"],
        "logits.0.weight": sd["post_norm.weight"],
        "logits.1.weight": sd["lm_head.weight"],
    }
    for i in range(sum(k.startswith("norms.") for k in sd)):
        s, d = f"blocks.{i}.", f"layers.{i}."

        def diag(w):
            return torch.block_diag(*w)

        out[d + "pre.weight"] = sd[f"norms.{i}.weight"]
        out[d + "taps"], out[d + "taps_bias"] = sd[s + "conv1d.weight"].squeeze(1).t(), sd[s + "conv1d.bias"]
        out[d + "cell.w_conv"] = torch.cat([diag(sd[s + g + ".weight"]) for g in ("igate", "fgate")])
        out[d + "cell.w_in"] = torch.cat([diag(sd[s + g + ".weight"]) for g in ("zgate", "ogate")])
        out[d + "cell.r"] = torch.cat([diag(r.mT) for r in sd[s + "recurrent_kernel"]])
        out[d + "cell.b"] = sd[s + "bias"].flatten()
        out[d + "head_norm.weight"] = sd[s + "group_norm"]
        out[d + "head_norm.bias"] = torch.zeros_like(sd[s + "group_norm"])
    return out


def build(fixed):
    torch.manual_seed(71)
    original = xLSTM().eval()
    order = ("input", "forget", "cell", "output") if fixed else ("forget", "input", "cell", "output")
    port = XLSTMReader(order=order).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 24, (2, 9)),)
