"""Andras7/word2vec-pytorch: skip-gram with negative sampling, sparse embedding gradients and SparseAdam; the output
table starts at zero, the first loss is a sum of equal logs."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SkipGramModel(nn.Module):
    def __init__(self, emb_size=80, emb_dimension=16):
        super().__init__()
        self.u_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=True)
        self.v_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=True)
        initrange = 1.0 / emb_dimension
        nn.init.uniform_(self.u_embeddings.weight.data, -initrange, initrange)
        nn.init.constant_(self.v_embeddings.weight.data, 0)

    def forward(self, pos_u, pos_v, neg_v):
        emb_u, emb_v = self.u_embeddings(pos_u), self.v_embeddings(pos_v)
        emb_neg_v = self.v_embeddings(neg_v)
        score = -F.logsigmoid((emb_u * emb_v).sum(1).clamp(-10, 10))
        neg_score = torch.bmm(emb_neg_v, emb_u.unsqueeze(2)).squeeze(2).clamp(-10, 10)
        return (score - F.logsigmoid(-neg_score).sum(1)).mean()


class Corpus:
    def __init__(self, topics=5, words=16, sentences=300, length=8):
        self.topic = torch.arange(topics * words) // words
        t = torch.randint(0, topics, (sentences, 1))
        zipf = 1.0 / torch.arange(1, words + 1)
        self.sentences = t * words + torch.multinomial(zipf, sentences * length, True).view(sentences, length)
        freq = torch.bincount(self.sentences.flatten(), minlength=topics * words).float()
        self.negatives = freq.sqrt() / freq.sqrt().sum()

    def pairs(self, window=2):
        out = []
        for off in range(1, window + 1):
            a, b = self.sentences[:, :-off].flatten(), self.sentences[:, off:].flatten()
            out += [torch.stack([a, b], 1), torch.stack([b, a], 1)]
        return torch.cat(out)


def train(tick, mended=False):
    torch.manual_seed(0)
    data = Corpus()
    pairs = data.pairs()
    skip_gram_model = SkipGramModel()
    optimizer = torch.optim.SparseAdam(list(skip_gram_model.parameters()), lr=2e-2)
    iterations, batch = 3, 128
    total = iterations * ((len(pairs) + batch - 1) // batch)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    tick.model(skip_gram_model)
    tick.optimizer(optimizer)
    losses = []
    for _iteration in range(iterations):
        for idx in torch.randperm(len(pairs)).split(batch):
            pos_u, pos_v = pairs[idx].unbind(1)
            neg_v = torch.multinomial(data.negatives, len(idx) * 5, True).view(-1, 5)
            optimizer.zero_grad()
            loss = skip_gram_model(pos_u, pos_v, neg_v)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        e = F.normalize(skip_gram_model.u_embeddings.weight, dim=1)
        near = (e @ e.T).fill_diagonal_(-9).topk(3, 1).indices
        train.final = (data.topic[near] == data.topic[:, None]).float().mean().item()
    return losses
