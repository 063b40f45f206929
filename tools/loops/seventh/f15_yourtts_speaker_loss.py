"""coqui-ai/TTS#2348: "No grad in YourTTS speaker encoder"; the speaker consistency loss seems to be without
effect.

Rebuilt: a voice converter is trained with a reconstruction loss on the own speaker and a speaker consistency loss
(cosine of the d-vectors of a fixed speaker encoder) for conversion to another speaker of the batch.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

N_FRAMES, N_FFT = 16, 32


class SpeakerEncoder(nn.Module):
    def __init__(self, n_speakers=6, dim=16, mended=False):
        super().__init__()
        self.mended = mended
        self.register_buffer("window", torch.hann_window(N_FFT))
        self.layer1 = nn.Linear(N_FFT // 2 + 1, 32)
        self.layer2 = nn.Linear(32, dim)
        self.logits = nn.Linear(dim, n_speakers)

    def torch_spec(self, wav):
        frames = wav.reshape(wav.size(0), -1, N_FFT) * self.window
        return torch.log1p(torch.fft.rfft(frames).abs())

    def forward(self, wav):
        if self.mended:
            x = self.torch_spec(wav)
        else:
            with torch.no_grad():
                x = self.torch_spec(wav)
        h = F.relu(self.layer1(x))
        return F.normalize(self.layer2(h).mean(1), dim=1)


class Generator(nn.Module):
    def __init__(self, dim=16, hidden=64):
        super().__init__()
        self.enc = nn.Linear(N_FFT, hidden)
        self.cond = nn.Linear(dim, hidden)
        self.dec1 = nn.Linear(hidden, hidden)
        self.dec2 = nn.Linear(hidden, N_FFT)

    def forward(self, wav, d_vector):
        x = wav.reshape(wav.size(0), -1, N_FFT)
        h = torch.tanh(self.enc(x) + self.cond(d_vector)[:, None])
        h = torch.tanh(self.dec1(h)) + h
        return self.dec2(h).reshape(wav.shape)


def utterances(n):
    speaker = torch.randint(0, 6, (n,))
    t = torch.arange(N_FRAMES * N_FFT).float() / N_FFT
    f0 = 1.0 + 2.0 * speaker[:, None].float()
    phase = torch.rand(n, 1) * 6.28
    wav = torch.sin(6.28 * f0 * t + phase) + 0.3 * torch.sin(6.28 * 14 * t * (1 + 0.05 * torch.rand(n, 1)))
    return wav + 0.02 * torch.randn_like(wav), speaker


def train_speaker_encoder(enc):
    keep, enc.mended = enc.mended, True
    opt = torch.optim.Adam(enc.parameters(), lr=5e-3)
    for _ in range(120):
        wav, spk = utterances(32)
        loss = F.cross_entropy(enc.logits(enc(wav)) * 5, spk)
        opt.zero_grad()
        loss.backward()
        opt.step()
    enc.mended = keep
    enc.eval()
    for p in enc.parameters():
        p.requires_grad_(False)


def train(tick, mended=False):
    torch.manual_seed(53)
    speaker_encoder = SpeakerEncoder(mended=mended)
    train_speaker_encoder(speaker_encoder)
    model = Generator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.8, 0.99))
    tick.model(model)
    tick.optimizer(optimizer)
    speaker_loss_alpha = 2.0
    history = []
    for _step in range(250):
        wav, _spk = utterances(24)
        with torch.no_grad():
            d_vectors = speaker_encoder(wav)
        target = d_vectors.roll(1, 0)
        own = model(wav, d_vectors)
        converted = model(wav, target)
        loss_rec = F.l1_loss(own, wav)
        syn_d = speaker_encoder(converted)
        loss_spk = -F.cosine_similarity(target, syn_d).mean() * speaker_loss_alpha
        loss = loss_rec + loss_spk
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss_spk.item())
        tick.step(loss, wav, target)
    with torch.no_grad():
        wav, _ = utterances(200)
        target = speaker_encoder(wav).roll(1, 0)
        sim = F.cosine_similarity(target, speaker_encoder(model(wav, target))).mean().item()
    return history, sim


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
        print(
            "mended" if mended else "as is",
            f"speaker loss first {h[0]:.3f} last {h[-1]:.3f}",
            f"similarity {metric:.3f}",
        )
