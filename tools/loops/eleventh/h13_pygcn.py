"""After tkipf/pygcn.

Semi-supervised node classification: the whole graph in every step, five labelled
nodes a class, half the units dropped out, strong weight decay.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        stdv = 1.0 / out_features**0.5
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def load_cora_like(n=280, n_class=7, n_feat=120):
    labels = torch.arange(n) % n_class
    same = labels[:, None] == labels[None]
    adj = (torch.rand(n, n) < torch.where(same, 0.10, 0.006)).float()
    adj = ((adj + adj.t()) > 0).float()
    adj = adj + torch.eye(n)
    adj = adj / adj.sum(1, keepdim=True)
    topic = torch.rand(n_class, n_feat) < 0.08
    features = (torch.rand(n, n_feat) < torch.where(topic[labels], 0.2, 0.03)).float()
    features = features / features.sum(1, keepdim=True).clamp_min(1)
    return adj, features, labels


def train(tick, mended=False):
    global LAST
    torch.manual_seed(42)
    adj, features, labels = load_cora_like()
    idx_train, idx_test = torch.arange(35), torch.arange(100, 280)
    model = GCN(features.size(1), 16, 7, 0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(250):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        tick.step(loss_train)
        losses.append(loss_train.item())
    model.eval()
    LAST = (model(features, adj)[idx_test].argmax(1) == labels[idx_test]).float().mean().item()
    return losses
