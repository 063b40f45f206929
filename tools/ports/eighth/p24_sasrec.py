"""After RUCAIBox/RecBole#2135.

A user ran the SASRec of a recommender library, got other results than expected, and compared
the code with the one that the authors of the paper publish.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class OfficialLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(d, d) for _ in range(4))
        self.ln_att, self.ln_ffn = nn.LayerNorm(d, eps=1e-8), nn.LayerNorm(d, eps=1e-8)
        self.conv1, self.conv2 = nn.Conv1d(d, d, 1), nn.Conv1d(d, d, 1)

    def forward(self, x, key_mask):
        b, t, d = x.shape

        def split(y):
            return torch.cat(y.split(d // self.heads, -1), 0)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        s = q @ k.transpose(1, 2) / (d // self.heads) ** 0.5
        s = s.masked_fill(~key_mask.repeat(self.heads, 1)[:, None], -1e4)
        s = s.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -1e4 * 2)
        y = torch.cat((s.softmax(-1) @ v).split(b, 0), -1)
        x = self.ln_att(x + self.dense(y))
        y = self.conv2(F.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.ln_ffn(x + y)


class OfficialSASRec(nn.Module):
    def __init__(self, items=50, maxlen=20, d=32, heads=2, blocks=2):
        super().__init__()
        self.item_emb_table = nn.Parameter(torch.randn(items + 1, d) * 0.1)
        self.pos_emb_table = nn.Parameter(torch.randn(maxlen, d) * 0.1)
        self.ln_in = nn.LayerNorm(d, eps=1e-8)
        self.num_blocks = nn.ModuleList([OfficialLayer(d, heads) for _ in range(blocks)])
        with torch.no_grad():
            self.item_emb_table[0] = 0

    def forward(self, input_seq):
        mask = input_seq != 0
        seq = self.item_emb_table[input_seq] * self.item_emb_table.shape[1] ** 0.5
        seq = self.ln_in(seq + self.pos_emb_table[: input_seq.shape[1]])
        for block in self.num_blocks:
            seq = block(seq, mask)
        return seq[:, -1] @ self.item_emb_table.t()


class MultiHeadAttention(nn.Module):
    def __init__(self, n_heads, hidden_size, layer_norm_eps):
        super().__init__()
        self.num_attention_heads, self.attention_head_size = n_heads, hidden_size // n_heads
        self.query, self.key, self.value = (nn.Linear(hidden_size, hidden_size) for _ in range(3))
        self.dense, self.LayerNorm = nn.Linear(hidden_size, hidden_size), nn.LayerNorm(hidden_size, eps=layer_norm_eps)

    def transpose_for_scores(self, x):
        return x.view(*x.shape[:-1], self.num_attention_heads, self.attention_head_size).permute(0, 2, 1, 3)

    def forward(self, input_tensor, attention_mask):
        q, k, v = (self.transpose_for_scores(f(input_tensor)) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / self.attention_head_size**0.5 + attention_mask
        context = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).flatten(2)
        return self.LayerNorm(self.dense(context) + input_tensor)


class FeedForward(nn.Module):
    def __init__(self, hidden_size, inner_size, layer_norm_eps):
        super().__init__()
        self.dense_1, self.dense_2 = nn.Linear(hidden_size, inner_size), nn.Linear(inner_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)

    def forward(self, input_tensor):
        return self.LayerNorm(self.dense_2(F.relu(self.dense_1(input_tensor))) + input_tensor)


class TransformerLayer(nn.Module):
    def __init__(self, n_heads, hidden_size, inner_size, eps):
        super().__init__()
        self.multi_head_attention = MultiHeadAttention(n_heads, hidden_size, eps)
        self.feed_forward = FeedForward(hidden_size, inner_size, eps)

    def forward(self, hidden_states, attention_mask):
        return self.feed_forward(self.multi_head_attention(hidden_states, attention_mask))


class SASRec(nn.Module):
    def __init__(self, n_items=51, max_seq_length=20, hidden_size=32, n_layers=2, n_heads=2, layer_norm_eps=1e-8):
        super().__init__()
        self.hidden_size = hidden_size
        self.item_embedding = nn.Embedding(n_items, hidden_size, padding_idx=0)
        self.position_embedding = nn.Embedding(max_seq_length, hidden_size)
        self.trm_encoder = nn.ModuleList(
            [TransformerLayer(n_heads, hidden_size, hidden_size, layer_norm_eps) for _ in range(n_layers)]
        )
        self.LayerNorm, self.dropout = nn.LayerNorm(hidden_size, eps=layer_norm_eps), nn.Dropout(0.5)

    def get_attention_mask(self, item_seq):
        t = item_seq.shape[1]
        pad = (item_seq == 0)[:, None, None] * -1e4
        return torch.minimum(pad, torch.full((t, t), -2e4).triu(1))

    def embed(self, item_seq):
        return self.item_embedding(item_seq)

    def forward(self, item_seq):
        position_ids = torch.arange(item_seq.size(1)).unsqueeze(0).expand_as(item_seq)
        input_emb = self.embed(item_seq) + self.position_embedding(position_ids)
        output = self.dropout(self.LayerNorm(input_emb))
        mask = self.get_attention_mask(item_seq)
        for layer in self.trm_encoder:
            output = layer(output, mask)
        return output[:, -1] @ self.item_embedding.weight.transpose(0, 1)


class SASRecMended(SASRec):
    def embed(self, item_seq):
        return self.item_embedding(item_seq) * self.hidden_size**0.5


def convert(sd):
    names = [
        ("item_emb_table", "item_embedding.weight"),
        ("pos_emb_table", "position_embedding.weight"),
        ("ln_in", "LayerNorm"),
        ("num_blocks", "trm_encoder"),
        ("ln_att", "multi_head_attention.LayerNorm"),
        ("ln_ffn", "feed_forward.LayerNorm"),
        ("conv1", "feed_forward.dense_1"),
        ("conv2", "feed_forward.dense_2"),
    ]
    out = {}
    for k, v in sd.items():
        for a, b in names:
            k = k.replace(a, b)
        if k.split(".")[-2] in ("query", "key", "value", "dense"):
            head, i, rest = k.split(".", 2)
            k = f"{head}.{i}.multi_head_attention.{rest}"
        out[k] = v.squeeze(-1) if v.dim() == 3 else v
    return out


def build(fixed):
    torch.manual_seed(41)
    original = OfficialSASRec().eval()
    port = (SASRecMended if fixed else SASRec)().eval()
    port.load_state_dict(convert(original.state_dict()))
    seq = torch.randint(1, 51, (4, 20))
    seq[1, :6] = 0
    seq[3, :11] = 0
    return original, port, (seq,)
