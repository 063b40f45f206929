"""tenstorrent/tt-blacksmith#711: LoRA fine-tuning of a language model through a home-made Trainer; the loss falls in
the first steps, then climbs and swings, while the same adapters train well elsewhere."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoraLinear(nn.Module):
    def __init__(self, base, r=4, lora_alpha=8):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base.out_features, bias=False)
        self.scaling = lora_alpha / r
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads = heads
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.o_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.up_proj, self.down_proj = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        h, (B, T, C) = self.input_layernorm(x), x.shape
        q, k, v = (f(h).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(a.transpose(1, 2).reshape(B, T, C))
        return x + self.down_proj(F.silu(self.up_proj(self.post_attention_layernorm(x))))


class CausalLM(nn.Module):
    def __init__(self, vocab=20, dim=32, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([DecoderLayer(dim) for _ in range(layers)])
        self.norm, self.lm_head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def sequences(n, step, vocab=20):
    start = torch.randint(0, vocab, (n, 1))
    return (start + step * torch.arange(10)) % vocab


def lm_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


class Trainer:
    def __init__(self, model, optimizer, tick, zero_grad):
        self.model, self.optimizer, self.tick = model, optimizer, tick
        self.zero_grad = zero_grad
        self.losses = []

    def training_step(self, batch):
        loss = lm_loss(self.model, batch)
        loss.backward()
        self.optimizer.step()
        if self.zero_grad:
            self.optimizer.zero_grad()
        self.losses.append(loss.item())
        self.tick.step(loss)


def train(tick, mended=False):
    torch.manual_seed(0)
    model = CausalLM()
    base_opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = lm_loss(model, sequences(32, 3))
        base_opt.zero_grad()
        loss.backward()
        base_opt.step()
    for p in model.parameters():
        p.requires_grad = False
        p.grad = None
    for layer in model.layers:
        for name in ("q_proj", "v_proj", "o_proj", "down_proj"):
            setattr(layer, name, LoraLinear(getattr(layer, name)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3, weight_decay=0.01)
    trainer = Trainer(model, optimizer, tick, zero_grad=mended)
    tick.model(model)
    tick.optimizer(optimizer)
    for _step in range(200):
        trainer.training_step(sequences(24, 7))
    train.final = sum(trainer.losses[-30:]) / 30
    return trainer.losses
