"""A sequence as a whole and in parts: where each part lies in the whole, and how often what overlaps is added."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

WAVE = torch.randn(1, 200, generator=torch.Generator().manual_seed(5))


def told(whole: nn.Module, parts: nn.Module, *inputs: Tensor) -> list[tuple[str, str | None, str]]:
    parts.load_state_dict(whole.state_dict())
    runs = [fxdebug.fx_debug(each.eval(), inputs, values="tensors") for each in (whole, parts)]
    return [(row.path, row.op, row.because.partition(" (called")[0]) for row in fxdebug.compare(*runs).findings]


class Windows(nn.Module):
    """Frames of 20 samples, one every 10, by each operation that takes windows."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        if how == "conv1d":
            self.conv = nn.Conv1d(1, 4, 20, stride=10)

    def forward(self, samples: Tensor) -> Tensor:
        if self.how == "conv1d":
            return self.conv(samples[:, None]).mT
        if self.how == "unfold":
            return samples.unfold(-1, 20, 10).square()[..., :4]
        pooled = F.avg_pool1d(samples[:, None].abs(), 20, stride=10)
        return pooled.mT.expand(-1, -1, 4)


class Framed(nn.Module):
    """Features of frames of a wave in chunks, with what the last frame did not take, or with a number of samples."""

    def __init__(self, how: str, size: int, keeps: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.windows, self.rnn, self.size, self.keeps = Windows(how), nn.GRU(4, 6, batch_first=True), size, keeps

    def forward(self, wave: Tensor) -> Tensor:
        before, state, found = wave[:, :0], None, []
        for chunk in wave.split(self.size, -1):
            samples = torch.cat([before, chunk], -1)
            frames = self.windows(samples)
            taken = 10 * frames.shape[1]
            before = samples[:, taken:] if self.keeps is None else samples[:, samples.shape[1] - self.keeps :]
            y, state = self.rnn(frames, state)
            found.append(y)
        return torch.cat(found, 1)


@pytest.mark.parametrize("how", ["unfold", "conv1d", "avg_pool1d"])
def test_frames_that_begin_between_those_of_the_whole_are_told(how: str) -> None:
    path = "windows.conv" if how == "conv1d" else "windows"
    assert told(Framed(how, 200), Framed(how, 50), WAVE) == []
    ((where, op, what), *_) = told(Framed(how, 200), Framed(how, 50, keeps=15), WAVE)
    assert where in ("windows", path)
    assert (op, what) == (
        how,
        "part 1 of what it is given begins at 35 of what a has, between two windows, which begin at 30 and 40 there: "
        f"{how} makes one every 10",
    )


def test_frames_that_no_part_is_given_are_told() -> None:
    ((where, op, what), *_) = told(Framed("unfold", 200), Framed("unfold", 50, keeps=0), WAVE)
    assert (where, op) == ("rnn", None)
    assert what == "part 1 of what it is given begins at 5 of what a has, and those before end at 4: 4 is left out"


class Overlapped(nn.Module):
    """A transposed convolution of parts, the ends of which are added to the next; ``bias`` says when it is added."""

    def __init__(self, bias: str) -> None:
        super().__init__()
        self.up, self.bias, self.rest = nn.ConvTranspose1d(4, 4, 6, stride=3), bias, None

    def forward(self, x: Tensor, more: bool, before: Tensor | None) -> tuple[Tensor, Tensor]:
        own = None if self.bias == "once" else self.up.bias
        y = F.conv_transpose1d(x, self.up.weight, own, stride=3)
        if before is not None:
            head = y[..., :3] + before * (2 if self.bias == "twice the rest" else 1)
            y = torch.cat([head, y[..., 3:]], -1)
        done, rest = (y[..., :-3], y[..., -3:]) if more else (y, y[..., :0])
        return done + self.up.bias[:, None] if self.bias == "once" else done, rest


class Decoder(nn.Module):
    def __init__(self, bias: str, size: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.overlapped, self.size = Overlapped(bias), size

    def forward(self, x: Tensor) -> Tensor:
        before, found, parts = None, [], x.split(self.size, -1)
        for number, part in enumerate(parts):
            y, before = self.overlapped(part, number + 1 < len(parts), before)
            found.append(y)
        return torch.cat(found, -1).tanh()


LATENT = torch.randn(1, 4, 12, generator=torch.Generator().manual_seed(5))


def test_a_bias_that_every_part_adds_to_what_overlaps_is_told() -> None:
    assert told(Decoder("once", 12), Decoder("once", 4), LATENT) == []
    ((_, op, what), *_) = told(Decoder("each", 12), Decoder("each", 4), LATENT)
    assert op == "cat"
    assert what == (
        "before positions 15:27 it puts what a has at 12:15, and overlapped.up.bias once more: each part that overlaps "
        "there adds it"
    )


class Normed(nn.Module):
    """A causal convolution of parts that keeps the frames before, as they are or by a factor."""

    def __init__(self, size: int, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.size, self.factor = nn.Conv1d(4, 4, 3), size, factor

    def forward(self, x: Tensor) -> Tensor:
        before, found = torch.zeros(1, 4, 2), []
        for part in x.split(self.size, -1):
            joined = torch.cat([before, part], -1)
            before = joined[..., -2:] * self.factor
            found.append(self.conv(joined))
        return torch.cat(found, -1)


def test_a_state_that_is_a_multiple_of_what_it_should_be_is_told() -> None:
    assert told(Normed(12, 1.0), Normed(4, 1.0), LATENT) == []
    ((_, op, what), *_) = told(Normed(12, 0.5), Normed(4, 0.5), LATENT)
    assert (op, what) == ("cat", "before positions 4:8 it puts what a has at 2:4, times 0.5")


class Reader(nn.Module):
    """Attention to a source, whose keys are made once; ``keeps`` is how many of them the later parts see."""

    def __init__(self, how: str, keeps: int | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.kv, self.how, self.keeps = nn.Linear(8, 8), nn.Linear(8, 16), how, keeps

    def forward(self, x: Tensor, source: Tensor, kept: Any) -> tuple[Tensor, Any]:
        k, v = self.kv(source).chunk(2, -1) if kept is None else kept
        kept = (k, v) if self.keeps is None else (k[:, -self.keeps :], v[:, -self.keeps :])
        if self.how == "fused":
            return F.scaled_dot_product_attention(self.q(x), k, v), kept
        if self.how == "masked":
            seen = torch.ones(x.shape[1], k.shape[1], dtype=torch.bool)
            return F.scaled_dot_product_attention(self.q(x), k, v, attn_mask=seen), kept
        return (self.q(x) @ k.mT).softmax(-1) @ v, kept


class Decoding(nn.Module):
    def __init__(self, how: str, size: int, keeps: int | None) -> None:
        super().__init__()
        self.reader, self.size = Reader(how, keeps), size

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        kept, found = None, []
        for part in x.split(self.size, 1):
            y, kept = self.reader(part, source, kept)
            found.append(y)
        return torch.cat(found, 1)


@pytest.mark.parametrize("how", ["fused", "masked", "written out"])
@pytest.mark.parametrize("length", [9, 6])  # 6: as long as what is decoded
def test_a_cache_of_a_source_that_loses_keys_is_told_with_their_number(how: str, length: int) -> None:
    x, source = torch.randn(1, 6, 8), torch.randn(1, length, 8)
    assert told(Decoding(how, 6, None), Decoding(how, 2, None), x, source) == []
    ((where, _, what), *_) = told(Decoding(how, 6, None), Decoding(how, 2, 4), x, source)
    assert where == "reader"
    if length == 9:
        position = "position 2" if how == "written out" else "position 3"
        assert what == f"{position} attends to 4 keys, to 9 in a"


class Vocoder(nn.Module):
    """A decoder of chunks with the frames before them, ``cut`` off what it returns; it returns less than 3 a frame."""

    def __init__(self, size: int, cut: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.size, self.cut = nn.Sequential(nn.ConvTranspose1d(4, 4, 6, stride=3), nn.Tanh()), size, cut

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for start in range(0, x.shape[-1], self.size):
            before = min(start, 3)
            y = self.up(x[..., start - before : start + self.size])[..., 3:-3]
            found.append(y[..., -3 * self.size :] if self.cut == "last" else y[..., 3 * before :])
        return torch.cat(found, -1)


def test_samples_that_are_cut_off_at_the_borders_of_parts_are_told() -> None:
    whole = Vocoder(12, "last")
    assert [row[1] for row in told(whole, Vocoder(4, "last"), LATENT) if row[1] == "cat"] == []
    ((_, op, what), *_) = told(whole, Vocoder(4, "first"), LATENT)
    assert (op, what) == (
        "cat",
        "part 1 that it joins begins at 12 of what a returns, and those before end at 9: 9:12 is left out "
        "(the part is 9 of 18, by getitem)",
    )


class World(nn.Module):
    """Frames from a first one on, of a loop that is not as long over parts: each begins with a frame of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.back, self.cell, self.out = nn.Linear(5, 8), nn.GRUCell(6, 8), nn.Linear(8, 5)

    def forward(self, first: Tensor, actions: Tensor) -> Tensor:
        found = [first]
        for at in range(actions.shape[1]):
            found.append(self.out(self.cell(actions[:, at], self.back(found[-1]))))
        return torch.stack(found, 1)


class Rolled(nn.Module):
    def __init__(self, size: int, how: str) -> None:
        super().__init__()
        self.world, self.size, self.how = World(), size, how

    def forward(self, first: Tensor, actions: Tensor) -> Tensor:
        found: list[Tensor] = []
        for part in actions.split(self.size, 1):
            frames = self.world(first if not found else found[-1][:, -1], part)
            found.append(frames if not found else frames[:, 1:] if self.how == "rest" else frames[:, :-1])
        return torch.cat(found, 1)


def test_frames_that_two_parts_both_have_are_told_and_longer_loops_are_no_fault() -> None:
    first, actions = LATENT[:, 0, :5], torch.randn(1, 8, 6, generator=torch.Generator().manual_seed(1))
    whole = Rolled(8, "rest")
    assert told(whole, Rolled(4, "rest"), first, actions) == []
    ((_, op, what), *_) = told(whole, Rolled(4, "first"), first, actions)
    assert op == "cat"
    assert what == (
        "part 1 that it joins begins at 4 of what a returns, and those before end at 5: 4:5 is there twice "
        "(the part is 4 of 5, by getitem)"
    )
