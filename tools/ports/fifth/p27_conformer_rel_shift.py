"""ZhengkunTian/OpenTransformer#25: the Transformer-XL shift trick is used without the causal mask it relies on.

With T position vectors only, entries above the diagonal come from the next row's distances instead of the future.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sinusoids(positions: Tensor, dim: int) -> Tensor:
    freq = torch.exp(torch.arange(0, dim, 2) * -(math.log(10000.0) / dim))
    angles = positions[:, None] * freq
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class RelativeAttention(nn.Module):
    """Both directions: distance i - j runs from T - 1 down to -(T - 1)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.d_k = heads, dim // heads
        self.linear_q = nn.Linear(dim, dim)
        self.linear_k = nn.Linear(dim, dim)
        self.linear_v = nn.Linear(dim, dim)
        self.linear_pos = nn.Linear(dim, dim, bias=False)
        self.linear_out = nn.Linear(dim, dim)
        self.pos_bias_u = nn.Parameter(torch.randn(heads, self.d_k) * 0.3)
        self.pos_bias_v = nn.Parameter(torch.randn(heads, self.d_k) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q = self.linear_q(x).view(b, t, self.heads, self.d_k)
        k = self.linear_k(x).view(b, t, self.heads, self.d_k).transpose(1, 2)
        v = self.linear_v(x).view(b, t, self.heads, self.d_k).transpose(1, 2)
        distance = torch.arange(t)[:, None] - torch.arange(t)[None, :]
        p = self.linear_pos(sinusoids(torch.arange(-(t - 1.0), t), d)).view(2 * t - 1, self.heads, self.d_k)
        content = (q + self.pos_bias_u).transpose(1, 2) @ k.transpose(-2, -1)
        position = torch.einsum("bthd,nhd->bhtn", q + self.pos_bias_v, p)
        position = position.gather(3, (distance + t - 1).expand(b, self.heads, t, t))
        attn = torch.softmax((content + position) / math.sqrt(self.d_k), dim=-1)
        return self.linear_out((attn @ v).transpose(1, 2).reshape(b, t, d))


class SpeechLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm_mha = nn.LayerNorm(dim)
        self.mha = RelativeAttention(dim, heads)
        self.norm_ffn = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GLU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mha(self.norm_mha(x))
        return x + self.ffn(self.norm_ffn(x))


class SpeechEncoder(nn.Module):
    def __init__(self, mels: int = 12, dim: int = 16, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.subsample = nn.Conv1d(mels, dim, 3, 2, 1)
        self.layers = nn.ModuleList([SpeechLayer(dim, heads) for _ in range(layers)])
        self.after_norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, 7)

    def forward(self, fbank: Tensor) -> Tensor:
        x = F.relu(self.subsample(fbank.transpose(1, 2))).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.after_norm(x))


class MultiHeadedSelfAttentionWithRelPos(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bidirectional: bool) -> None:
        super().__init__()
        self.nheads, self.d_k = n_heads, d_model // n_heads
        self.bidirectional = bidirectional
        self.qvk_proj = nn.Linear(d_model, 3 * d_model)
        self.pos_proj = nn.Linear(d_model, d_model, bias=False)
        self.output_proj = nn.Linear(d_model, d_model)
        self.posu = nn.Parameter(torch.zeros(1, n_heads, 1, self.d_k))
        self.posv = nn.Parameter(torch.zeros(1, n_heads, 1, self.d_k))

    def relative_positions(self, length: int) -> Tensor:
        last = -float(length) if self.bidirectional else -1.0
        return torch.arange(length - 1.0, last, -1.0)

    def shift(self, scores: Tensor) -> Tensor:
        """Pad one column, reinterpret, drop the first row: row i moves left by T - 1 - i."""
        b, h, t, n = scores.shape
        padded = torch.cat([scores.new_zeros(b, h, t, 1), scores], dim=-1)
        return padded.view(b, h, n + 1, t)[:, :, 1:].reshape(b, h, t, n)[..., :t]

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1:]
        q, v, k = (t.unflatten(-1, (self.nheads, -1)).transpose(1, 2) for t in torch.split(self.qvk_proj(x), width, -1))
        pos = self.pos_proj(sinusoids(self.relative_positions(length), width))
        pos = pos.unflatten(-1, (self.nheads, -1)).transpose(0, 1)
        matrix_ac = torch.matmul(q + self.posu, k.mT)
        matrix_bd = self.shift(torch.matmul(q + self.posv, pos.mT))
        weights = F.softmax((matrix_ac + matrix_bd) * self.d_k**-0.5, dim=-1)
        return self.output_proj(torch.matmul(weights, v).transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bidirectional: bool) -> None:
        super().__init__()
        self.slf_attn = MultiHeadedSelfAttentionWithRelPos(d_model, n_heads, bidirectional)
        self.w_value = nn.Linear(d_model, 2 * d_model)
        self.w_gate = nn.Linear(d_model, 2 * d_model)
        self.w_out = nn.Linear(2 * d_model, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.slf_attn(self.norm1(x))
        h = self.norm2(x)
        return x + self.w_out(self.w_value(h) * torch.sigmoid(self.w_gate(h)))


class TransformerEncoder(nn.Module):
    def __init__(self, d_model: int = 16, n_heads: int = 2, n_blocks: int = 2, bidirectional: bool = True) -> None:
        super().__init__()
        self.frontend = nn.Linear(36, d_model)
        self.blocks = nn.ModuleList([EncoderBlock(d_model, n_heads, bidirectional) for _ in range(n_blocks)])
        self.norm = nn.LayerNorm(d_model)
        self.ctc = nn.Linear(d_model, 7)

    def forward(self, inputs: Tensor) -> Tensor:
        windows = F.pad(inputs, (0, 0, 1, 1)).unfold(1, 3, 2).flatten(2)
        x = self.frontend(windows).relu()
        for block in self.blocks:
            x = block(x)
        return self.ctc(self.norm(x))


@torch.no_grad()
def convert(src: SpeechEncoder, dst: TransformerEncoder) -> None:
    dst.frontend.weight.copy_(src.subsample.weight.flatten(1))
    dst.frontend.bias.copy_(src.subsample.bias)
    pairs = [(src.after_norm, dst.norm), (src.output, dst.ctc)]
    for a, b in zip(src.layers, dst.blocks):
        mha, attn = a.mha, b.slf_attn
        for leaf in ("weight", "bias"):
            fused = [getattr(m, leaf) for m in (mha.linear_q, mha.linear_v, mha.linear_k)]
            getattr(attn.qvk_proj, leaf).copy_(torch.cat(fused))
            value, gate = getattr(a.ffn[0], leaf).chunk(2)
            getattr(b.w_value, leaf).copy_(value)
            getattr(b.w_gate, leaf).copy_(gate)
        attn.posu.copy_(mha.pos_bias_u[None, :, None])
        attn.posv.copy_(mha.pos_bias_v[None, :, None])
        pairs += [(mha.linear_pos, attn.pos_proj), (mha.linear_out, attn.output_proj), (a.ffn[2], b.w_out)]
        pairs += [(a.norm_mha, b.norm1), (a.norm_ffn, b.norm2)]
    for a, b in pairs:
        b.load_state_dict(a.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(25)
    original = SpeechEncoder()
    for layer in original.layers:
        nn.init.normal_(layer.mha.linear_pos.weight, std=0.6)
    port = TransformerEncoder(bidirectional=fixed)
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 18, 12),)
