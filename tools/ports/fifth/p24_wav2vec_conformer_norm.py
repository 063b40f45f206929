"""huggingface/transformers#28250: the encoder layer norm of the wav2vec2 conformer sits at a fixed place.

fairseq with layer_norm_first=False normalises before the first layer; the port always normalises after the last one.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FeedForward(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.w_1 = nn.Linear(dim, 2 * dim)
        self.w_2 = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(F.silu(self.w_1(self.layer_norm(x))))


class ConvModule(nn.Module):
    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.pointwise1 = nn.Conv1d(dim, 2 * dim, 1, bias=False)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=(kernel - 1) // 2, groups=dim, bias=False)
        self.batch_norm = nn.BatchNorm1d(dim)
        self.pointwise2 = nn.Conv1d(dim, dim, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer_norm(x).transpose(1, 2)
        x = F.glu(self.pointwise1(x), dim=1)
        x = F.silu(self.batch_norm(self.depthwise(x)))
        return self.pointwise2(x).transpose(1, 2)


class ConformerLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.ffn1 = FeedForward(dim)
        self.self_attn_layer_norm = nn.LayerNorm(dim)
        self.self_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.conv_module = ConvModule(dim, 5)
        self.ffn2 = FeedForward(dim)
        self.final_layer_norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.ffn1(x)
        h = self.self_attn_layer_norm(x)
        x = x + self.self_attn(h, h, h, need_weights=False)[0]
        x = x + self.conv_module(x)
        x = x + 0.5 * self.ffn2(x)
        return self.final_layer_norm(x)


class ConformerEncoder(nn.Module):
    def __init__(self, dim: int = 16, heads: int = 2, layers: int = 2, layer_norm_first: bool = False) -> None:
        super().__init__()
        self.layer_norm_first = layer_norm_first
        self.post_extract_proj = nn.Linear(10, dim)
        self.pos_conv = nn.Conv1d(dim, dim, 7, padding=3, groups=4)
        self.layers = nn.ModuleList([ConformerLayer(dim, heads) for _ in range(layers)])
        self.layer_norm = nn.LayerNorm(dim)
        self.ctc = nn.Linear(dim, 8)

    def forward(self, features: Tensor) -> Tensor:
        x = self.post_extract_proj(features)
        x = x + F.gelu(self.pos_conv(x.transpose(1, 2))).transpose(1, 2)
        if not self.layer_norm_first:
            x = self.layer_norm(x)
        for layer in self.layers:
            x = layer(x)
        if self.layer_norm_first:
            x = self.layer_norm(x)
        return self.ctc(x)


class ConformerConvolution(nn.Module):
    """Kernel weights as linear maps, batch norm folded into the depthwise convolution."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.gate_in = nn.Linear(hidden, hidden, bias=False)
        self.value_in = nn.Linear(hidden, hidden, bias=False)
        self.depthwise_conv = nn.Conv1d(hidden, hidden, 5, padding="same", groups=hidden)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = self.norm(hidden_states)
        gated = self.value_in(hidden_states) * torch.sigmoid(self.gate_in(hidden_states))
        mixed = self.depthwise_conv(gated.mT).mT
        return self.out(mixed * torch.sigmoid(mixed))


class ConformerBlock(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ffn1 = nn.ModuleList([nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)])
        self.attn_norm = nn.LayerNorm(hidden)
        self.linear_qkv = nn.Linear(hidden, 3 * hidden)
        self.linear_out = nn.Linear(hidden, hidden)
        self.conv = ConformerConvolution(hidden)
        self.ffn2 = nn.ModuleList([nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)])
        self.final_norm = nn.LayerNorm(hidden)

    @staticmethod
    def half_step(x: Tensor, ffn: nn.ModuleList) -> Tensor:
        norm, widen, narrow = ffn
        return torch.add(x, narrow(F.silu(widen(norm(x)))), alpha=0.5)

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.linear_qkv(x).chunk(3, dim=-1))
        return self.linear_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = self.half_step(hidden_states, self.ffn1)
        hidden_states = hidden_states + self.attention(self.attn_norm(hidden_states))
        hidden_states = hidden_states + self.conv(hidden_states)
        hidden_states = self.half_step(hidden_states, self.ffn2)
        return self.final_norm(hidden_states)


class Wav2Vec2ConformerForCTC(nn.Module):
    def __init__(self, hidden: int = 16, heads: int = 2, depth: int = 2, norm_at: str = "input") -> None:
        super().__init__()
        self.norm_at = norm_at
        self.feature_projection = nn.Linear(10, hidden)
        self.pos_conv_embed = nn.Conv1d(hidden, hidden, 7, padding="same", groups=4)
        self.layers = nn.ModuleList([ConformerBlock(hidden, heads) for _ in range(depth)])
        self.layer_norm = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, 8)

    def forward(self, extract_features: Tensor) -> Tensor:
        hidden_states = self.feature_projection(extract_features)
        hidden_states = hidden_states + F.gelu(self.pos_conv_embed(hidden_states.mT)).mT
        if self.norm_at == "input":
            hidden_states = self.layer_norm(hidden_states)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        if self.norm_at == "output":
            hidden_states = self.layer_norm(hidden_states)
        return self.lm_head(hidden_states)


@torch.no_grad()
def convert(src: ConformerEncoder, dst: Wav2Vec2ConformerForCTC) -> None:
    pairs = [(src.post_extract_proj, dst.feature_projection), (src.pos_conv, dst.pos_conv_embed)]
    pairs += [(src.layer_norm, dst.layer_norm), (src.ctc, dst.lm_head)]
    for a, b in zip(src.layers, dst.layers):
        for old, new in ((a.ffn1, b.ffn1), (a.ffn2, b.ffn2)):
            pairs += [(old.layer_norm, new[0]), (old.w_1, new[1]), (old.w_2, new[2])]
        pairs += [(a.self_attn_layer_norm, b.attn_norm), (a.self_attn.out_proj, b.linear_out)]
        pairs += [(a.conv_module.layer_norm, b.conv.norm), (a.final_layer_norm, b.final_norm)]
        b.linear_qkv.weight.copy_(a.self_attn.in_proj_weight)
        b.linear_qkv.bias.copy_(a.self_attn.in_proj_bias)
        conv, bn = a.conv_module, a.conv_module.batch_norm
        value, gate = conv.pointwise1.weight.squeeze(-1).chunk(2)
        b.conv.value_in.weight.copy_(value)
        b.conv.gate_in.weight.copy_(gate)
        gain = bn.weight * torch.rsqrt(bn.running_var + bn.eps)
        b.conv.depthwise_conv.weight.copy_(conv.depthwise.weight * gain[:, None, None])
        b.conv.depthwise_conv.bias.copy_(bn.bias - gain * bn.running_mean)
        b.conv.out.weight.copy_(conv.pointwise2.weight.squeeze(-1))
    for a, b in pairs:
        b.load_state_dict(a.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(28250)
    original = ConformerEncoder()
    for m in original.modules():
        if isinstance(m, nn.LayerNorm):
            nn.init.uniform_(m.weight, 0.6, 1.4)
            nn.init.normal_(m.bias, std=0.2)
        elif isinstance(m, nn.BatchNorm1d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.1, 0.5)
    port = Wav2Vec2ConformerForCTC(norm_at="input" if fixed else "output")
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 14, 10),)
