"""gwx314/STARS#9: negative ph_ctc_loss when fine-tuning.

Rebuilt: frame-wise phoneme logits from a small convolutional-recurrent singing annotator, trained with CTC on
synthetic formant frames.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

N_PH = 9
BLANK = 0


class PhonemeAnnotator(nn.Module):
    def __init__(self, n_mels=12, hidden=32):
        super().__init__()
        self.mel_proj = nn.Conv1d(n_mels, hidden, 5, padding=2)
        self.encoder = nn.GRU(hidden, hidden // 2, batch_first=True, bidirectional=True)
        self.ph_frame_head = nn.Linear(hidden, N_PH)

    def forward(self, mel):
        h = F.gelu(self.mel_proj(mel.transpose(1, 2))).transpose(1, 2)
        h, _ = self.encoder(h)
        return self.ph_frame_head(h)


FORMANTS = torch.randn(N_PH, 12, generator=torch.Generator().manual_seed(1))


def sung_phrases(n, phonemes=5):
    text = torch.randint(1, N_PH, (n, phonemes))
    for j in range(1, phonemes):
        same = text[:, j] == text[:, j - 1]
        text[same, j] = text[same, j] % (N_PH - 1) + 1
    dur = torch.randint(3, 7, (n, phonemes))
    T = phonemes * 6
    mel = 0.3 * torch.randn(n, T, 12)
    lens = dur.sum(1)
    for b in range(n):
        frames = text[b].repeat_interleave(dur[b])
        mel[b, : len(frames)] += FORMANTS[frames]
    return mel, lens, text


def ph_ctc_loss(ph_frame_logits, lens, text, mended):
    inputs = ph_frame_logits.transpose(0, 1)
    if mended:
        inputs = F.log_softmax(inputs, dim=-1)
    text_lens = torch.full((text.size(0),), text.size(1), dtype=torch.long)
    return F.ctc_loss(inputs, text, lens, text_lens, blank=BLANK, zero_infinity=True)


def token_accuracy(model, n=64):
    mel, lens, text = sung_phrases(n)
    with torch.no_grad():
        best = model(mel).argmax(-1)
    right = 0
    for b in range(n):
        seq = torch.unique_consecutive(best[b, : lens[b]])
        seq = seq[seq != BLANK].tolist()
        right += seq == text[b].tolist()
    return right / n


def train(tick, mended=False):
    torch.manual_seed(61)
    model = PhonemeAnnotator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(160):
        mel, lens, text = sung_phrases(16)
        loss = ph_ctc_loss(model(mel), lens, text, mended)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, mel, text)
    return history, token_accuracy(model)


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print("mended" if mended else "as is", f"first {h[0]:.4f} last {h[-1]:.4f}", f"exact sequences {metric:.3f}")
