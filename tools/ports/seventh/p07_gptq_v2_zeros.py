"""After vllm-project/vllm#38966: a 4-bit GPTQ checkpoint written by a newer quantizer gives garbage
in an engine that reads the older container."""

import torch
import torch.nn as nn
import torch.nn.functional as F

GROUP = 16
SHIFTS = torch.arange(0, 32, 4, dtype=torch.int32)


def pack_rows(codes):
    c = codes.to(torch.int64).reshape(codes.shape[0] // 8, 8, -1)
    v = sum(c[:, i] << (4 * i) for i in range(8))
    return torch.where(v >= 2**31, v - 2**32, v).to(torch.int32)


class GPTQModelLinear(nn.Module):
    """Layer of the quantizer: asymmetric groups along the input."""

    def __init__(self, n_in, n_out):
        super().__init__()
        w = (torch.randn(n_in, n_out) * n_in**-0.5 * 1.5).view(n_in // GROUP, GROUP, n_out)
        lo, hi = w.amin(1).clamp(max=0), w.amax(1).clamp(min=0)
        scale = (hi - lo) / 15
        zero = torch.round(-lo / scale).clamp(1, 15)
        q = torch.clamp(torch.round(w / scale[:, None]) + zero[:, None], 0, 15)
        self.register_buffer("qweight", pack_rows(q.view(n_in, n_out)))
        self.register_buffer("qzeros", pack_rows(zero.t().contiguous()).t().contiguous())
        self.register_buffer("scales", scale)
        self.n_in = n_in

    def dequantize_weight(self):
        q = torch.stack([(self.qweight >> s) & 15 for s in SHIFTS], 1).reshape(self.n_in, -1)
        z = torch.stack([(self.qzeros >> s) & 15 for s in SHIFTS], 2).reshape(self.scales.shape)
        g = torch.arange(self.n_in) // GROUP
        return (q - z[g]).float() * self.scales[g]

    def forward(self, x):
        return x @ self.dequantize_weight()


class QwenMLP(nn.Module):
    def __init__(self, d, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            GPTQModelLinear(d, inner),
            GPTQModelLinear(d, inner),
            GPTQModelLinear(inner, d),
        )

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class QwenDecoder(nn.Module):
    def __init__(self, vocab=30, d=32, inner=64, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.norms = nn.ModuleList(nn.RMSNorm(d, eps=1e-6) for _ in range(2 * layers + 1))
        self.mix = nn.ModuleList(GPTQModelLinear(d, d) for _ in range(layers))
        self.mlps = nn.ModuleList(QwenMLP(d, inner) for _ in range(layers))
        self.lm_head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        t = torch.arange(1, ids.shape[1] + 1).view(1, -1, 1)
        for i, (mix, mlp) in enumerate(zip(self.mix, self.mlps)):
            x = x + mix(self.norms[2 * i](x).cumsum(1) / t)
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.lm_head(self.norms[-1](x))


class GPTQMethod:
    def __init__(self, checkpoint_format):
        self.use_v2_format = checkpoint_format == "gptq_v2"

    def process_weights_after_loading(self, qweight, qzeros, scales):
        n_in = qweight.shape[0] * 8

        def nib(p):
            return torch.stack([(p >> (4 * b)) & 0xF for b in range(8)], dim=-1)

        w = nib(qweight).permute(0, 2, 1).reshape(n_in, -1)
        zeros = nib(qzeros).flatten(1)
        if not self.use_v2_format:
            zeros = zeros + 1
        grouped = w.view(scales.shape[0], -1, w.shape[1]) - zeros.unsqueeze(1)
        return (grouped * scales.unsqueeze(1)).reshape(n_in, -1).t().contiguous()


class EngineLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_out, n_in))

    def forward(self, x):
        return F.linear(x, self.weight)


class EngineLayer(nn.Module):
    def __init__(self, d, inner):
        super().__init__()
        self.input_ln, self.post_ln = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.mixer = EngineLinear(d, d)
        self.gate_up = EngineLinear(d, 2 * inner)
        self.down = EngineLinear(inner, d)

    def forward(self, h, res):
        res = h if res is None else res + h
        y = F.rms_norm(res, res.shape[-1:], self.input_ln, 1e-6)
        h = self.mixer(y.cumsum(1).div(torch.arange(1.0, y.shape[1] + 1)[:, None]))
        res = res + h
        g, u = self.gate_up(F.rms_norm(res, res.shape[-1:], self.post_ln, 1e-6)).chunk(2, -1)
        return self.down(F.silu(g) * u), res


class EngineModel(nn.Module):
    def __init__(self, vocab=30, d=32, inner=64, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(EngineLayer(d, inner) for _ in range(layers))
        self.final_ln = nn.Parameter(torch.ones(d))
        self.unembed = EngineLinear(d, vocab)

    def forward(self, ids):
        h, res = self.wte(ids), None
        for lyr in self.layers:
            h, res = lyr(h, res)
        return self.unembed(F.rms_norm(h + res, h.shape[-1:], self.final_ln, 1e-6))

    def load_weights(self, s, method):
        def deq(p):
            return method.process_weights_after_loading(s[p + ".qweight"], s[p + ".qzeros"], s[p + ".scales"])

        new = {
            "wte.weight": s["embed_tokens.weight"],
            "unembed.weight": s["lm_head.weight"],
            "final_ln": s[f"norms.{2 * len(self.layers)}.weight"],
        }
        for i in range(len(self.layers)):
            o = f"layers.{i}."
            new[o + "input_ln"], new[o + "post_ln"] = s[f"norms.{2 * i}.weight"], s[f"norms.{2 * i + 1}.weight"]
            new[o + "mixer.weight"] = deq(f"mix.{i}")
            new[o + "gate_up.weight"] = torch.cat([deq(f"mlps.{i}.gate_proj"), deq(f"mlps.{i}.up_proj")])
            new[o + "down.weight"] = deq(f"mlps.{i}.down_proj")
        self.load_state_dict(new)


def build(fixed):
    torch.manual_seed(38)
    original = QwenDecoder().eval()
    port = EngineModel().eval()
    port.load_weights(original.state_dict(), GPTQMethod("gptq_v2" if fixed else "gptq"))
    return original, port, (torch.randint(0, 30, (2, 9)),)
