"""After huggingface/pytorch-image-models#2031: the image tower of a CLIP checkpoint with the
openai weights, loaded into a timm-like vision transformer. Other pretrained tags agree between
the two libraries; features from the openai tag do not."""

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS, PATCH, SIZE, OUT = 32, 4, 4, 16, 20
TOKENS = (SIZE // PATCH) ** 2 + 1


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ResidualAttentionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS)
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(WIDTH, WIDTH * 4))
        self.mlp.add_module("gelu", QuickGELU())
        self.mlp.add_module("c_proj", nn.Linear(WIDTH * 4, WIDTH))
        self.ln_2 = nn.LayerNorm(WIDTH)

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class CLIPVisual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(WIDTH) * 0.2)
        self.positional_embedding = nn.Parameter(torch.randn(TOKENS, WIDTH) * 0.2)
        self.ln_pre = nn.LayerNorm(WIDTH)
        self.resblocks = nn.ModuleList(ResidualAttentionBlock() for _ in range(3))
        self.ln_post = nn.LayerNorm(WIDTH)
        self.proj = nn.Parameter(torch.randn(WIDTH, OUT) * WIDTH**-0.5)

    def forward(self, img):
        x = self.conv1(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(x.shape[0], 1, -1), x], 1) + self.positional_embedding
        x = self.ln_pre(x).transpose(0, 1)
        for blk in self.resblocks:
            x = blk(x)
        return self.ln_post(x[0]) @ self.proj


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))


class Mlp(nn.Module):
    def __init__(self, dim, act_layer):
        super().__init__()
        self.fc1 = nn.Linear(dim, dim * 4)
        self.act = act_layer()
        self.fc2 = nn.Linear(dim * 4, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, dim, num_heads, act_layer):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, act_layer)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, act_layer=nn.GELU):
        super().__init__()
        self.patch_embed = nn.Linear(3 * PATCH * PATCH, WIDTH, bias=False)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.zeros(1, TOKENS, WIDTH))
        self.norm_pre = nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(*[Block(WIDTH, HEADS, act_layer) for _ in range(3)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, OUT, bias=False)

    def forward(self, img):
        x = self.patch_embed(F.unfold(img, PATCH, stride=PATCH).transpose(1, 2))
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        x = self.norm(self.blocks(self.norm_pre(x + self.pos_embed)))
        return self.head(x[:, 0])


def convert(sd):
    out = {
        "patch_embed.weight": sd["conv1.weight"].flatten(1),
        "cls_token": sd["class_embedding"][None, None],
        "pos_embed": sd["positional_embedding"][None],
        "head.weight": sd["proj"].t(),
    }
    for p in ("weight", "bias"):
        out[f"norm_pre.{p}"], out[f"norm.{p}"] = sd[f"ln_pre.{p}"], sd[f"ln_post.{p}"]
        for i in range(3):
            s, d = f"resblocks.{i}.", f"blocks.{i}."
            out[d + f"norm1.{p}"], out[d + f"norm2.{p}"] = sd[s + f"ln_1.{p}"], sd[s + f"ln_2.{p}"]
            out[d + f"attn.qkv.{p}"] = sd[s + f"attn.in_proj_{p}"]
            out[d + f"attn.proj.{p}"] = sd[s + f"attn.out_proj.{p}"]
            out[d + f"mlp.fc1.{p}"], out[d + f"mlp.fc2.{p}"] = sd[s + f"mlp.c_fc.{p}"], sd[s + f"mlp.c_proj.{p}"]
    return out


def build(fixed):
    torch.manual_seed(2031)
    original = CLIPVisual().eval()
    for n, p in original.named_parameters():
        if n.endswith("c_fc.bias"):
            p.data.sub_(1.5)
        elif "mlp" in n and p.dim() == 2:
            p.data.mul_(12.0 if "c_proj" in n else 2.0)
    port = VisionTransformer(act_layer=QuickGELU if fixed else nn.GELU).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(3, 3, SIZE, SIZE),)
