"""ggml-org/llama.cpp#23815: the audio encoder's rms norm eps is hard-coded to 1e-5 at conversion, the model uses 1e-6.

A conformer over quiet log-mel frames whose activations are small, so that eps matters.  The port packs q, k, v, splits
the gated projection of the convolution module in two, and writes the causal depthwise convolution as an einsum.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MELS, DIM, HEADS, KERNEL = 8, 16, 2, 5


class AudioRMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.pow(x.pow(2).mean(-1, keepdim=True) + self.eps, -0.5) * self.weight


class FeedForward(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.pre_layer_norm = AudioRMSNorm(DIM, eps)
        self.ffw_layer_1 = nn.Linear(DIM, 4 * DIM, bias=False)
        self.ffw_layer_2 = nn.Linear(4 * DIM, DIM, bias=False)
        self.post_layer_norm = AudioRMSNorm(DIM, eps)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ffw_layer_2(F.silu(self.ffw_layer_1(self.pre_layer_norm(x))))
        return x + 0.5 * 0.02 * self.post_layer_norm(h)


class Attention(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.pre_attn_norm = AudioRMSNorm(DIM, eps)
        self.q_proj = nn.Linear(DIM, DIM, bias=False)
        self.k_proj = nn.Linear(DIM, DIM, bias=False)
        self.v_proj = nn.Linear(DIM, DIM, bias=False)
        self.post = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.pre_attn_norm(x)
        q, k, v = (p(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        weights = torch.softmax(q @ k.mT * (DIM // HEADS) ** -0.5, dim=-1)
        return x + 0.02 * self.post((weights @ v).transpose(1, 2).flatten(2))


class LightConv(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.pre_layer_norm = AudioRMSNorm(DIM, eps)
        self.linear_start = nn.Linear(DIM, 2 * DIM, bias=False)
        self.depthwise_conv1d = nn.Conv1d(DIM, DIM, KERNEL, groups=DIM, bias=False)
        self.conv_norm = AudioRMSNorm(DIM, eps)
        self.linear_end = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = F.glu(self.linear_start(self.pre_layer_norm(x)), dim=-1)
        h = self.depthwise_conv1d(F.pad(h.transpose(1, 2), (KERNEL - 1, 0))).transpose(1, 2)
        return x + 0.02 * self.linear_end(F.silu(self.conv_norm(h)))


class ConformerBlock(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.ffw_start = FeedForward(eps)
        self.attention = Attention(eps)
        self.lconv1d = LightConv(eps)
        self.norm = AudioRMSNorm(DIM, eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.lconv1d(self.attention(self.ffw_start(x)))) * 0.01


class AudioEncoder(nn.Module):
    def __init__(self, depth: int = 2, eps: float = 1e-6) -> None:
        super().__init__()
        self.subsample = nn.ModuleList(
            [nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.Conv2d(4, 4, 3, stride=2, padding=1, bias=False)]
        )
        self.input_proj = nn.Linear(4 * MELS // 4, DIM, bias=False)
        self.conformer = nn.ModuleList(ConformerBlock(eps) for _ in range(depth))
        self.output_proj = nn.Linear(DIM, 12)

    def forward(self, mel: Tensor) -> Tensor:
        x = mel.unsqueeze(1)
        for conv in self.subsample:
            x = F.relu(conv(x))
        x = self.input_proj(x.permute(0, 2, 3, 1).flatten(2))
        for block in self.conformer:
            x = block(x)
        return self.output_proj(x * 100.0)


class ClipAudioBlock(nn.Module):
    """ggml names of one conformer block; rms norms are calls with the weights kept in a dict."""

    norm_names = ("ffn_norm", "ffn_post_norm", "ln_1", "norm_conv", "conv_norm", "ln_2")

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.norm = nn.ParameterDict({name: nn.Parameter(torch.empty(DIM)) for name in self.norm_names})
        self.ff_up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.ff_down = nn.Linear(4 * DIM, DIM, bias=False)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.o = nn.Linear(DIM, DIM, bias=False)
        self.conv_value = nn.Linear(DIM, DIM, bias=False)
        self.conv_gate = nn.Linear(DIM, DIM, bias=False)
        self.conv_dw = nn.Parameter(torch.empty(KERNEL, DIM))
        self.conv_pw2 = nn.Linear(DIM, DIM, bias=False)

    def rms(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (DIM,), self.norm[name], self.eps)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ff_down(F.silu(self.ff_up(self.rms(x, "ffn_norm"))))
        x = x + self.rms(h, "ffn_post_norm") * 0.01
        q, k, v = self.qkv(self.rms(x, "ln_1")).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)) * 0.02
        h = self.rms(x, "norm_conv")
        h = self.conv_value(h) * torch.sigmoid(self.conv_gate(h))
        h = torch.einsum("btck,kc->btc", F.pad(h, (0, 0, KERNEL - 1, 0)).unfold(1, KERNEL, 1), self.conv_dw)
        x = x + self.conv_pw2(F.silu(self.rms(h, "conv_norm"))) * 0.02
        return self.rms(x, "ln_2") * 0.01


class ClipAudio(nn.Module):
    def __init__(self, source: AudioEncoder, eps: float) -> None:
        super().__init__()
        self.sscp_conv_w = nn.ParameterList(conv.weight.detach().clone() for conv in source.subsample)
        self.sscp_inp_proj = nn.Linear(source.input_proj.in_features, DIM, bias=False)
        self.layers = nn.ModuleList(ClipAudioBlock(eps) for _ in source.conformer)
        self.audio_out_proj = nn.Linear(DIM, 12)
        self.sscp_inp_proj.load_state_dict(source.input_proj.state_dict())
        self.audio_out_proj.load_state_dict(source.output_proj.state_dict())
        for src, dst in zip(source.conformer, self.layers, strict=True):
            self.load_block(src, dst)

    @staticmethod
    @torch.no_grad()
    def load_block(src: ConformerBlock, dst: ClipAudioBlock) -> None:
        att, conv, ffw = src.attention, src.lconv1d, src.ffw_start
        norms = (
            ffw.pre_layer_norm,
            ffw.post_layer_norm,
            att.pre_attn_norm,
            conv.pre_layer_norm,
            conv.conv_norm,
            src.norm,
        )
        for name, norm in zip(dst.norm_names, norms, strict=True):
            dst.norm[name].copy_(norm.weight)
        value, gate = conv.linear_start.weight.chunk(2)
        dst.ff_up.weight.copy_(ffw.ffw_layer_1.weight)
        dst.ff_down.weight.copy_(ffw.ffw_layer_2.weight)
        dst.qkv.weight.copy_(torch.cat([att.q_proj.weight, att.k_proj.weight, att.v_proj.weight]))
        dst.o.weight.copy_(att.post.weight)
        dst.conv_value.weight.copy_(value)
        dst.conv_gate.weight.copy_(gate)
        dst.conv_dw.copy_(conv.depthwise_conv1d.weight.squeeze(1).T)
        dst.conv_pw2.weight.copy_(conv.linear_end.weight)

    def forward(self, mel: Tensor) -> Tensor:
        x = mel.unsqueeze(1)
        for weight in self.sscp_conv_w:
            x = F.conv2d(x, weight, stride=2, padding=1).relu()
        x = self.sscp_inp_proj(x.movedim(1, -1).flatten(2))
        for layer in self.layers:
            x = layer(x)
        return self.audio_out_proj(100.0 * x)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(127)
    original = AudioEncoder().eval()
    port = ClipAudio(original, eps=1e-6 if fixed else 1e-5).eval()
    return original, port, (torch.randn(2, 24, MELS) * 0.05,)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
