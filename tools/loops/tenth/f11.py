"""After jeremyfix/deeplearning-lectures#22.

PyTorch ASR lab with a CTC recogniser (main_ctc.py, wrap_ctc_args).  A reader found a line
of the preparation of the CTC arguments not to be in use.
"""

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class CTCModel(nn.Module):
    def __init__(self, n_mels, num_hidden, vocab_size):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv1d(n_mels, num_hidden, 3, padding=1), nn.BatchNorm1d(num_hidden), nn.ReLU())
        self.rnn = nn.GRU(num_hidden, num_hidden, bidirectional=True)
        self.charlin = nn.Linear(2 * num_hidden, vocab_size)

    def forward(self, spectro, lengths):
        feats = self.cnn(spectro.permute(1, 2, 0)).permute(2, 0, 1)
        packed = pack_padded_sequence(feats, lengths)
        out, _ = self.rnn(packed)
        return out._replace(data=self.charlin(out.data))


def wrap_ctc_args(packed_predictions, targets, target_lens, mended):
    unpacked, lens_predictions = pad_packed_sequence(packed_predictions)
    if mended:
        unpacked = unpacked.log_softmax(dim=2)
    return unpacked, targets, lens_predictions, target_lens


class SpeechCorpus:
    def __init__(self, n_mels=12, vocab_size=8):
        self.templates = torch.randn(vocab_size, n_mels)

    def batch(self, size):
        lens = torch.randint(3, 6, (size,)).sort(descending=True).values
        frames, targets = [], []
        for n in lens.tolist():
            y = torch.randint(1, self.templates.size(0), (n,))
            x = self.templates[y].repeat_interleave(4, dim=0)
            frames.append(x + 0.3 * torch.randn_like(x))
            targets.append(y)
        spectro = nn.utils.rnn.pad_sequence(frames)
        return spectro, lens * 4, torch.cat(targets), lens


def train(tick, mended=False):
    torch.manual_seed(2)
    corpus = SpeechCorpus()
    model = CTCModel(12, 24, 8)
    ctc_loss = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(120):
        spectro, lens, targets, target_lens = corpus.batch(16)
        predictions = model(spectro, lens)
        args = wrap_ctc_args(predictions, targets, target_lens, mended)
        loss = ctc_loss(*args)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
