"""After SeanNaren/warp-ctc#59.

Story: a small speech recogniser with a convolutional front end; the CTC loss
is zero from the start and nothing is recognised.
"""

import torch
from torch import nn


class SpeechEncoder(nn.Module):
    def __init__(self, n_mels=12, hidden=32, n_tokens=9, time_strides=(2, 2)):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(n_mels, hidden, 5, stride=time_strides[0], padding=2),
            nn.BatchNorm1d(hidden),
            nn.Hardtanh(0, 20),
            nn.Conv1d(hidden, hidden, 5, stride=time_strides[1], padding=2),
            nn.BatchNorm1d(hidden),
            nn.Hardtanh(0, 20),
        )
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, n_tokens)
        self.time_strides = time_strides

    def get_seq_lens(self, lengths):
        for s in self.time_strides:
            lengths = (lengths - 1) // s + 1
        return lengths

    def forward(self, x, lengths):
        x = self.conv(x).transpose(1, 2)
        x, _ = self.rnn(x)
        return self.fc(x).log_softmax(-1), self.get_seq_lens(lengths)


def make_utterances(n=64, n_sym=8, frames_per_symbol=4, n_mels=12):
    templates = torch.randn(n_sym, n_mels)
    feats, targets = [], []
    for _ in range(n):
        label = torch.randint(1, n_sym + 1, (8,))
        frames = templates[label - 1].repeat_interleave(frames_per_symbol, 0)
        feats.append(frames + 0.2 * torch.randn_like(frames))
        targets.append(label)
    return torch.stack(feats).transpose(1, 2), torch.stack(targets)


def train(tick, mended=False):
    torch.manual_seed(5)
    spect, targets = make_utterances()
    model = SpeechEncoder(time_strides=(2, 1) if mended else (3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    criterion = nn.CTCLoss(blank=0, reduction="mean", zero_infinity=True)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(120):
        rows = torch.randint(0, len(spect), (16,))
        inputs, labels = spect[rows], targets[rows]
        input_lengths = torch.full((16,), inputs.size(2))
        log_probs, out_lengths = model(inputs, input_lengths)
        loss = criterion(log_probs.transpose(0, 1), labels, out_lengths, torch.full((16,), labels.size(1)))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
