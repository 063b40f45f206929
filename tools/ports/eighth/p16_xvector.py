"""After huggingface/transformers#25476.

While repairing the speaker-embedding head of a speech model, a contributor listed where the
library's x-vector differs from what papers and other toolkits compute.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class StatsPool(nn.Module):
    """[mean; std] over time, as kaldi's StatisticsPoolingComponent computes it."""

    def forward(self, x, lengths):
        out = []
        for row, n in zip(x, lengths.tolist()):
            row = row[:n]
            mean = row.sum(0) / n
            var = (row - mean).square().sum(0) / n
            out.append(torch.cat([mean, var.sqrt()]))
        return torch.stack(out)


class SpliceTDNN(nn.Module):
    def __init__(self, cin, cout, context):
        super().__init__()
        self.context = context
        self.affine = nn.Linear(cin * len(context), cout)

    def forward(self, x):
        span = self.context[-1] - self.context[0]
        n = x.shape[1] - span
        pieces = [x[:, c - self.context[0] : c - self.context[0] + n] for c in self.context]
        return F.relu(self.affine(torch.cat(pieces, -1)))


class KaldiXVector(nn.Module):
    def __init__(self, feat=20, dim=32, stats=40, emb=24, layers=3):
        super().__init__()
        self.layer_weights = nn.Parameter(torch.randn(layers))
        self.projector = nn.Linear(feat, dim)
        self.tdnn1 = SpliceTDNN(dim, dim, (-2, -1, 0, 1, 2))
        self.tdnn2 = SpliceTDNN(dim, dim, (-2, 0, 2))
        self.tdnn3 = SpliceTDNN(dim, stats, (0,))
        self.stats = StatsPool()
        self.tdnn6, self.tdnn7 = nn.Linear(2 * stats, emb), nn.Linear(emb, emb)

    def forward(self, hidden_states, lengths):
        x = torch.einsum("lbtf,l->btf", hidden_states, self.layer_weights.softmax(0))
        x = self.tdnn3(self.tdnn2(self.tdnn1(self.projector(x))))
        a = self.tdnn6(self.stats(x, lengths - 8))
        return F.normalize(self.tdnn7(F.relu(a)), dim=-1)


class TDNNLayer(nn.Module):
    def __init__(self, in_conv_dim, out_conv_dim, kernel_size, dilation):
        super().__init__()
        self.kernel_size, self.dilation, self.in_conv_dim = kernel_size, dilation, in_conv_dim
        self.kernel = nn.Linear(in_conv_dim * kernel_size, out_conv_dim)
        self.activation = nn.ReLU()

    def forward(self, hidden_states):
        h = F.unfold(
            hidden_states.unsqueeze(1),
            (self.kernel_size, self.in_conv_dim),
            stride=(1, self.in_conv_dim),
            dilation=(self.dilation, 1),
        )
        return self.activation(self.kernel(h.transpose(1, 2)))


class ForXVector(nn.Module):
    TDNN = ((32, 32, 5, 1), (32, 32, 3, 2), (32, 40, 1, 1))

    def __init__(self, feat=20, xvector_output_dim=24, layers=3):
        super().__init__()
        self.layer_weights = nn.Parameter(torch.ones(layers) / layers)
        self.projector = nn.Linear(feat, 32)
        self.tdnn = nn.ModuleList([TDNNLayer(*spec) for spec in self.TDNN])
        self.feature_extractor = nn.Linear(80, xvector_output_dim)
        self.classifier = nn.Linear(xvector_output_dim, xvector_output_dim)

    def tdnn_output_lengths(self, lengths):
        for _, _, k, d in self.TDNN:
            lengths = lengths - d * (k - 1)
        return lengths

    def pool(self, hidden_states, lengths):
        mean_features, std_features = [], []
        for i, length in enumerate(self.tdnn_output_lengths(lengths)):
            mean_features.append(hidden_states[i, :length].mean(dim=0))
            std_features.append(hidden_states[i, :length].std(dim=0))
        return torch.cat([torch.stack(mean_features), torch.stack(std_features)], dim=-1)

    def forward(self, hidden_states, lengths):
        w = F.softmax(self.layer_weights, dim=-1)
        h = self.projector((hidden_states * w.view(-1, 1, 1, 1)).sum(0))
        for layer in self.tdnn:
            h = layer(h)
        h = self.feature_extractor(self.pool(h, lengths))
        h = self.classifier(torch.relu(h))
        return h / h.norm(dim=-1, keepdim=True)


class ForXVectorMended(ForXVector):
    def pool(self, hidden_states, lengths):
        rows = [hidden_states[i, :n] for i, n in enumerate(self.tdnn_output_lengths(lengths))]
        return torch.stack([torch.cat([r.mean(0), r.std(0, unbiased=False)]) for r in rows])


def convert(sd):
    names = {
        "tdnn1.affine": "tdnn.0.kernel",
        "tdnn2.affine": "tdnn.1.kernel",
        "tdnn3.affine": "tdnn.2.kernel",
        "tdnn6": "feature_extractor",
        "tdnn7": "classifier",
    }
    out = {}
    for k, v in sd.items():
        for a, b in names.items():
            k = k.replace(a, b)
        out[k] = v
    return out


def build(fixed):
    torch.manual_seed(23)
    original = KaldiXVector().eval()
    with torch.no_grad():
        original.tdnn6.weight.mul_(3)
    port = (ForXVectorMended if fixed else ForXVector)().eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(3, 3, 20, 20) * 2, torch.tensor([20, 16, 13]))
