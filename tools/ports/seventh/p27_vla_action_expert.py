"""After FastCrest/tether#152: a vision-language-action policy rebuilt on another spine does not give
the actions of the reference policy although all weights are loaded."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def rope(x, position_ids, base=10000.0):
    d = x.shape[-1]
    inv = base ** (-torch.arange(0, d, 2).float() / d)
    f = position_ids[:, None].float() * inv
    cos, sin = torch.cat([f, f], -1).cos(), torch.cat([f, f], -1).sin()
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class StreamLayer(nn.Module):
    def __init__(self, d, heads, hd, inner):
        super().__init__()
        self.input_norm, self.post_norm = nn.Parameter(torch.randn(d) * 0.1), nn.Parameter(torch.randn(d) * 0.1)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d, heads * hd, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(heads * hd, d, bias=False)
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(d, inner, bias=False),
            nn.Linear(d, inner, bias=False),
            nn.Linear(inner, d, bias=False),
        )
        self.heads = heads

    def norm(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + w)

    def qkv(self, x, pos):
        y = self.norm(x, self.input_norm)
        q, k, v = (
            f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rope(q, pos), rope(k, pos), v

    def rest(self, x, att):
        x = x + self.o_proj(att.transpose(1, 2).flatten(2))
        y = self.norm(x, self.post_norm)
        return x + self.down_proj(F.gelu(self.gate_proj(y), approximate="tanh") * self.up_proj(y))


class PI0Policy(nn.Module):
    def __init__(self, vlm_dim=24, exp_dim=16, heads=2, hd=8, depth=2, state=5, act=4, patch=6, vocab=30):
        super().__init__()
        self.vision_proj, self.lang_embed = nn.Linear(patch, vlm_dim), nn.Embedding(vocab, vlm_dim)
        self.paligemma = nn.ModuleList(StreamLayer(vlm_dim, heads, hd, 40) for _ in range(depth))
        self.gemma_expert = nn.ModuleList(StreamLayer(exp_dim, heads, hd, 24) for _ in range(depth))
        self.state_proj, self.action_in_proj = nn.Linear(state, exp_dim), nn.Linear(act, exp_dim)
        self.expert_norm = nn.Parameter(torch.randn(exp_dim) * 0.1)
        self.action_out_proj = nn.Linear(exp_dim, act)

    def forward(self, patches, lang, state, noisy_actions):
        prefix = torch.cat([self.vision_proj(patches), self.lang_embed(lang) * self.lang_embed.embedding_dim**0.5], 1)
        suffix = torch.cat([self.state_proj(state)[:, None], self.action_in_proj(noisy_actions)], 1)
        n_p, n_s = prefix.shape[1], suffix.shape[1]
        pos = torch.arange(n_p + n_s)
        block = torch.cat([torch.zeros(n_p), torch.ones(1), torch.full((n_s - 1,), 2.0)])
        mask = block[None, :] <= block[:, None]
        for a, b in zip(self.paligemma, self.gemma_expert):
            qp, kp, vp = a.qkv(prefix, pos[:n_p])
            qs, ks, vs = b.qkv(suffix, pos[n_p:])
            att = F.scaled_dot_product_attention(
                torch.cat([qp, qs], 2), torch.cat([kp, ks], 2), torch.cat([vp, vs], 2), attn_mask=mask
            )
            prefix, suffix = a.rest(prefix, att[:, :, :n_p]), b.rest(suffix, att[:, :, n_p:])
        return self.action_out_proj(b.norm(suffix[:, 1:], self.expert_norm))


class DecomposedRoPE(nn.Module):
    def __init__(self, hd, max_seq_len=64):
        super().__init__()
        t = torch.outer(torch.arange(max_seq_len).float(), 10000.0 ** (-torch.arange(0, hd, 2).float() / hd))
        self.register_buffer("cos", t.cos())
        self.register_buffer("sin", t.sin())

    def forward(self, x, position_ids):
        c, s = self.cos[position_ids], self.sin[position_ids]
        lo, hi = x[..., : c.shape[-1]], x[..., c.shape[-1] :]
        return torch.cat((lo * c - hi * s, hi * c + lo * s), dim=-1)


class SpineLayer(nn.Module):
    def __init__(self, d, heads, hd, inner, rope_module):
        super().__init__()
        self.g1, self.g2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.wqkv, self.wo = nn.Linear(d, 3 * heads * hd, bias=False), nn.Linear(heads * hd, d, bias=False)
        self.w_in, self.w_out = nn.Linear(d, 2 * inner, bias=False), nn.Linear(inner, d, bias=False)
        self.heads, self.hd, self.rope = heads, hd, rope_module

    def forward(self, x, position_ids, past=None, mask=None):
        b, t, d = x.shape
        y = F.rms_norm(x, (d,), self.g1, 1e-6)
        q, k, v = self.wqkv(y).view(b, t, 3, self.heads, self.hd).permute(2, 0, 3, 1, 4)
        q, k = self.rope(q, position_ids), self.rope(k, position_ids)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        s = q @ k.transpose(-1, -2) / self.hd**0.5
        if mask is not None:
            s = s.masked_fill(~mask, -1e9)
        x = x + self.wo((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))
        g, u = self.w_in(F.rms_norm(x, (d,), self.g2, 1e-6)).chunk(2, -1)
        return x + self.w_out(F.gelu(g, approximate="tanh") * u), (k, v)


class Pi0VLA(nn.Module):
    def __init__(self, fixed, vlm_dim=24, exp_dim=16, heads=2, hd=8, depth=2, state=5, act=4, patch=6, vocab=30):
        super().__init__()
        self.fixed = fixed
        table = DecomposedRoPE(hd)
        self.patch_in, self.tok = nn.Linear(patch, vlm_dim), nn.Embedding(vocab, vlm_dim)
        self.backbone = nn.ModuleList(SpineLayer(vlm_dim, heads, hd, 40, table) for _ in range(depth))
        self.expert_stack = nn.ModuleList(SpineLayer(exp_dim, heads, hd, 24, table) for _ in range(depth))
        self.state_in, self.action_in, self.action_out = (
            nn.Linear(state, exp_dim),
            nn.Linear(act, exp_dim),
            nn.Linear(exp_dim, act),
        )
        self.final_gain = nn.Parameter(torch.ones(exp_dim))

    def encode_prefix(self, patches, lang):
        h = torch.cat([self.patch_in(patches), self.tok(lang)], 1)
        ids, cache = torch.arange(h.shape[1]), []
        for layer in self.backbone:
            h, kv = layer(h, ids)
            cache.append(kv)
        return cache

    def forward(self, patches, lang, state, noisy_actions):
        cache = self.encode_prefix(patches, lang)
        prefix_len = cache[0][0].shape[2]
        h = torch.cat([self.state_in(state).unsqueeze(1), self.action_in(noisy_actions)], 1)
        n = h.shape[1]
        position_ids = torch.arange(n)
        if self.fixed:
            position_ids = position_ids + prefix_len
        mask = torch.ones(n, prefix_len + n, dtype=torch.bool)
        mask[0, prefix_len + 1 :] = False
        for layer, kv in zip(self.expert_stack, cache):
            h, _ = layer(h, position_ids, past=kv, mask=mask)
        chunk = h[:, -noisy_actions.shape[1] :]
        return self.action_out(F.rms_norm(chunk, chunk.shape[-1:], self.final_gain, 1e-6))


def load_reference(policy, vla):
    s = {k: v.detach() for k, v in policy.state_dict().items()}
    o = {
        "tok.weight": s["lang_embed.weight"] * s["lang_embed.weight"].shape[1] ** 0.5,
        "final_gain": 1 + s["expert_norm"],
    }
    for p in ("weight", "bias"):
        for a, b in (
            ("vision_proj", "patch_in"),
            ("state_proj", "state_in"),
            ("action_in_proj", "action_in"),
            ("action_out_proj", "action_out"),
        ):
            o[f"{b}.{p}"] = s[f"{a}.{p}"]
    for a, b in (("paligemma", "backbone"), ("gemma_expert", "expert_stack")):
        for i in range(2):
            f, t = f"{a}.{i}.", f"{b}.{i}."
            o[t + "g1"], o[t + "g2"] = 1 + s[f + "input_norm"], 1 + s[f + "post_norm"]
            o[t + "wqkv.weight"] = torch.cat([s[f"{f}{n}_proj.weight"] for n in "qkv"])
            o[t + "w_in.weight"] = torch.cat([s[f + "gate_proj.weight"], s[f + "up_proj.weight"]])
            o[t + "wo.weight"], o[t + "w_out.weight"] = s[f + "o_proj.weight"], s[f + "down_proj.weight"]
    vla.load_state_dict(o, strict=False)


def build(fixed):
    torch.manual_seed(152)
    original = PI0Policy().eval()
    with torch.no_grad():
        for lyr in list(original.gemma_expert) + list(original.paligemma):
            lyr.q_proj.weight.mul_(2)
            lyr.k_proj.weight.mul_(2)
            lyr.v_proj.weight.mul_(2)
    port = Pi0VLA(fixed).eval()
    load_reference(original, port)
    return original, port, (torch.randn(2, 9, 6), torch.randint(0, 30, (2, 5)), torch.randn(2, 5), torch.randn(2, 6, 4))
