"""mindee/doctr#195: text recognition trained with CTC; the loss comes down to some value early and the reader never
gives a right word."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CRNN(nn.Module):
    def __init__(self, vocab_size, height=8, rnn_units=32, softmax_out=False):
        super().__init__()
        self.feat_extractor = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
            nn.Conv2d(12, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d((2, 2)),
        )
        self.decoder = nn.LSTM(16 * (height // 4), rnn_units, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(2 * rnn_units, vocab_size + 1)
        self.softmax_out = softmax_out
        self.blank = vocab_size

    def forward(self, x):
        features = self.feat_extractor(x)
        b, c, h, w = features.shape
        seq = features.permute(0, 3, 1, 2).reshape(b, w, c * h)
        logits = self.linear(self.decoder(seq)[0])
        return logits.softmax(-1) if self.softmax_out else logits

    def compute_loss(self, model_output, gt, seq_len):
        logits = F.log_softmax(model_output.permute(1, 0, 2), dim=-1)
        input_length = torch.full((len(model_output),), model_output.shape[1], dtype=torch.long)
        return F.ctc_loss(logits, gt, input_length, seq_len, self.blank, zero_infinity=True)


def render_words(n, glyphs, gen):
    gt = torch.randint(0, len(glyphs), (n, 4), generator=gen)
    img = glyphs[gt].permute(0, 2, 1, 3).reshape(n, 1, 8, -1)
    return img + 0.2 * torch.randn(img.shape, generator=gen), gt


def exact_match(model, img, gt):
    model.eval()
    with torch.no_grad():
        best = model(img).argmax(-1)
    right = 0
    for row, truth in zip(best.tolist(), gt.tolist()):
        word = [c for i, c in enumerate(row) if c != model.blank and (i == 0 or c != row[i - 1])]
        right += word == truth
    model.train()
    return right / len(gt)


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    glyphs = F.pad((torch.rand(6, 8, 4, generator=gen) > 0.5).float(), (1, 1))
    img, gt = render_words(400, glyphs, gen)
    model = CRNN(vocab_size=6, softmax_out=not mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(12):
        for idx in torch.randperm(400).split(40):
            out = model(img[idx])
            loss = model.compute_loss(out, gt[idx], torch.full((len(idx),), 4, dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = exact_match(model, img[:100], gt[:100])
    return losses
