"""LoRA fine-tuning of a frozen, pretrained language model after huggingface/peft (tuners/lora/layer.py)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoraLinear(nn.Module):
    def __init__(self, base_layer, r=4, lora_alpha=8):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.Linear(base_layer.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base_layer.out_features, bias=False)
        self.scaling = lora_alpha / r
        nn.init.kaiming_uniform_(self.lora_A.weight, a=5**0.5)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling


class TinyGPT(nn.Module):
    def __init__(self, vocab=16, dim=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.c_attn = nn.Linear(dim, dim)
        self.c_fc = nn.Linear(dim, 64)
        self.c_proj = nn.Linear(64, dim)
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, idx):
        h = self.wte(idx)
        h = h + self.c_attn(h)
        h = h + self.c_proj(F.gelu(self.c_fc(h)))
        return self.lm_head(self.ln_f(h))


def get_peft_model(model, target_modules):
    for p in model.parameters():
        p.requires_grad = False
    for name in target_modules:
        setattr(model, name, LoraLinear(getattr(model, name)))
    return model


def text(n, table, length=12):
    x = torch.randint(0, table.size(0), (n, 1))
    seq = [x]
    for _ in range(length):
        nxt = table[seq[-1].squeeze(1)][:, None]
        noise = torch.randint(0, table.size(0), nxt.shape)
        seq.append(torch.where(torch.rand(nxt.shape) < 0.1, noise, nxt))
    s = torch.cat(seq, 1)
    return s[:, :-1], s[:, 1:]


def lm_loss(model, batch):
    x, y = batch
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def train(tick, mended=False):
    torch.manual_seed(33)
    general = torch.randperm(16)
    domain = general.clone()
    domain[[1, 5, 9, 13]] = general[[5, 9, 13, 1]]
    model = TinyGPT()
    pre = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(150):
        pre.zero_grad()
        lm_loss(model, text(32, general)).backward()
        pre.step()
    model.zero_grad(set_to_none=True)
    model = get_peft_model(model, target_modules=("c_attn", "c_fc", "c_proj"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.01)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        loss = lm_loss(model, text(32, domain))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
