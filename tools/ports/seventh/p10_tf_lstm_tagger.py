"""After huggingface/transformers#10712: loading a TensorFlow tagger with an LSTM layer into PyTorch
runs through and gives other tags."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class TFLSTM(nn.Module):
    """Keras variables: kernel [in, 4h], recurrent_kernel [h, 4h], bias [4h]; gates i, f, c, o."""

    def __init__(self, n_in, units):
        super().__init__()
        self.units = units
        self.kernel = nn.Parameter(torch.randn(n_in, 4 * units) * 0.4)
        self.recurrent_kernel = nn.Parameter(torch.randn(units, 4 * units) * 0.4)
        self.bias = nn.Parameter(torch.randn(4 * units) * 0.1)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], self.units)
        out = []
        for t in range(x.shape[1]):
            z = x[:, t] @ self.kernel + h @ self.recurrent_kernel + self.bias
            i, f, g, o = z.split(self.units, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return torch.stack(out, 1)


class TFDense(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(n_in, n_out) * n_in**-0.5)
        self.bias = nn.Parameter(torch.randn(n_out) * 0.1)

    def forward(self, x):
        return x @ self.kernel + self.bias


class TFLayerNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gamma = nn.Parameter(1 + 0.2 * torch.randn(d))
        self.beta = nn.Parameter(0.2 * torch.randn(d))

    def forward(self, x):
        mu, var = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
        return (x - mu) / torch.sqrt(var + 1e-3) * self.gamma + self.beta


class TFTagger(nn.Module):
    def __init__(self, vocab=40, dim=16, units=12, tags=7):
        super().__init__()
        self.embeddings = nn.Parameter(torch.randn(vocab, dim))
        self.layer_norm = TFLayerNorm(dim)
        self.intermediate = TFDense(dim, dim)
        self.lstm = TFLSTM(dim, units)
        self.classifier = TFDense(units, tags)

    def forward(self, ids):
        x = self.layer_norm(self.embeddings[ids])
        x = F.gelu(self.intermediate(x)) + x
        return self.classifier(self.lstm(x))


class PtTagger(nn.Module):
    def __init__(self, vocab=40, dim=16, units=12, tags=7):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=1e-3)
        self.intermediate = nn.Linear(dim, dim)
        self.lstm = nn.LSTM(dim, units, batch_first=True)
        self.classifier = nn.Linear(units, tags)

    def forward(self, input_ids):
        h = self.LayerNorm(self.embeddings(input_ids))
        h = h + F.gelu(self.intermediate(h))
        y, _ = self.lstm(h)
        return self.classifier(y)


RENAME = {"gamma": "weight", "beta": "bias", "kernel": "weight", "embeddings": "weight"}


def convert_tf_weight_name_to_pt_weight_name(tf_name, transposed=("kernel",)):
    parts = tf_name.split(".")
    transpose = parts[-1] in transposed
    if parts[0] == "lstm":
        parts[-1] = {"kernel": "weight_ih_l0", "recurrent_kernel": "weight_hh_l0", "bias": "bias_ih_l0"}[parts[-1]]
    elif tf_name == "embeddings":
        parts = ["embeddings", "weight"]
    else:
        parts = ["LayerNorm" if p == "layer_norm" else p for p in parts]
        parts[-1] = RENAME.get(parts[-1], parts[-1])
    return ".".join(parts), transpose


def load_tf2_weights_in_pytorch_model(pt_model, tf_weights, transposed):
    target = pt_model.state_dict()
    target["lstm.bias_hh_l0"].zero_()
    for name, array in tf_weights.items():
        pt_name, transpose = convert_tf_weight_name_to_pt_weight_name(name, transposed)
        if transpose:
            array = array.t()
        if array.shape != target[pt_name].shape:
            array = array.reshape(target[pt_name].shape)
        target[pt_name] = array.clone()
    pt_model.load_state_dict(target)


def build(fixed):
    torch.manual_seed(107)
    original = TFTagger().eval()
    port = PtTagger().eval()
    names = ("kernel", "recurrent_kernel") if fixed else ("kernel",)
    load_tf2_weights_in_pytorch_model(port, {k: v.detach() for k, v in original.state_dict().items()}, names)
    return original, port, (torch.randint(0, 40, (3, 10)),)
