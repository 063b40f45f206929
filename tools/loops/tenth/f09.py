"""After huggingface/transformers#47394 (regression from #35875).

GitForCausalLM captioning.  Since the loss helper was unified, fine-tuned captions came out
with every other word missing although the loss went down somewhat.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def ForCausalLMLoss(logits, labels, vocab_size, ignore_index=-100):
    labels = F.pad(labels, (0, 1), value=ignore_index)
    shift_labels = labels[..., 1:].contiguous()
    return F.cross_entropy(logits.reshape(-1, vocab_size), shift_labels.reshape(-1), ignore_index=ignore_index)


class GitLayer(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.layernorm_before = nn.LayerNorm(hidden_size)
        self.attention = nn.MultiheadAttention(hidden_size, num_heads, batch_first=True)
        self.layernorm_after = nn.LayerNorm(hidden_size)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, 2 * hidden_size), nn.GELU(), nn.Linear(2 * hidden_size, hidden_size)
        )

    def forward(self, x, mask):
        h = self.layernorm_before(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.layernorm_after(x))


class GitForCausalLM(nn.Module):
    def __init__(self, vocab_size=24, hidden_size=32, num_image_tokens=4, mended=False):
        super().__init__()
        self.vocab_size, self.num_image_tokens, self.mended = vocab_size, num_image_tokens, mended
        self.visual_projection = nn.Linear(12, hidden_size)
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size)
        self.position_embeddings = nn.Embedding(32, hidden_size)
        self.layer = nn.ModuleList(GitLayer(hidden_size, 2) for _ in range(2))
        self.output = nn.Linear(hidden_size, vocab_size)

    def forward(self, pixel_values, input_ids, labels):
        pos = torch.arange(input_ids.size(1))
        text = self.word_embeddings(input_ids) + self.position_embeddings(pos)
        x = torch.cat([self.visual_projection(pixel_values), text], dim=1)
        n, k = x.size(1), self.num_image_tokens
        mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
        mask[:, :k] = 0.0
        mask[:k, k:] = float("-inf")
        for layer in self.layer:
            x = layer(x, mask)
        logits = self.output(x)
        if self.mended:
            loss = ForCausalLMLoss(logits[:, k:], labels, self.vocab_size)
        else:
            shifted_logits = logits[:, k:-1]
            labels = labels[:, 1:].contiguous()
            loss = ForCausalLMLoss(shifted_logits, labels, self.vocab_size)
        return loss, logits[:, k:]


def make_captions(n, successors, image_codes, length=12):
    first = torch.randint(0, image_codes.size(0), (n,))
    ids = [first]
    for _ in range(length - 1):
        pick = torch.randint(0, successors.size(1), (n,))
        ids.append(successors[ids[-1], pick])
    pixels = image_codes[first] + 0.1 * torch.randn(n, 4, 12)
    return pixels, torch.stack(ids, dim=1)


def train(tick, mended=False):
    torch.manual_seed(4)
    successors = torch.randint(0, 24, (24, 3))
    image_codes = torch.randn(24, 4, 12)
    model = GitForCausalLM(mended=mended)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(160):
        pixel_values, input_ids = make_captions(32, successors, image_codes)
        loss, _logits = model(pixel_values, input_ids, labels=input_ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
