"""After circle-hit/SAPT#11: LoRA layers copied into another seq2seq model.

The LoRA layers of t5_prompt.py were carried over to a Bart; during training
every gradient of the LoRA layers is zero and the loss stays where it was.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALayer(nn.Module):
    def __init__(self, in_features, out_features, r=4, lora_alpha=8, mended=False):
        super().__init__()
        self.scaling = lora_alpha / r
        if mended:
            std_dev = 1 / torch.sqrt(torch.tensor(r).float())
            self.lora_A = nn.Parameter(torch.randn(in_features, r) * std_dev, requires_grad=True)
        else:
            self.lora_A = nn.Parameter(torch.zeros((in_features, r)), requires_grad=True)
        self.lora_B = nn.Parameter(torch.zeros((r, out_features)), requires_grad=True)

    def forward(self, x):
        return x @ self.lora_A @ self.lora_B * self.scaling


class Attention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.k = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Linear(d_model, d_model, bias=False)
        self.o = nn.Linear(d_model, d_model, bias=False)
        self.lora_q = None
        self.lora_v = None

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.lora_q is not None:
            q = q + self.lora_q(x)
            v = v + self.lora_v(x)
        scores = q @ k.transpose(1, 2) / q.size(-1) ** 0.5
        return self.o(F.softmax(scores, dim=-1) @ v)


class Encoder(nn.Module):
    def __init__(self, vocab=20, d_model=32, layers=2, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.attn = nn.ModuleList([Attention(d_model) for _ in range(layers)])
        self.norm = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(layers)])
        self.lm_head = nn.Linear(d_model, classes)

    def forward(self, input_ids):
        h = self.embed(input_ids)
        for attn, norm in zip(self.attn, self.norm):
            h = h + attn(norm(h))
        return self.lm_head(h.mean(1))


def batch(task, n=64):
    ids = torch.randint(0, 20, (n, 6))
    key = ids[:, 0] // 5
    ids[:, 1:] = ids[:, 1:] % 5 + 5 * key[:, None]
    label = (key + task) % 4
    return ids, label


def train(tick, mended=False):
    torch.manual_seed(4)
    model = Encoder()
    pre = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        ids, label = batch(0)
        pre.zero_grad()
        F.cross_entropy(model(ids), label).backward()
        pre.step()
    model.zero_grad(set_to_none=True)

    for p in model.parameters():
        p.requires_grad = False
    for attn in model.attn:
        attn.lora_q = LoRALayer(32, 32, mended=mended)
        attn.lora_v = LoRALayer(32, 32, mended=mended)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(150):
        ids, label = batch(1)
        loss = F.cross_entropy(model(ids), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
