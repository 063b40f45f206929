"""After RUCAIBox/RecBole#2135: the library's sequential recommender and the authors' TensorFlow code
are not the same model."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class OfficialEmbedding(nn.Module):
    def __init__(self, vocab_size, num_units, zero_pad=True, scale=True):
        super().__init__()
        self.lookup_table = nn.Parameter(torch.randn(vocab_size, num_units) * 0.15)
        self.zero_pad, self.scale, self.num_units = zero_pad, scale, num_units

    def table(self):
        t = self.lookup_table
        return torch.cat([torch.zeros_like(t[:1]), t[1:]]) if self.zero_pad else t

    def forward(self, ids):
        out = self.table()[ids]
        return out * self.num_units**0.5 if self.scale else out


class OfficialAttention(nn.Module):
    def __init__(self, units, heads):
        super().__init__()
        self.heads = heads
        self.Q, self.K, self.V = nn.Linear(units, units), nn.Linear(units, units), nn.Linear(units, units)

    def forward(self, queries, keys):
        q, k, v = (
            torch.cat(f(z).chunk(self.heads, -1), 0) for f, z in ((self.Q, queries), (self.K, keys), (self.V, keys))
        )
        s = q @ k.transpose(1, 2) / k.shape[-1] ** 0.5
        key_mask = keys.abs().sum(-1).sign().repeat(self.heads, 1)[:, None]
        s = s.masked_fill(key_mask == 0, -(2.0**20))
        s = s.masked_fill(torch.ones_like(s[0]).tril() == 0, -(2.0**20))
        out = torch.cat((s.softmax(-1) @ v).chunk(self.heads, 0), -1)
        return out + queries


class OfficialBlock(nn.Module):
    def __init__(self, units, heads):
        super().__init__()
        self.attention = OfficialAttention(units, heads)
        self.norm_a, self.norm_b = nn.LayerNorm(units, eps=1e-8), nn.LayerNorm(units, eps=1e-8)
        self.conv1, self.conv2 = nn.Conv1d(units, units, 1), nn.Conv1d(units, units, 1)

    def forward(self, seq, mask):
        seq = self.norm_a(self.attention(seq, seq))
        y = self.conv2(F.relu(self.conv1(seq.transpose(1, 2)))).transpose(1, 2)
        return self.norm_b(y + seq) * mask


class OfficialSASRec(nn.Module):
    def __init__(self, n_items=40, units=16, maxlen=10, heads=2, blocks=2):
        super().__init__()
        self.input_embeddings = OfficialEmbedding(n_items + 1, units)
        self.dec_pos = OfficialEmbedding(maxlen, units, zero_pad=False, scale=False)
        self.blocks = nn.ModuleList(OfficialBlock(units, heads) for _ in range(blocks))
        self.final_norm = nn.LayerNorm(units, eps=1e-8)

    def forward(self, input_seq):
        mask = (input_seq != 0).float()[..., None]
        seq = self.input_embeddings(input_seq) + self.dec_pos(torch.arange(input_seq.shape[1]))
        seq = seq * mask
        for blk in self.blocks:
            seq = blk(seq, mask)
        return self.final_norm(seq)[:, -1] @ self.input_embeddings.table().t()


class TransformerLayer(nn.Module):
    def __init__(self, hidden_size, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value = (nn.Linear(hidden_size, hidden_size) for _ in range(3))
        self.attn_norm = nn.LayerNorm(hidden_size, eps=1e-8)
        self.dense_1, self.dense_2 = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.ffn_norm = nn.LayerNorm(hidden_size, eps=1e-8)

    def forward(self, h, bias):
        q, k, v = (f(h).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        ctx = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        h = self.attn_norm(ctx + h)
        return self.ffn_norm(self.dense_2(self.dense_1(h).relu()) + h)


class SASRec(nn.Module):
    def __init__(self, config, n_items=40, hidden_size=16, max_seq_length=10, n_heads=2, n_layers=2):
        super().__init__()
        self.item_embedding = nn.Embedding(n_items + 1, hidden_size, padding_idx=0)
        self.position_embedding = nn.Embedding(max_seq_length, hidden_size)
        self.emb_multiplier = hidden_size**0.5 if config.get("scale_item_embedding") else 1.0
        self.trm_encoder = nn.ModuleList(TransformerLayer(hidden_size, n_heads) for _ in range(n_layers))
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=1e-8)

    def get_attention_mask(self, item_seq):
        pad = item_seq.eq(0)[:, None, None, :]
        causal = torch.ones(item_seq.shape[1], item_seq.shape[1], dtype=torch.bool).triu(1)
        return torch.zeros(item_seq.shape[0], 1, *causal.shape).masked_fill(pad | causal, -1e6)

    def forward(self, item_seq):
        keep = item_seq.ne(0).unsqueeze(-1)
        position_ids = torch.arange(item_seq.size(1)).unsqueeze(0).expand_as(item_seq)
        h = self.item_embedding(item_seq) * self.emb_multiplier + self.position_embedding(position_ids)
        h = h.masked_fill(~keep, 0.0)
        bias = self.get_attention_mask(item_seq)
        for layer in self.trm_encoder:
            h = layer(h, bias).masked_fill(~keep, 0.0)
        seq_output = self.LayerNorm(h)[:, -1, :]
        return torch.matmul(seq_output, self.item_embedding.weight.transpose(0, 1))


PAIRS = {
    "attention.Q": "query",
    "attention.K": "key",
    "attention.V": "value",
    "norm_a": "attn_norm",
    "norm_b": "ffn_norm",
    "conv1": "dense_1",
    "conv2": "dense_2",
}


def from_tf(src):
    s = src.state_dict()
    o = {
        "item_embedding.weight": src.input_embeddings.table().detach(),
        "position_embedding.weight": s["dec_pos.lookup_table"],
    }
    for p in ("weight", "bias"):
        o["LayerNorm." + p] = s["final_norm." + p]
        for i in range(2):
            for a, b in PAIRS.items():
                t = s[f"blocks.{i}.{a}.{p}"]
                o[f"trm_encoder.{i}.{b}.{p}"] = t.squeeze(-1) if t.ndim == 3 else t
    return o


def build(fixed):
    torch.manual_seed(2135)
    original = OfficialSASRec().eval()
    port = SASRec({"scale_item_embedding": fixed}).eval()
    port.load_state_dict(from_tf(original))
    seq = torch.randint(1, 41, (4, 10))
    seq[1, :4] = 0
    seq[3, :7] = 0
    return original, port, (seq,)
