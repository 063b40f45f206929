"""After hirofumi0810/neural_sp#168.

ASR training with accum_grad_n_steps: several mini-batches are back-propagated before one
parameter update.  Raising the number made training blow up.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvEncoder(nn.Module):
    def __init__(self, idim, n_units):
        super().__init__()
        self.subsample = nn.Conv1d(idim, n_units, 3, stride=2, padding=1)
        self.conv = nn.Conv1d(n_units, n_units, 3, padding=1)
        self.out = nn.Linear(n_units, n_units)

    def forward(self, xs):
        h = torch.relu(self.subsample(xs.transpose(1, 2)))
        h = torch.relu(self.conv(h)).transpose(1, 2)
        return torch.relu(self.out(h))


class CTC(nn.Module):
    def __init__(self, eprojs, vocab):
        super().__init__()
        self.output = nn.Linear(eprojs, vocab)

    def forward(self, eouts, ys):
        logp = F.log_softmax(self.output(eouts), dim=-1).transpose(0, 1)
        elens = torch.full((eouts.size(0),), eouts.size(1), dtype=torch.long)
        ylens = torch.full((ys.size(0),), ys.size(1), dtype=torch.long)
        loss = F.ctc_loss(logp, ys, elens, ylens, blank=0, reduction="sum")
        return loss / ys.size(0)


class Speech2Text(nn.Module):
    def __init__(self, idim=16, n_units=48, vocab=9):
        super().__init__()
        self.enc = ConvEncoder(idim, n_units)
        self.ctc = CTC(n_units, vocab)

    def forward(self, batch):
        return self.ctc(self.enc(batch["xs"]), batch["ys"])


def make_batch(templates, batch_size, n_tokens=4, dur=6):
    ys = torch.randint(1, templates.size(0), (batch_size, n_tokens))
    xs = templates[ys].repeat_interleave(dur, dim=1)
    return {"xs": xs + 0.3 * torch.randn_like(xs), "ys": ys}


def train(tick, mended=False):
    torch.manual_seed(1)
    templates = torch.randn(9, 16)
    model = Speech2Text()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.012, momentum=0.9)
    accum_grad_n_steps = 8
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    accum, running = 0, 0.0
    optimizer.zero_grad()
    for _step in range(100 * accum_grad_n_steps):
        loss = model(make_batch(templates, 4))
        running += loss.item() / accum_grad_n_steps
        if mended:
            (loss / accum_grad_n_steps).backward()
        else:
            loss.backward()
        accum += 1
        if accum >= accum_grad_n_steps:
            optimizer.step()
            optimizer.zero_grad()
            tick.step(loss)
            losses.append(running)
            accum, running = 0, 0.0
    return losses
