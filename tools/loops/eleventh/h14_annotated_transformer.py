"""After harvardnlp/annotated-transformer (copy task).

Label-smoothed KL summed and divided by tokens, learning rate that starts at zero
and follows the Noam rule with factor one.
"""

import torch
from torch import nn


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab, max_len=16):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.pos = nn.Parameter(0.1 * torch.randn(max_len, d_model))

    def forward(self, x):
        return self.lut(x) * self.lut.embedding_dim**0.5 + self.pos[: x.size(1)]


class Generator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):
        return torch.log_softmax(self.proj(x), dim=-1)


class EncoderDecoder(nn.Module):
    def __init__(self, vocab, d_model=32):
        super().__init__()
        self.src_embed = Embeddings(d_model, vocab)
        self.tgt_embed = Embeddings(d_model, vocab)
        self.core = nn.Transformer(d_model, 2, 1, 1, 64, dropout=0.0, batch_first=True)
        self.generator = Generator(d_model, vocab)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src, tgt):
        n = tgt.size(1)
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        return self.generator(self.core(self.src_embed(src), self.tgt_embed(tgt), tgt_mask=mask))


class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing):
        super().__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.padding_idx, self.smoothing, self.size = padding_idx, smoothing, size

    def forward(self, x, target):
        true_dist = torch.full_like(x, self.smoothing / (self.size - 2))
        true_dist.scatter_(1, target[:, None], 1.0 - self.smoothing)
        true_dist[:, self.padding_idx] = 0
        return self.criterion(x, true_dist)


def rate(step, model_size, factor, warmup):
    if step == 0:
        return 0.0
    return factor * (model_size**-0.5 * min(step**-0.5, step * warmup**-1.5))


def train(tick, mended=False):
    torch.manual_seed(0)
    V = 11
    model = EncoderDecoder(V)
    criterion = LabelSmoothing(V, padding_idx=0, smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, 32, 1.0, 80))
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for i in range(200):
        data = torch.randint(1, V, (30, 8))
        data[:, 0] = 1
        out = model(data, data[:, :-1])
        y = data[:, 1:]
        loss = criterion(out.flatten(0, 1), y.flatten()) / y.numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
