"""After JuliaGraphs/GraphNeuralNetworks.jl#325: attention-based graph layers (AGNN) with one
self-loop per node as in the definition, and the same network in another library working on an
edge list. On graphs that come with some loops of their own the two disagree."""

import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, FEATS, HID, CLASSES = 12, 9, 16, 4


class DenseAGNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(1.0))

    def forward(self, h, adj):
        mask = ((adj + torch.eye(len(adj))) > 0).float()
        hn = F.normalize(h, dim=-1)
        logits = self.beta * hn @ hn.t()
        att = logits.masked_fill(mask == 0, float("-inf")).softmax(-1)
        return att @ h


class AGNNReference(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin_in = nn.Linear(FEATS, HID)
        self.props = nn.ModuleList(DenseAGNN() for _ in range(3))
        self.lin_out = nn.Linear(HID, CLASSES)

    def forward(self, x, adj):
        h = F.relu(self.lin_in(x))
        for prop in self.props:
            h = prop(h, adj)
        return self.lin_out(h)


class EdgeGraph:
    """Edge-list view of a graph: messages run from source to target."""

    def __init__(self, adj):
        self.num_nodes = adj.shape[0]
        self.target, self.source = adj.nonzero(as_tuple=True)

    def without_loops(self):
        keep = self.source != self.target
        self.source, self.target = self.source[keep], self.target[keep]
        return self

    def with_loops(self):
        idx = torch.arange(self.num_nodes)
        self.source = torch.cat([self.source, idx])
        self.target = torch.cat([self.target, idx])
        return self


def segment_softmax(score, index, n):
    top = torch.full((n,), float("-inf")).scatter_reduce(0, index, score, "amax")
    e = (score - top[index]).exp()
    return e / torch.zeros(n).index_add(0, index, e)[index]


class AGNNConv(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(1))
        self.fixed = fixed

    def prepare(self, adj):
        g = EdgeGraph(adj)
        if self.fixed:
            g = g.without_loops()
        return g.with_loops()

    def forward(self, h, adj):
        g = self.prepare(adj)
        norm = h / h.norm(dim=1, keepdim=True).clamp_min(1e-12)
        cos = (norm[g.source] * norm[g.target]).sum(1)
        alpha = segment_softmax(self.log_temperature.exp() * cos, g.target, g.num_nodes)
        return torch.zeros_like(h).index_add(0, g.target, alpha.unsqueeze(1) * h[g.source])


class GraphChain(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATS, HID), nn.ReLU())
        self.conv1, self.conv2, self.conv3 = AGNNConv(fixed), AGNNConv(fixed), AGNNConv(fixed)
        self.readout = nn.Parameter(torch.empty(HID + 1, CLASSES))

    def forward(self, feats, adj):
        h = self.encoder(feats)
        h = self.conv3(self.conv2(self.conv1(h, adj), adj), adj)
        return torch.cat([h, torch.ones(len(h), 1)], 1) @ self.readout


def convert(sd):
    out = {
        "encoder.0.weight": sd["lin_in.weight"],
        "encoder.0.bias": sd["lin_in.bias"],
        "readout": torch.cat([sd["lin_out.weight"].t(), sd["lin_out.bias"][None]]),
    }
    for i in range(3):
        out[f"conv{i + 1}.log_temperature"] = sd[f"props.{i}.beta"].log().reshape(1)
    return out


def build(fixed):
    torch.manual_seed(325)
    original = AGNNReference().eval()
    for i, prop in enumerate(original.props):
        prop.beta.data.fill_(1.0 + 0.8 * i)
    port = GraphChain(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    adj = (torch.rand(NODES, NODES) < 0.2).float()
    adj.fill_diagonal_(0)
    adj[range(0, NODES, 2), range(0, NODES, 2)] = 1.0
    return original, port, (torch.randn(NODES, FEATS), adj)
