"""After TransformerLensOrg/TransformerLens#861: with the new weight conversion the hooked BERT gives
logits that are tens apart from the Hugging Face masked-LM."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MaskedLMHead(nn.Module):
    def __init__(self, dim, vocab):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=1e-12)
        self.decoder = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.decoder(self.LayerNorm(F.gelu(self.dense(x))))


class HFBertForMaskedLM(nn.Module):
    def __init__(self, vocab=40, dim=32, heads=4, layers=2):
        super().__init__()
        self.word = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(24, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.layer = nn.ModuleList(
            nn.TransformerEncoderLayer(
                dim, heads, 64, dropout=0.0, activation="gelu", batch_first=True, layer_norm_eps=1e-12
            )
            for _ in range(layers)
        )
        self.cls = MaskedLMHead(dim, vocab)
        self.cls.decoder.weight = self.word.weight
        nn.init.normal_(self.cls.decoder.bias)

    def forward(self, ids):
        x = self.norm(self.word(ids) + self.pos.weight[: ids.shape[1]])
        for lyr in self.layer:
            x = lyr(x)
        return self.cls(x)


class HookPoint(nn.Module):
    def forward(self, x):
        return x


class HookedLN(nn.Module):
    def __init__(self, d, eps=1e-12):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))
        self.b = nn.Parameter(torch.zeros(d))
        self.eps = eps

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.w + self.b


class HookedBlock(nn.Module):
    def __init__(self, d, n, d_mlp):
        super().__init__()
        self.h = d // n
        for c in "QKV":
            self.register_parameter("W_" + c, nn.Parameter(torch.randn(n, d, self.h) * 0.02))
            self.register_parameter("b_" + c, nn.Parameter(torch.zeros(n, self.h)))
        self.W_O = nn.Parameter(torch.randn(n, self.h, d) * 0.02)
        self.b_O = nn.Parameter(torch.zeros(d))
        self.ln1, self.ln2 = HookedLN(d), HookedLN(d)
        self.W_in = nn.Parameter(torch.randn(d, d_mlp) * 0.02)
        self.b_in = nn.Parameter(torch.zeros(d_mlp))
        self.W_out = nn.Parameter(torch.randn(d_mlp, d) * 0.02)
        self.b_out = nn.Parameter(torch.zeros(d))
        self.hook_resid_mid = HookPoint()

    def forward(self, r):
        q, k, v = (torch.einsum("bpd,ndh->bpnh", r, getattr(self, "W_" + c)) + getattr(self, "b_" + c) for c in "QKV")
        pat = (torch.einsum("bqnh,bknh->bnqk", q, k) / self.h**0.5).softmax(-1)
        z = torch.einsum("bnqk,bknh->bqnh", pat, v)
        r = self.hook_resid_mid(self.ln1(r + torch.einsum("bqnh,nhd->bqd", z, self.W_O) + self.b_O))
        return self.ln2(r + F.gelu(r @ self.W_in + self.b_in) @ self.W_out + self.b_out)


class Unembed(nn.Module):
    def __init__(self, d, vocab):
        super().__init__()
        self.W_U = nn.Parameter(torch.randn(d, vocab) * 0.02)
        self.b_U = nn.Parameter(torch.zeros(vocab))

    def forward(self, r):
        return r @ self.W_U + self.b_U


class HookedEncoder(nn.Module):
    def __init__(self, vocab=40, d=32, n=4, layers=2):
        super().__init__()
        self.W_E = nn.Parameter(torch.randn(vocab, d) * 0.02)
        self.W_pos = nn.Parameter(torch.randn(24, d) * 0.02)
        self.embed_ln = HookedLN(d)
        self.blocks = nn.ModuleList(HookedBlock(d, n, 64) for _ in range(layers))
        self.mlm_W = nn.Parameter(torch.randn(d, d) * 0.02)
        self.mlm_b = nn.Parameter(torch.zeros(d))
        self.mlm_ln = HookedLN(d)
        self.unembed = Unembed(d, vocab)

    def forward(self, tokens):
        r = self.embed_ln(self.W_E[tokens] + self.W_pos[: tokens.shape[1]])
        for b in self.blocks:
            r = b(r)
        return self.unembed(self.mlm_ln(F.gelu(r @ self.mlm_W + self.mlm_b)))


def convert_bert_weights(hf, fixed, n=4):
    s = {k: v.detach().clone() for k, v in hf.state_dict().items()}
    new = {
        "W_E": s["word.weight"],
        "W_pos": s["pos.weight"],
        "embed_ln.w": s["norm.weight"],
        "embed_ln.b": s["norm.bias"],
    }
    d = s["word.weight"].shape[1]
    for i in range(len(hf.layer)):
        p, o = f"layer.{i}.", f"blocks.{i}."
        for j, c in enumerate("QKV"):
            w = s[p + "self_attn.in_proj_weight"][j * d : (j + 1) * d]
            new[o + "W_" + c] = w.view(n, d // n, d).transpose(1, 2)
            new[o + "b_" + c] = s[p + "self_attn.in_proj_bias"][j * d : (j + 1) * d].view(n, -1)
        new[o + "W_O"] = s[p + "self_attn.out_proj.weight"].t().reshape(n, d // n, d)
        new[o + "b_O"] = s[p + "self_attn.out_proj.bias"]
        for a, b in (("in", "1"), ("out", "2")):
            new[o + "W_" + a] = s[p + f"linear{b}.weight"].t()
            new[o + "b_" + a] = s[p + f"linear{b}.bias"]
            new[o + f"ln{b}.w"] = s[p + f"norm{b}.weight"]
            new[o + f"ln{b}.b"] = s[p + f"norm{b}.bias"]
    new["mlm_W"], new["mlm_b"] = s["cls.dense.weight"].t(), s["cls.dense.bias"]
    new["mlm_ln.w"], new["mlm_ln.b"] = s["cls.LayerNorm.weight"], s["cls.LayerNorm.bias"]
    if fixed:
        new["unembed.W_U"], new["unembed.b_U"] = s["cls.decoder.weight"].t(), s["cls.decoder.bias"]
    return new


def build(fixed):
    torch.manual_seed(3)
    original = HFBertForMaskedLM().eval()
    port = HookedEncoder().eval()
    port.load_state_dict(convert_bert_weights(original, fixed), strict=False)
    return original, port, (torch.randint(0, 40, (2, 11)),)
