"""After allenai/allennlp#5426 (see also #5413).

GradientDescentTrainer with use_amp and grad_norm both set: a tagger trained in mixed
precision with clipping learnt far slower than with either of the two alone.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Embedding(nn.Embedding):
    pass


class PytorchSeq2SeqWrapper(nn.Module):
    def __init__(self, input_dim, hidden):
        super().__init__()
        self._module = nn.GRU(input_dim, hidden, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self._module(x)[0]


class SimpleTagger(nn.Module):
    def __init__(self, vocab_size=60, num_classes=5, dim=24, hidden=24):
        super().__init__()
        self.text_field_embedder = Embedding(vocab_size, dim)
        self.encoder = PytorchSeq2SeqWrapper(dim, hidden)
        self.tag_projection_layer = nn.Linear(2 * hidden, num_classes)

    def forward(self, tokens, tags):
        encoded = self.encoder(self.text_field_embedder(tokens))
        logits = self.tag_projection_layer(encoded)
        return {"logits": logits, "loss": F.cross_entropy(logits.float().flatten(0, 1), tags.flatten())}


class GradientDescentTrainer:
    def __init__(self, model, optimizer, grad_norm, mended):
        self.model, self.optimizer = model, optimizer
        self._grad_norm = grad_norm
        self._scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        self.mended = mended

    def rescale_gradients(self):
        if self.mended:
            self._scaler.unscale_(self.optimizer)
        params = [p for p in self.model.parameters() if p.grad is not None]
        return nn.utils.clip_grad_norm_(params, self._grad_norm)

    def train_batch(self, batch):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self.model(**batch)["loss"]
        self._scaler.scale(loss).backward()
        self.rescale_gradients()
        self._scaler.step(self.optimizer)
        self._scaler.update()
        return loss


def make_batch(lexicon, batch_size=32, length=10):
    tokens = torch.randint(0, lexicon.size(0), (batch_size, length))
    base = lexicon[tokens]
    prev = torch.cat([torch.zeros_like(base[:, :1]), base[:, :-1]], 1)
    tags = torch.where(prev == 4, (base + 1) % 5, base)
    return {"tokens": tokens, "tags": tags}


def train(tick, mended=False):
    torch.manual_seed(13370)
    lexicon = torch.randint(0, 5, (60,))
    model = SimpleTagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    trainer = GradientDescentTrainer(model, optimizer, grad_norm=1.0, mended=mended)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(130):
        loss = trainer.train_batch(make_batch(lexicon))
        tick.step(loss)
        losses.append(loss.item())
    return losses
