"""After onnx/keras-onnx#33.

Keras GRU models (tf.keras default, two bias rows) converted to ONNX.  The runtime's GRU
node returns other values than model.predict.
"""

import torch
import torch.nn as nn

V, E, H, L, NC = 25, 10, 14, 2, 5


class KerasGRU(nn.Module):
    """Gate order z, r, h; kernel (in, 3u), recurrent_kernel (u, 3u), bias (2, 3u)."""

    def __init__(self, n_in, units):
        super().__init__()
        self.units = units
        self.kernel = nn.Parameter(torch.randn(n_in, 3 * units) / n_in**0.5)
        self.recurrent_kernel = nn.Parameter(torch.randn(units, 3 * units) / units**0.5)
        self.bias = nn.Parameter(torch.randn(2, 3 * units) * 0.4)

    def forward(self, x):
        h, out = x.new_zeros(x.shape[0], self.units), []
        for t in range(x.shape[1]):
            xz, xr, xh = (x[:, t] @ self.kernel + self.bias[0]).chunk(3, -1)
            rz, rr, rh = (h @ self.recurrent_kernel + self.bias[1]).chunk(3, -1)
            z, r = torch.sigmoid(xz + rz), torch.sigmoid(xr + rr)
            hh = torch.tanh(xh + r * rh)
            h = z * h + (1 - z) * hh
            out.append(h)
        return torch.stack(out, 1)


class KerasTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, E)
        self.gru = KerasGRU(E, H)
        self.gru_1 = KerasGRU(H, H)
        self.dense = nn.Linear(H, NC)

    def forward(self, tokens):
        x = self.gru_1(self.gru(self.embedding(tokens)))
        return self.dense(x).softmax(-1)


class OnnxGRU(nn.Module):
    """X (T, B, I); W (1, 3u, I); R (1, 3u, u); B (1, 6u); gates z, r, h."""

    def __init__(self, n_in, units, **attrs):
        super().__init__()
        self.attrs = attrs
        self.W = nn.Parameter(torch.empty(1, 3 * units, n_in))
        self.R = nn.Parameter(torch.empty(1, 3 * units, units))
        self.B = nn.Parameter(torch.empty(1, 6 * units))

    def forward(self, X):
        u = self.R.shape[-1]
        wz, wr, wh = self.W[0].split(u)
        rz, rr, rh = self.R[0].split(u)
        bz, br, bh, cz, cr, ch = self.B[0].split(u)
        lbr = self.attrs.get("linear_before_reset", 0)
        H_t = X.new_zeros(X.shape[1], u)
        Y = X.new_empty(X.shape[0], X.shape[1], u)
        for t, x in enumerate(X):
            z = torch.sigmoid(x @ wz.T + H_t @ rz.T + bz + cz)
            r = torch.sigmoid(x @ wr.T + H_t @ rr.T + br + cr)
            if lbr:
                n = torch.tanh(x @ wh.T + bh + r * (H_t @ rh.T + ch))
            else:
                n = torch.tanh(x @ wh.T + bh + (r * H_t) @ rh.T + ch)
            H_t = torch.lerp(n, H_t, z)
            Y[t] = H_t
        return Y


class OnnxTagger(nn.Module):
    def __init__(self, **attrs):
        super().__init__()
        self.gather = nn.Parameter(torch.empty(V, E))
        self.GRU_0 = OnnxGRU(E, H, **attrs)
        self.GRU_1 = OnnxGRU(H, H, **attrs)
        self.MatMul = nn.Parameter(torch.empty(H, NC))
        self.Add = nn.Parameter(torch.empty(NC))

    def forward(self, tokens):
        x = self.gather.index_select(0, tokens.T.reshape(-1)).view(tokens.shape[1], tokens.shape[0], E)
        y = self.GRU_1(self.GRU_0(x)).transpose(0, 1)
        return torch.softmax(y @ self.MatMul + self.Add, dim=2)


def convert(sd):
    new = {"gather": sd["embedding.weight"], "MatMul": sd["dense.weight"].T.contiguous(), "Add": sd["dense.bias"]}
    for o, n in (("gru", "GRU_0"), ("gru_1", "GRU_1")):
        new[n + ".W"] = sd[o + ".kernel"].T[None].contiguous()
        new[n + ".R"] = sd[o + ".recurrent_kernel"].T[None].contiguous()
        new[n + ".B"] = sd[o + ".bias"].reshape(1, -1)
    return new


def build(fixed):
    torch.manual_seed(33)
    original = KerasTagger().eval()
    port = OnnxTagger(linear_before_reset=1 if fixed else 0).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, V, (3, 11)),)
