"""speechbrain/speechbrain#800: a conformer encoder rebuilt in another toolkit.

A user who could not reach the other toolkit's results compared the layers one by one: every
conformer layer of the rebuilt encoder has fewer parameters than the original's.
"""

import torch
import torch.nn.functional as F
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.w_1, self.w_2 = nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x):
        return self.w_2(F.silu(self.w_1(self.norm(x))))


class ConvModule(nn.Module):
    def __init__(self, d, k=5):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.pointwise_conv1 = nn.Conv1d(d, 2 * d, 1)
        self.depthwise_conv = nn.Conv1d(d, d, k, padding=k // 2, groups=d)
        self.bn = nn.BatchNorm1d(d)
        self.pointwise_conv2 = nn.Conv1d(d, d, 1)

    def forward(self, x):
        y = F.glu(self.pointwise_conv1(self.norm(x).mT), dim=1)
        return self.pointwise_conv2(F.silu(self.bn(self.depthwise_conv(y)))).mT


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)

    def forward(self, x):
        h = self.norm(x)
        return self.attn(h, h, h, need_weights=False)[0]


class ConformerBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.feed_forward_macaron = FeedForward(d)
        self.self_attn = SelfAttention(d, heads)
        self.conv_module = ConvModule(d)
        self.feed_forward = FeedForward(d)
        self.norm_final = nn.LayerNorm(d)

    def forward(self, x):
        x = x + 0.5 * self.feed_forward_macaron(x)
        x = x + self.self_attn(x)
        x = x + self.conv_module(x)
        x = x + 0.5 * self.feed_forward(x)
        return self.norm_final(x)


class ConformerEncoder(nn.Module):
    def __init__(self, n_mels=10, d=12, heads=2, depth=2, vocab=9):
        super().__init__()
        self.subsample = nn.Conv1d(n_mels, d, 3, stride=2)
        self.encoders = nn.ModuleList([ConformerBlock(d, heads) for _ in range(depth)])
        self.ctc_lo = nn.Linear(d, vocab)

    def forward(self, feats):
        x = F.relu(self.subsample(feats.mT)).mT
        for block in self.encoders:
            x = block(x)
        return self.ctc_lo(x)


class ConvolutionModule(nn.Module):
    """Gate and value of the GLU are separate layers, the batch norm is an affine map."""

    def __init__(self, d, k):
        super().__init__()
        self.layer_norm = nn.LayerNorm(d)
        self.value, self.gate, self.after = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.taps, self.shift = nn.Parameter(torch.empty(k, d)), nn.Parameter(torch.empty(d))

    def forward(self, x):
        x = self.layer_norm(x)
        x = self.value(x) * self.gate(x).sigmoid()
        k = self.taps.size(0)
        x = torch.einsum("btdk,kd->btd", F.pad(x, (0, 0, k // 2, k // 2)).unfold(1, k, 1), self.taps) + self.shift
        return self.after(x * x.sigmoid())


class ConformerEncoderLayer(nn.Module):
    def __init__(self, d_model, nhead, share_ffn):
        super().__init__()
        self.nhead = nhead

        def ffn():
            return nn.Sequential(
                nn.LayerNorm(d_model), nn.Linear(d_model, 3 * d_model), nn.SiLU(), nn.Linear(3 * d_model, d_model)
            )

        self.ffn_module1 = ffn()
        self.ffn_module2 = self.ffn_module1 if share_ffn else ffn()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.in_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.convolution_module = ConvolutionModule(d_model, 5)

    def mha(self, x):
        q, k, v = (t.unflatten(-1, (self.nhead, -1)).transpose(1, 2) for t in self.in_proj(x).chunk(3, -1))
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = torch.add(x, self.ffn_module1(x), alpha=0.5)
        x = self.mha(self.norm1(x)) + x
        x = self.convolution_module(x) + x
        return self.norm2(torch.add(x, self.ffn_module2(x), alpha=0.5))


class SpeechEncoder(nn.Module):
    def __init__(self, n_mels=10, d_model=12, nhead=2, num_layers=2, vocab=9, share_ffn=True):
        super().__init__()
        self.frontend = nn.Linear(3 * n_mels, d_model)
        self.layers = nn.ModuleList([ConformerEncoderLayer(d_model, nhead, share_ffn) for _ in range(num_layers)])
        self.ctc_lin = nn.Linear(d_model, vocab)

    def forward(self, wav_feats):
        x = self.frontend(wav_feats.unfold(1, 3, 2).flatten(2)).relu()
        for layer in self.layers:
            x = layer(x)
        return self.ctc_lin(x)


def convert(sd):
    out = {"frontend.weight": sd["subsample.weight"].flatten(1), "frontend.bias": sd["subsample.bias"]}
    out["ctc_lin.weight"], out["ctc_lin.bias"] = sd["ctc_lo.weight"], sd["ctc_lo.bias"]
    for i in range(sum(k.endswith("norm_final.weight") for k in sd)):
        s, d = f"encoders.{i}.", f"layers.{i}."
        c, m = s + "conv_module.", d + "convolution_module."
        for k in ("weight", "bias"):
            for a, b in (("feed_forward_macaron", "ffn_module1"), ("feed_forward", "ffn_module2")):
                for x, y in (("norm", "0"), ("w_1", "1"), ("w_2", "3")):
                    out[f"{d}{b}.{y}.{k}"] = sd[f"{s}{a}.{x}.{k}"]
            out[d + "norm1." + k], out[d + "norm2." + k] = sd[s + "self_attn.norm." + k], sd[s + "norm_final." + k]
            out[d + "in_proj." + k] = sd[s + "self_attn.attn.in_proj_" + k]
            out[d + "out_proj." + k] = sd[s + "self_attn.attn.out_proj." + k]
            out[m + "layer_norm." + k] = sd[c + "norm." + k]
            pw = sd[c + "pointwise_conv1." + k].squeeze(-1) if k == "weight" else sd[c + "pointwise_conv1." + k]
            out[m + "value." + k], out[m + "gate." + k] = pw.chunk(2)
        out[m + "after.weight"], out[m + "after.bias"] = (
            sd[c + "pointwise_conv2.weight"].squeeze(-1),
            sd[c + "pointwise_conv2.bias"],
        )
        g = sd[c + "bn.weight"] / (sd[c + "bn.running_var"] + 1e-5).sqrt()
        out[m + "taps"] = (sd[c + "depthwise_conv.weight"].squeeze(1) * g[:, None]).t()
        out[m + "shift"] = (sd[c + "depthwise_conv.bias"] - sd[c + "bn.running_mean"]) * g + sd[c + "bn.bias"]
    return out


def build(fixed):
    torch.manual_seed(44)
    original = ConformerEncoder().eval()
    with torch.no_grad():
        for m in original.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.running_mean.normal_(0, 0.2)
                m.running_var.uniform_(0.2, 1.0)
            if isinstance(m, FeedForward):
                m.w_2.weight.mul_(2.0)
    port = SpeechEncoder(share_ffn=not fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 23, 10),)
