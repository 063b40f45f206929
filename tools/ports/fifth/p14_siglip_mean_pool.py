"""huggingface/transformers#30952: SigLIP image classification leaves the first patch out of the mean pooling.

The slice came along from CLIP, whose sequence starts with a class token; SigLIP has patches only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = (p(x).view(b, n, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        out = torch.softmax(q @ k.transpose(2, 3) * (d // self.heads) ** -0.5, dim=-1) @ v
        return self.out_proj(out.transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.self_attn = Attention(dim, heads)
        self.layer_norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.layer_norm2(x)), approximate="tanh"))


class SiglipClassifier(nn.Module):
    def __init__(self, dim: int = 24, heads: int = 4, depth: int = 2, labels: int = 5) -> None:
        super().__init__()
        self.patch_embedding = nn.Conv2d(3, dim, 4, 4)
        self.position_embedding = nn.Embedding(16, dim)
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.post_layernorm = nn.LayerNorm(dim, eps=1e-6)
        self.classifier = nn.Linear(dim, labels)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embedding(pixels).flatten(2).transpose(1, 2) + self.position_embedding.weight
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.post_layernorm(x).mean(dim=1))


def gelu_pytorch_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


class VisionModel(nn.Module):
    """Same tower on top of the stock PyTorch encoder layer."""

    def __init__(self, width: int = 24, heads: int = 4, depth: int = 2, labels: int = 5, prefix: int = 0) -> None:
        super().__init__()
        self.prefix = prefix
        self.conv1 = nn.Conv2d(3, width, kernel_size=4, stride=4)
        self.positional_embedding = nn.Parameter(torch.empty(16, width))
        block = nn.TransformerEncoderLayer(
            width,
            heads,
            2 * width,
            dropout=0.0,
            activation=gelu_pytorch_tanh,
            layer_norm_eps=1e-6,
            batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(block, depth, nn.LayerNorm(width, eps=1e-6), enable_nested_tensor=False)
        self.head = nn.Linear(width, labels)

    def forward(self, image: Tensor) -> Tensor:
        tokens = self.conv1(image).flatten(2).mT
        tokens = self.blocks(tokens + self.positional_embedding)
        pooled = torch.mean(tokens[:, self.prefix :, :], dim=1)
        return self.head(pooled)


def convert(src: SiglipClassifier) -> dict[str, Tensor]:
    state = {
        "conv1.weight": src.patch_embedding.weight,
        "conv1.bias": src.patch_embedding.bias,
        "positional_embedding": src.position_embedding.weight,
        "blocks.norm.weight": src.post_layernorm.weight,
        "blocks.norm.bias": src.post_layernorm.bias,
        "head.weight": src.classifier.weight,
        "head.bias": src.classifier.bias,
    }
    for i, layer in enumerate(src.layers):
        base, attn = f"blocks.layers.{i}", layer.self_attn
        for leaf in ("weight", "bias"):
            qkv = [getattr(m, leaf) for m in (attn.q_proj, attn.k_proj, attn.v_proj)]
            state[f"{base}.self_attn.in_proj_{leaf}"] = torch.cat(qkv)
            state[f"{base}.self_attn.out_proj.{leaf}"] = getattr(attn.out_proj, leaf)
            state[f"{base}.linear1.{leaf}"] = getattr(layer.fc1, leaf)
            state[f"{base}.linear2.{leaf}"] = getattr(layer.fc2, leaf)
            state[f"{base}.norm1.{leaf}"] = getattr(layer.layer_norm1, leaf)
            state[f"{base}.norm2.{leaf}"] = getattr(layer.layer_norm2, leaf)
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(30952)
    original = SiglipClassifier()
    port = VisionModel(prefix=0 if fixed else 1)
    port.load_state_dict(convert(original))
    return original.eval(), port.eval(), (torch.randn(2, 3, 16, 16),)
