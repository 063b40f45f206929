"""pmixer/SASRec.pytorch#47: LayerNorm is applied to the query only, keys and values stay unnormalised.

A pre-norm SASRec with item and position embeddings, causal attention and a pointwise feed-forward of 1x1 convolutions.
The port writes the convolutions as linears and the attention with nn.MultiheadAttention.
"""

import torch
from torch import Tensor, nn


class PointWiseFeedForward(nn.Module):
    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(hidden, hidden, kernel_size=1)
        self.dropout1 = nn.Dropout(dropout)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv1d(hidden, hidden, kernel_size=1)
        self.dropout2 = nn.Dropout(dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.relu(self.dropout1(self.conv1(inputs.transpose(-1, -2))))
        return self.dropout2(self.conv2(x)).transpose(-1, -2)


class SelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.dense = nn.Linear(hidden, hidden)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
        causal = torch.tril(torch.ones(x.shape[1], x.shape[1])).bool()
        weights = scores.masked_fill(~causal, -1e9).softmax(dim=-1)
        mixed = torch.einsum("bhqk,bhkd->bhqd", weights, v).permute(0, 2, 1, 3).flatten(2)
        return self.dense(mixed)


class SASRecBlock(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_layernorm = nn.LayerNorm(hidden, eps=1e-8)
        self.attention = SelfAttention(hidden, heads)
        self.forward_layernorm = nn.LayerNorm(hidden, eps=1e-8)
        self.forward_layer = PointWiseFeedForward(hidden, dropout)

    def forward(self, seqs: Tensor, keep: Tensor) -> Tensor:
        seqs = seqs + self.attention(self.attention_layernorm(seqs))
        seqs = seqs + self.forward_layer(self.forward_layernorm(seqs))
        return seqs * keep


class SASRec(nn.Module):
    def __init__(self, items: int = 60, maxlen: int = 12, hidden: int = 16, heads: int = 2, blocks: int = 2) -> None:
        super().__init__()
        self.item_emb = nn.Embedding(items + 1, hidden, padding_idx=0)
        self.pos_emb = nn.Embedding(maxlen, hidden)
        self.emb_dropout = nn.Dropout(0.2)
        self.blocks = nn.ModuleList(SASRecBlock(hidden, heads, 0.2) for _ in range(blocks))
        self.last_layernorm = nn.LayerNorm(hidden, eps=1e-8)

    def forward(self, log_seqs: Tensor, candidates: Tensor) -> Tensor:
        seqs = self.item_emb(log_seqs) * self.item_emb.embedding_dim**0.5
        seqs = seqs + self.pos_emb(torch.arange(log_seqs.shape[1]))
        keep = (log_seqs != 0).unsqueeze(-1).float()
        seqs = self.emb_dropout(seqs) * keep
        for block in self.blocks:
            seqs = block(seqs, keep)
        final = self.last_layernorm(seqs)[:, -1]
        return (self.item_emb(candidates) @ final.unsqueeze(-1)).squeeze(-1)


class TorchSASRec(nn.Module):
    """Flat lists of layers, as in the widespread single-file implementation."""

    def __init__(self, items: int, maxlen: int, hidden: int, heads: int, blocks: int, norm_kv: bool) -> None:
        super().__init__()
        self.norm_kv = norm_kv
        self.items = nn.Embedding(items + 1, hidden, padding_idx=0)
        self.positions = nn.Parameter(torch.empty(maxlen, hidden))
        self.attention_layernorms = nn.ModuleList()
        self.attention_layers = nn.ModuleList()
        self.forward_layernorms = nn.ModuleList()
        self.forward_layers = nn.ModuleList()
        for _ in range(blocks):
            self.attention_layernorms.append(nn.LayerNorm(hidden, eps=1e-8))
            self.attention_layers.append(nn.MultiheadAttention(hidden, heads, dropout=0.2))
            self.forward_layernorms.append(nn.LayerNorm(hidden, eps=1e-8))
            self.forward_layers.append(nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden)))
        self.norm = nn.LayerNorm(hidden, eps=1e-8)

    def log2feats(self, log_seqs: Tensor) -> Tensor:
        length = log_seqs.shape[1]
        timeline = log_seqs.ne(0).unsqueeze(-1)
        x = self.items(log_seqs) * (self.items.embedding_dim**0.5) + self.positions[:length]
        x = x.masked_fill(~timeline, 0.0)
        attention_mask = ~torch.tril(torch.ones(length, length, dtype=torch.bool))
        for i, attention in enumerate(self.attention_layers):
            x = x.transpose(0, 1)
            query = self.attention_layernorms[i](x)
            memory = query if self.norm_kv else x
            out, _ = attention(query, memory, memory, attn_mask=attention_mask, need_weights=False)
            x = (x + out).transpose(0, 1)
            x = x + self.forward_layers[i](self.forward_layernorms[i](x))
            x = x.masked_fill(~timeline, 0.0)
        return self.norm(x)

    def forward(self, log_seqs: Tensor, item_indices: Tensor) -> Tensor:
        final = self.log2feats(log_seqs)[:, -1, :]
        return self.items(item_indices).matmul(final.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def transfer(source: SASRec, target: TorchSASRec) -> None:
    target.items.weight.copy_(source.item_emb.weight)
    target.positions.copy_(source.pos_emb.weight)
    target.norm.load_state_dict(source.last_layernorm.state_dict())
    for i, block in enumerate(source.blocks):
        att = block.attention
        mha = target.attention_layers[i]
        mha.in_proj_weight.copy_(torch.cat([att.query.weight, att.key.weight, att.value.weight]))
        mha.in_proj_bias.copy_(torch.cat([att.query.bias, att.key.bias, att.value.bias]))
        mha.out_proj.load_state_dict(att.dense.state_dict())
        target.attention_layernorms[i].load_state_dict(block.attention_layernorm.state_dict())
        target.forward_layernorms[i].load_state_dict(block.forward_layernorm.state_dict())
        for conv, linear in ((block.forward_layer.conv1, 0), (block.forward_layer.conv2, 2)):
            target.forward_layers[i][linear].weight.copy_(conv.weight.squeeze(-1))
            target.forward_layers[i][linear].bias.copy_(conv.bias)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(115)
    original = SASRec().eval()
    with torch.no_grad():
        for block in original.blocks:
            block.attention_layernorm.weight.uniform_(0.6, 1.4)
            block.attention_layernorm.bias.normal_(0, 0.2)
    port = TorchSASRec(60, 12, 16, 2, 2, norm_kv=fixed).eval()
    transfer(original, port)
    history = torch.randint(1, 61, (3, 12))
    history[1, :4] = 0
    return original, port, (history, torch.randint(1, 61, (3, 7)))


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
