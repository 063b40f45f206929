"""After fastai/fastai#2090.

Language model learner with the Transformer architecture and tied weights.  The pull request
is about the call that applies init_transformer; the thread prints the deviation of the
encoder weights and training runs that start at a loss of 95.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def init_transformer(m):
    if isinstance(m, (nn.Linear, nn.Embedding)):
        nn.init.normal_(m.weight, 0.0, 0.02)
        if getattr(m, "bias", None) is not None:
            nn.init.zeros_(m.bias)
    elif isinstance(m, nn.LayerNorm):
        nn.init.ones_(m.weight)
        nn.init.zeros_(m.bias)


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_inner):
        super().__init__()
        self.mhra = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.ln1 = nn.LayerNorm(d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, d_inner), nn.GELU(), nn.Linear(d_inner, d_model))
        self.ln2 = nn.LayerNorm(d_model)

    def forward(self, x, mask):
        x = self.ln1(x + self.mhra(x, x, x, attn_mask=mask, need_weights=False)[0])
        return self.ln2(x + self.ff(x))


class Transformer(nn.Module):
    def __init__(self, vocab_sz, ctx_len, n_layers, n_heads, d_model, d_inner):
        super().__init__()
        self.encoder = nn.Embedding(vocab_sz, d_model)
        self.pos_enc = nn.Embedding(ctx_len, d_model)
        self.layers = nn.ModuleList(DecoderLayer(d_model, n_heads, d_inner) for _ in range(n_layers))

    def forward(self, x):
        n = x.size(1)
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        h = self.encoder(x) + self.pos_enc(torch.arange(n))
        for layer in self.layers:
            h = layer(h, mask)
        return h


class LinearDecoder(nn.Module):
    def __init__(self, tie_encoder):
        super().__init__()
        self.decoder = nn.Linear(tie_encoder.embedding_dim, tie_encoder.num_embeddings, bias=False)
        self.decoder.weight = tie_encoder.weight

    def forward(self, h):
        return self.decoder(h)


def get_language_model(config, mended):
    encoder = Transformer(**config)
    model = nn.Sequential(encoder, LinearDecoder(encoder.encoder))
    if mended:
        model.apply(init_transformer)
    else:
        for layer in encoder.layers:
            layer.apply(init_transformer)
    return model


def batches(table, bs, seq_len, n):
    for _ in range(n):
        ids = [torch.randint(0, table.size(0), (bs,))]
        for _ in range(seq_len):
            noise = torch.rand(bs) < 0.1
            nxt = torch.where(noise, torch.randint(0, table.size(0), (bs,)), table[ids[-1]])
            ids.append(nxt)
        seq = torch.stack(ids, 1)
        yield seq[:, :-1], seq[:, 1:]


def train(tick, mended=False):
    torch.manual_seed(42)
    config = {"vocab_sz": 96, "ctx_len": 16, "n_layers": 2, "n_heads": 2, "d_model": 64, "d_inner": 96}
    model = get_language_model(config, mended)
    table = torch.randperm(96)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    losses = []
    tick.model(model)
    tick.optimizer(opt)
    model.train()
    for xb, yb in batches(table, 24, 16, 120):
        loss = F.cross_entropy(model(xb).flatten(0, 1), yb.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
