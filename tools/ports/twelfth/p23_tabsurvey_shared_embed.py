"""After kathrinse/TabSurvey#13: a transformer over the categorical columns of a table. The authors'
model embeds a value as its own vector joined with a vector of the column; the survey used another
implementation with one flat table and offsets. Their predictions differ."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CARDS, CONT, DIM, SHARED, HEADS = (5, 7, 3, 9), 4, 24, 6, 3


class ColumnEmbedding(nn.Module):
    def __init__(self, card):
        super().__init__()
        self.shared = nn.Parameter(torch.randn(1, SHARED))
        self.values = nn.Embedding(card, DIM - SHARED)

    def forward(self, codes):
        return torch.cat([self.shared.expand(len(codes), -1), self.values(codes)], -1)


class TabBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.ff1, self.ff2 = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        x = self.norm1(x + self.attn(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.ff2(F.gelu(self.ff1(x))))


class TabTransformerPaper(nn.Module):
    def __init__(self):
        super().__init__()
        self.columns = nn.ModuleList(ColumnEmbedding(c) for c in CARDS)
        self.blocks = nn.ModuleList(TabBlock() for _ in range(2))
        self.cont_norm = nn.LayerNorm(CONT)
        self.mlp1, self.mlp2 = nn.Linear(DIM * len(CARDS) + CONT, 32), nn.Linear(32, 2)

    def forward(self, categ, cont):
        x = torch.stack([emb(categ[:, j]) for j, emb in enumerate(self.columns)], 1)
        for blk in self.blocks:
            x = blk(x)
        h = torch.cat([x.flatten(1), self.cont_norm(cont)], 1)
        return self.mlp2(F.relu(self.mlp1(h)))


class CategoryTable(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        offsets = torch.tensor((0,) + CARDS[:-1]).cumsum(0)
        self.register_buffer("categories_offset", offsets, persistent=False)
        self.embeds = nn.Embedding(sum(CARDS), DIM)
        self.shared_category_embed = nn.Parameter(torch.empty(len(CARDS), SHARED))
        self.fixed = fixed

    def forward(self, categ):
        x = self.embeds(categ + self.categories_offset)
        if self.fixed:
            x = x + F.pad(self.shared_category_embed, (0, DIM - SHARED))
        return x


class ColumnAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_qkv, self.to_out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        q, k, v = self.to_qkv(x).view(len(x), -1, 3, HEADS, DIM // HEADS).unbind(2)
        sim = torch.einsum("bihd,bjhd->bhij", q, k) * (DIM // HEADS) ** -0.5
        return self.to_out(torch.einsum("bhij,bjhd->bihd", sim.softmax(-1), v).flatten(2))


class PostNorm(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn, self.norm = fn, nn.LayerNorm(DIM)

    def forward(self, x):
        return self.norm(self.fn(x) + x)


class SurveyTabTransformer(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.table = CategoryTable(fixed)
        layers = []
        for _ in range(2):
            ff = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
            layers += [PostNorm(ColumnAttention()), PostNorm(ff)]
        self.transformer = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(CONT)
        self.mlp_cat = nn.Linear(DIM * len(CARDS), 32)
        self.mlp_cont = nn.Linear(CONT, 32, bias=False)
        self.logits = nn.Linear(32, 2)

    def forward(self, categ, cont):
        flat = self.transformer(self.table(categ)).reshape(len(categ), -1)
        return self.logits((self.mlp_cat(flat) + self.mlp_cont(self.norm(cont))).relu())


def convert(sd):
    n = DIM * len(CARDS)
    rows = [F.pad(sd[f"columns.{j}.values.weight"], (SHARED, 0)) for j in range(len(CARDS))]
    out = {
        "table.embeds.weight": torch.cat(rows),
        "table.shared_category_embed": torch.cat([sd[f"columns.{j}.shared"] for j in range(len(CARDS))]),
        "mlp_cat.weight": sd["mlp1.weight"][:, :n],
        "mlp_cat.bias": sd["mlp1.bias"],
        "mlp_cont.weight": sd["mlp1.weight"][:, n:],
    }
    for p in ("weight", "bias"):
        out[f"norm.{p}"], out[f"logits.{p}"] = sd[f"cont_norm.{p}"], sd[f"mlp2.{p}"]
        for i in range(2):
            s, a, f = f"blocks.{i}.", f"transformer.{2 * i}.", f"transformer.{2 * i + 1}."
            out[a + f"fn.to_qkv.{p}"], out[a + f"fn.to_out.{p}"] = (
                sd[s + f"attn.in_proj_{p}"],
                sd[s + f"attn.out_proj.{p}"],
            )
            out[a + f"norm.{p}"], out[f + f"norm.{p}"] = sd[s + f"norm1.{p}"], sd[s + f"norm2.{p}"]
            out[f + f"fn.0.{p}"], out[f + f"fn.2.{p}"] = sd[s + f"ff1.{p}"], sd[s + f"ff2.{p}"]
    return out


def build(fixed):
    torch.manual_seed(13)
    original = TabTransformerPaper().eval()
    port = SurveyTabTransformer(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    categ = torch.stack([torch.randint(0, c, (6,)) for c in CARDS], 1)
    return original, port, (categ, torch.randn(6, CONT))
