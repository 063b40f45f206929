"""huggingface/transformers#21891: the autocorrelation of the Autoformer port inverts the FFT without its length.

With an odd number of time steps irfft returns one step less, and the delays come from a stretched correlation.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MovingAverage(nn.Module):
    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.avg = nn.AvgPool1d(kernel, stride=1)

    def forward(self, x: Tensor) -> Tensor:
        half = (self.kernel - 1) // 2
        front = x[:, :1].repeat(1, half, 1)
        end = x[:, -1:].repeat(1, half, 1)
        return self.avg(torch.cat((front, x, end), dim=1).permute(0, 2, 1)).permute(0, 2, 1)


class AutoCorrelation(nn.Module):
    def __init__(self, dim: int, heads: int, factor: float = 1.0) -> None:
        super().__init__()
        self.heads, self.factor = heads, factor
        self.query_projection = nn.Linear(dim, dim)
        self.key_projection = nn.Linear(dim, dim)
        self.value_projection = nn.Linear(dim, dim)
        self.out_projection = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, length, d = x.shape
        q = self.query_projection(x).view(b, length, self.heads, -1).permute(0, 2, 3, 1)
        k = self.key_projection(x).view(b, length, self.heads, -1).permute(0, 2, 3, 1)
        v = self.value_projection(x).view(b, length, self.heads, -1).permute(0, 2, 3, 1)
        spectrum = torch.fft.rfft(q, dim=-1) * torch.conj(torch.fft.rfft(k, dim=-1))
        corr = torch.fft.irfft(spectrum, n=length, dim=-1)
        mean = corr.mean(dim=1).mean(dim=1)
        weights, delay = torch.topk(mean, int(self.factor * math.log(length)), dim=-1)
        weights = torch.softmax(weights, dim=-1)
        steps = torch.arange(length).view(1, 1, 1, length).expand_as(v)
        doubled = v.repeat(1, 1, 1, 2)
        agg = torch.zeros_like(v)
        for i in range(delay.shape[1]):
            taken = torch.gather(doubled, -1, steps + delay[:, i].view(b, 1, 1, 1))
            agg = agg + taken * weights[:, i].view(b, 1, 1, 1)
        return self.out_projection(agg.permute(0, 3, 1, 2).reshape(b, length, d))


class EncoderLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention = AutoCorrelation(dim, heads)
        self.conv1 = nn.Conv1d(dim, 2 * dim, 1, bias=False)
        self.conv2 = nn.Conv1d(2 * dim, dim, 1, bias=False)
        self.decomp = MovingAverage(5)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        x = x - self.decomp(x)
        y = self.conv2(F.gelu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return (x + y) - self.decomp(x + y)


class Encoder(nn.Module):
    def __init__(self, features: int = 3, dim: int = 16, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.token = nn.Conv1d(features, dim, 3, padding=1, padding_mode="circular", bias=False)
        self.layers = nn.ModuleList([EncoderLayer(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.projection = nn.Linear(dim, features)

    def forward(self, series: Tensor) -> Tensor:
        x = self.token(series.transpose(1, 2)).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.projection(x - x.mean(dim=1, keepdim=True))


def seasonal(x: Tensor, window: int) -> Tensor:
    """Series minus its centred moving average, edges replicated."""
    padded = F.pad(x.mT, (window // 2, window // 2), mode="replicate")
    return x - padded.unfold(-1, window, 1).mean(-1).mT


class AutoformerAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, keep_length: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.keep_length = keep_length
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def _shape(self, tensor: Tensor, bsz: int, seq_len: int) -> Tensor:
        heads = tensor.view(bsz, seq_len, self.num_heads, -1).transpose(1, 2)
        return heads.reshape(bsz * self.num_heads, seq_len, -1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        bsz, tgt_len, embed_dim = hidden_states.shape
        query_states = self._shape(self.q_proj(hidden_states), bsz, tgt_len)
        key_states = self._shape(self.k_proj(hidden_states), bsz, tgt_len)
        value_states = self._shape(self.v_proj(hidden_states), bsz, tgt_len)
        query_fft = torch.fft.rfft(query_states, dim=1)
        key_fft = torch.fft.rfft(key_states, dim=1)
        attn_weights = query_fft * torch.conj(key_fft)
        attn_weights = torch.fft.irfft(attn_weights, n=tgt_len if self.keep_length else None, dim=1)
        autocorr = attn_weights.view(bsz, self.num_heads, -1, value_states.shape[-1]).mean(dim=(1, 3))
        top_k = int(math.log(tgt_len))
        top_corr, top_delays = torch.topk(autocorr, top_k, dim=1)
        probs = torch.softmax(top_corr, dim=-1).repeat_interleave(self.num_heads, dim=0)
        delays = top_delays.repeat_interleave(self.num_heads, dim=0)
        time = torch.arange(tgt_len)
        index = (time[None, None, :] + delays[:, :, None]) % tgt_len
        rows = torch.arange(index.shape[0])[:, None, None]
        rolled = value_states[rows, index]
        merged = torch.einsum("nk,nktc->ntc", probs, rolled)
        merged = merged.view(bsz, self.num_heads, tgt_len, -1).transpose(1, 2).reshape(bsz, tgt_len, embed_dim)
        return self.out_proj(merged)


class AutoformerEncoderLayer(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, keep_length: bool) -> None:
        super().__init__()
        self.self_attn = AutoformerAttention(embed_dim, num_heads, keep_length)
        self.fc1 = nn.Linear(embed_dim, 2 * embed_dim, bias=False)
        self.fc2 = nn.Linear(2 * embed_dim, embed_dim, bias=False)

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = seasonal(hidden_states + self.self_attn(hidden_states), 5)
        return seasonal(hidden_states + self.fc2(F.gelu(self.fc1(hidden_states))), 5)


class AutoformerEncoder(nn.Module):
    def __init__(self, embed_dim: int = 16, num_heads: int = 2, depth: int = 2, keep_length: bool = True) -> None:
        super().__init__()
        self.value_embedding = nn.Linear(9, embed_dim, bias=False)
        self.layers = nn.ModuleList([AutoformerEncoderLayer(embed_dim, num_heads, keep_length) for _ in range(depth)])
        self.layernorm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, 3)

    def forward(self, past_values: Tensor) -> Tensor:
        window = torch.stack((past_values.roll(1, 1), past_values, past_values.roll(-1, 1)), dim=-1)
        hidden_states = self.value_embedding(window.flatten(2))
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        hidden_states = self.layernorm(hidden_states)
        return self.head(hidden_states - hidden_states.mean(dim=1, keepdim=True))


def convert(src: Encoder) -> dict[str, Tensor]:
    state = {"value_embedding.weight": src.token.weight.flatten(1)}
    names = {"query_projection": "q_proj", "key_projection": "k_proj"}
    names |= {"value_projection": "v_proj", "out_projection": "out_proj"}
    for i, layer in enumerate(src.layers):
        for key, value in layer.attention.state_dict().items():
            module, leaf = key.split(".")
            state[f"layers.{i}.self_attn.{names[module]}.{leaf}"] = value
        state[f"layers.{i}.fc1.weight"] = layer.conv1.weight.squeeze(-1)
        state[f"layers.{i}.fc2.weight"] = layer.conv2.weight.squeeze(-1)
    state.update({f"layernorm.{k}": v for k, v in src.norm.state_dict().items()})
    state.update({f"head.{k}": v for k, v in src.projection.state_dict().items()})
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(21891)
    original = Encoder()
    port = AutoformerEncoder(keep_length=fixed)
    port.load_state_dict(convert(original))
    t = torch.arange(31.0)
    series = torch.stack([torch.sin(t / 2.1), torch.cos(t / 3.3), torch.sin(t / 5.0 + 1)], dim=-1)
    series = series.expand(2, -1, -1) + 0.3 * torch.randn(2, 31, 3)
    return original.eval(), port.eval(), (series,)
