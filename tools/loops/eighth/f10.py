"""huggingface/transformers#132: question answering with BertAdam and warmup_linear; the number of steps was
counted from the examples, but long documents give several features each, so training runs on past it, and
at the end the model is worse than in the middle."""

import torch
import torch.nn as nn


def warmup_linear(x, warmup=0.1):
    if x < warmup:
        return x / warmup
    return 1.0 - x


class BertAdam(torch.optim.Optimizer):
    def __init__(self, params, lr, warmup, t_total, b1=0.9, b2=0.999, e=1e-6):
        super().__init__(params, {"lr": lr, "warmup": warmup, "t_total": t_total, "b1": b1, "b2": b2, "e": e})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(group["b1"]).add_(p.grad, alpha=1 - group["b1"])
                state["v"].mul_(group["b2"]).addcmul_(p.grad, p.grad, value=1 - group["b2"])
                update = state["m"] / (state["v"].sqrt() + group["e"])
                lr = group["lr"] * warmup_linear(state["step"] / group["t_total"], group["warmup"])
                p.add_(update, alpha=-lr)
                state["step"] += 1


class BertForQuestionAnswering(nn.Module):
    def __init__(self, vocab=40, dim=32, length=16):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.position = nn.Parameter(0.02 * torch.randn(length, dim))
        self.encoder = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.qa_outputs = nn.Linear(dim, 2)

    def forward(self, ids):
        h = self.encoder(self.embeddings(ids) + self.position)
        return self.qa_outputs(h).unbind(-1)


def convert_examples_to_features(n, spans_per_doc=3):
    ids = torch.randint(10, 40, (n * spans_per_doc, 16))
    rows = torch.arange(len(ids))
    start = torch.randint(1, 12, (len(ids),))
    end = start + torch.randint(1, 4, (len(ids),))
    ids[rows, start], ids[rows, end] = torch.randint(0, 3, (len(ids),)), torch.randint(3, 6, (len(ids),))
    return ids, start, end


def train(tick, mended=False):
    torch.manual_seed(0)
    train_examples, train_batch_size, num_train_epochs = 320, 24, 5
    ids, start, end = convert_examples_to_features(train_examples)
    counted = len(ids) if mended else train_examples
    t_total = counted // train_batch_size * num_train_epochs
    model = BertForQuestionAnswering()
    optimizer = BertAdam(model.parameters(), lr=3e-3, warmup=0.1, t_total=t_total)
    loss_fct = nn.CrossEntropyLoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(num_train_epochs):
        for idx in torch.randperm(len(ids)).split(train_batch_size):
            start_logits, end_logits = model(ids[idx])
            loss = (loss_fct(start_logits, start[idx]) + loss_fct(end_logits, end[idx])) / 2
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        s, e = model(ids)
        train.final = ((s.argmax(1) == start) & (e.argmax(1) == end)).float().mean().item()
    return losses
