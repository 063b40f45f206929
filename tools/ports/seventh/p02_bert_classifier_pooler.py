"""After vllm-project/semantic-router#2249: a BERT intent classifier re-implemented for the router's
binding gives miscalibrated class probabilities next to the Hugging Face model."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class BertEmbeddings(nn.Module):
    def __init__(self, vocab, dim, max_pos=32):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, dim)
        self.position_embeddings = nn.Embedding(max_pos, dim)
        self.token_type_embeddings = nn.Embedding(2, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=1e-12)

    def forward(self, ids):
        pos = torch.arange(ids.shape[1])
        e = (
            self.word_embeddings(ids)
            + self.position_embeddings(pos)
            + self.token_type_embeddings(torch.zeros_like(ids))
        )
        return self.LayerNorm(e)


class BertLayer(nn.Module):
    def __init__(self, dim, heads, inter):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.attn_out = nn.Linear(dim, dim)
        self.attn_norm = nn.LayerNorm(dim, eps=1e-12)
        self.intermediate = nn.Linear(dim, inter)
        self.output = nn.Linear(inter, dim)
        self.out_norm = nn.LayerNorm(dim, eps=1e-12)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        s = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        s = s + (1.0 - mask[:, None, None, :]) * -1e9
        ctx = (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)
        x = self.attn_norm(x + self.attn_out(ctx))
        return self.out_norm(x + self.output(F.gelu(self.intermediate(x))))


class BertForSequenceClassification(nn.Module):
    def __init__(self, vocab=50, dim=24, heads=4, inter=48, layers=2, labels=5):
        super().__init__()
        self.embeddings = BertEmbeddings(vocab, dim)
        self.encoder = nn.ModuleList(BertLayer(dim, heads, inter) for _ in range(layers))
        self.pooler = nn.Linear(dim, dim)
        self.classifier = nn.Linear(dim, labels)

    def forward(self, input_ids, attention_mask):
        x = self.embeddings(input_ids)
        for layer in self.encoder:
            x = layer(x, attention_mask)
        return self.classifier(torch.tanh(self.pooler(x[:, 0]))).softmax(-1)


class Proj(nn.Module):
    """y = x W^T + b, weight kept as [out, in]."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight = nn.Parameter(weight.clone().contiguous())
        self.bias = nn.Parameter(bias.clone())

    def forward(self, x):
        return torch.matmul(x, self.weight.t()) + self.bias


class VarBuilder:
    def __init__(self, sd, prefix=""):
        self.sd, self.prefix = sd, prefix

    def pp(self, name):
        return VarBuilder(self.sd, f"{self.prefix}{name}.")

    def get(self, shape, name):
        t = self.sd[self.prefix + name]
        assert tuple(t.shape) == tuple(shape), (self.prefix + name, t.shape)
        return t

    def proj(self, n_out, n_in):
        return Proj(self.get((n_out, n_in), "weight"), self.get((n_out,), "bias"))


class EncoderBlock(nn.Module):
    def __init__(self, vb, dim, n_head, inter):
        super().__init__()
        self.n_head, self.dim = n_head, dim
        qkv = [vb.pp(n) for n in ("query", "key", "value")]
        self.qkv = Proj(
            torch.cat([v.get((dim, dim), "weight") for v in qkv]), torch.cat([v.get((dim,), "bias") for v in qkv])
        )
        self.o = vb.pp("attn_out").proj(dim, dim)
        self.up = vb.pp("intermediate").proj(inter, dim)
        self.down = vb.pp("output").proj(dim, inter)
        self.ln1 = nn.ParameterList([vb.get((dim,), "attn_norm.weight"), vb.get((dim,), "attn_norm.bias")])
        self.ln2 = nn.ParameterList([vb.get((dim,), "out_norm.weight"), vb.get((dim,), "out_norm.bias")])

    def forward(self, h, keep):
        B, T, _ = h.shape
        q, k, v = self.qkv(h).view(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :].bool())
        h = F.layer_norm(h + self.o(a.permute(0, 2, 1, 3).flatten(2)), (self.dim,), *self.ln1, eps=1e-12)
        return F.layer_norm(h + self.down(F.gelu(self.up(h))), (self.dim,), *self.ln2, eps=1e-12)


class TraditionalBertClassifier(nn.Module):
    def __init__(self, vb, fixed, vocab=50, dim=24, n_head=4, inter=48, layers=2, n_class=5):
        super().__init__()
        e = vb.pp("embeddings")
        self.wte = nn.Parameter(e.get((vocab, dim), "word_embeddings.weight").clone())
        self.wpe = nn.Parameter(
            (
                e.get((32, dim), "position_embeddings.weight") + e.get((2, dim), "token_type_embeddings.weight")[0]
            ).clone()
        )
        self.ln = nn.ParameterList([e.get((dim,), "LayerNorm.weight"), e.get((dim,), "LayerNorm.bias")])
        self.blocks = nn.ModuleList(EncoderBlock(vb.pp(f"encoder.{i}"), dim, n_head, inter) for i in range(layers))
        pooler_weight = vb.pp("pooler").get((dim, dim), "weight")
        pooler_bias = vb.pp("pooler").get((dim,), "bias")
        self.pooler = Proj(pooler_weight if fixed else pooler_weight.t(), pooler_bias)
        self.head = vb.pp("classifier").proj(n_class, dim)
        self.dim = dim

    def forward(self, ids, keep):
        h = F.layer_norm(self.wte[ids] + self.wpe[: ids.shape[1]], (self.dim,), *self.ln, eps=1e-12)
        for blk in self.blocks:
            h = blk(h, keep)
        cls = self.pooler(h.select(1, 0)).tanh()
        return torch.softmax(self.head(cls), dim=-1)


def build(fixed):
    torch.manual_seed(7)
    original = BertForSequenceClassification().eval()
    with torch.no_grad():
        original.pooler.weight.mul_(3)
        original.classifier.weight.mul_(4)
    port = TraditionalBertClassifier(
        VarBuilder({k: v.detach() for k, v in original.state_dict().items()}), fixed
    ).eval()
    ids = torch.randint(0, 50, (3, 9))
    mask = torch.ones(3, 9)
    mask[1, 6:] = 0
    return original, port, (ids, mask)
