"""After huggingface/trl (DPOTrainer, sigmoid loss): starts at exactly ln 2 with a reference
copy that is never trained; the log-probability of both answers may go down."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyCausalLM(nn.Module):
    def __init__(self, vocab=30, dim=32):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.lm_head(self.rnn(self.embed_tokens(ids))[0])


def get_batch_logps(model, ids, loss_mask):
    logps = model(ids[:, :-1]).log_softmax(-1)
    per_token = logps.gather(2, ids[:, 1:, None]).squeeze(2)
    return (per_token * loss_mask[:, 1:]).sum(-1)


def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta=0.1):
    logits = (policy_chosen - policy_rejected) - (ref_chosen - ref_rejected)
    return -F.logsigmoid(beta * logits).mean()


def preference_batch(n, polite):
    prompt = torch.randint(0, 30, (n, 4))
    good = polite[torch.randint(0, len(polite), (n, 5))]
    bad = torch.randint(0, 30, (n, 5))
    mask = torch.cat([torch.zeros(n, 4), torch.ones(n, 5)], 1)
    return torch.cat([prompt, good], 1), torch.cat([prompt, bad], 1), mask


def train(tick, mended=False):
    torch.manual_seed(0)
    polite = torch.randperm(30)[:8]
    model = TinyCausalLM()
    ref_model = copy.deepcopy(model).eval()
    for p in ref_model.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20))
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(150):
        chosen, rejected, mask = preference_batch(24, polite)
        with torch.no_grad():
            rc, rr = get_batch_logps(ref_model, chosen, mask), get_batch_logps(ref_model, rejected, mask)
        pc, pr = get_batch_logps(model, chosen, mask), get_batch_logps(model, rejected, mask)
        loss = dpo_loss(pc, pr, rc, rr)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        scheduler.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
