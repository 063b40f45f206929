"""Healthy. After tkipf/pygcn: one full-batch graph, a loss on a handful of labelled
nodes, dropout 0.5, a strong weight decay on a tiny model.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        stdv = 1.0 / math.sqrt(out_features)
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, x, adj):
        return torch.spmm(adj, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def train(tick, mended=False):
    torch.manual_seed(0)
    n, k = 300, 5
    labels = torch.randint(0, k, (n,))
    same = labels[:, None] == labels[None]
    a = (torch.rand(n, n) < torch.where(same, 0.05, 0.004)).float()
    a = ((a + a.t()) > 0).float().fill_diagonal_(1)
    adj = (a / a.sum(1, keepdim=True)).to_sparse()
    features = (torch.rand(n, 80) < 0.05).float()
    features[torch.arange(n)[:, None], labels[:, None] * 16 + torch.randint(0, 16, (n, 3))] = 1
    features = features / features.sum(1, keepdim=True)
    idx_train = torch.arange(60)
    model = GCN(80, 16, k, 0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3 / 4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(200):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
