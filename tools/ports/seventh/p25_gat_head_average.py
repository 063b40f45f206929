"""After danielegrattarola/spektral#146: a graph attention layer of a library against the authors'
repository: not the same order of operations at the end of the layer."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class AttnHead(nn.Module):
    """One head as in the authors' code: 1x1 conv features, two 1x1 convs for the logits."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.seq_fts = nn.Conv1d(n_in, n_out, 1, bias=False)
        self.f_1, self.f_2 = nn.Conv1d(n_out, 1, 1), nn.Conv1d(n_out, 1, 1)
        self.bias = nn.Parameter(torch.randn(n_out) * 0.3)

    def forward(self, seq, bias_mat, activation):
        fts = self.seq_fts(seq.transpose(1, 2))
        logits = self.f_1(fts).transpose(1, 2) + self.f_2(fts)
        coefs = torch.softmax(F.leaky_relu(logits, 0.2) + bias_mat, dim=-1)
        ret = torch.matmul(coefs, fts.transpose(1, 2)) + self.bias
        return activation(ret)


class OfficialGAT(nn.Module):
    def __init__(self, n_in=10, hidden=8, mid=12, classes=5, heads=(4, 4, 3)):
        super().__init__()
        self.attn_1 = nn.ModuleList(AttnHead(n_in, hidden) for _ in range(heads[0]))
        self.attn_2 = nn.ModuleList(AttnHead(hidden * heads[0], mid) for _ in range(heads[1]))
        self.attn_3 = nn.ModuleList(AttnHead(mid, classes) for _ in range(heads[2]))

    @staticmethod
    def adj_to_bias(adj):
        return -1e9 * (1.0 - ((adj + torch.eye(adj.shape[-1])) > 0).float())

    def forward(self, x, adj):
        bias = self.adj_to_bias(adj)
        h = torch.cat([head(x, bias, F.elu) for head in self.attn_1], dim=-1)
        h = sum(head(h, bias, F.elu) for head in self.attn_2) / len(self.attn_2)
        out = sum(head(h, bias, lambda t: t) for head in self.attn_3) / len(self.attn_3)
        return out.log_softmax(-1)


class GATConv(nn.Module):
    def __init__(self, n_in, channels, attn_heads, concat_heads, activation, head_first=False):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(n_in, attn_heads, channels))
        self.attn_kernel_self = nn.Parameter(torch.zeros(channels, attn_heads))
        self.attn_kernel_neighs = nn.Parameter(torch.zeros(channels, attn_heads))
        self.attn_bias = nn.Parameter(torch.zeros(attn_heads))
        self.bias = nn.Parameter(torch.zeros(attn_heads, channels))
        self.concat_heads, self.activation, self.head_first = concat_heads, activation, head_first

    def forward(self, x, a):
        n = a.shape[-1]
        a = torch.where(torch.eye(n, dtype=torch.bool), torch.ones(()), a)
        x = torch.einsum("bni,iho->bnho", x, self.kernel)
        e_self = torch.einsum("bnho,oh->bnh", x, self.attn_kernel_self)
        e_neigh = torch.einsum("bnho,oh->bnh", x, self.attn_kernel_neighs)
        e = e_self[:, :, None] + e_neigh[:, None] + self.attn_bias
        e = torch.where(e > 0, e, 0.2 * e).masked_fill(a.unsqueeze(-1) == 0, -1e9)
        alpha = torch.softmax(e, dim=2)
        out = torch.einsum("bnmh,bmho->bnho", alpha, x)
        if self.concat_heads:
            out = self.activation((out + self.bias).flatten(2))
        elif self.head_first:
            out = self.activation(out + self.bias).mean(2)
        else:
            out = self.activation(out.mean(2) + self.bias.mean(0))
        return out


def identity(t):
    return t


class SpektralGAT(nn.Module):
    def __init__(self, head_first, n_in=10, hidden=8, mid=12, classes=5, heads=(4, 4, 3)):
        super().__init__()
        kw = {"head_first": head_first}
        self.conv0 = GATConv(n_in, hidden, heads[0], True, F.elu, **kw)
        self.conv1 = GATConv(hidden * heads[0], mid, heads[1], False, F.elu, **kw)
        self.conv2 = GATConv(mid, classes, heads[2], False, identity, **kw)

    def forward(self, x, a):
        for conv in (self.conv0, self.conv1, self.conv2):
            x = conv(x, a)
        return F.log_softmax(x, dim=-1)


@torch.no_grad()
def load_heads(conv, heads):
    conv.kernel.copy_(torch.stack([h.seq_fts.weight[:, :, 0].t() for h in heads], 1))
    conv.attn_kernel_self.copy_(torch.stack([h.f_1.weight[0, :, 0] for h in heads], 1))
    conv.attn_kernel_neighs.copy_(torch.stack([h.f_2.weight[0, :, 0] for h in heads], 1))
    conv.attn_bias.copy_(torch.stack([h.f_1.bias[0] + h.f_2.bias[0] for h in heads]))
    conv.bias.copy_(torch.stack([h.bias for h in heads]))


def build(fixed):
    torch.manual_seed(146)
    original = OfficialGAT().eval()
    with torch.no_grad():
        for m in original.modules():
            if isinstance(m, AttnHead):
                m.seq_fts.weight.mul_(2.5)
    port = SpektralGAT(head_first=fixed).eval()
    for conv, heads in ((port.conv0, original.attn_1), (port.conv1, original.attn_2), (port.conv2, original.attn_3)):
        load_heads(conv, heads)
    adj = (torch.rand(14, 14) < 0.2).float()
    adj = ((adj + adj.t()) > 0).float().fill_diagonal_(0)
    return original, port, (torch.randn(2, 14, 10), adj)
