"""The inputs that hold the tokens, and the dimension, are found out by what the model runs with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.errors import UsageError

DEPENDS = "depends on"


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def told(model: nn.Module, inputs: Any, over: Any, **settings: Any) -> list[tuple[str, str, str]]:
    """Return the path, the operation and the beginning of each finding."""
    report = fxdebug.independent(model.eval(), inputs, over=over, **settings)
    return [(one.path, one.op, one.what.partition(":")[0]) for one in report.findings]


def notes(model: nn.Module, inputs: Any, over: Any, **settings: Any) -> list[str]:
    return [note.what for note in fxdebug.independent(model.eval(), inputs, over=over, **settings).notes]


class Captioner(nn.Module):
    """Words that look at an image, then pool over themselves, with or without those behind their number."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.see, self.words, self.counts = nn.Conv2d(4, 8, 3, padding=1), nn.Embedding(30, 8), counts

    def forward(self, picture: Tensor, caption: Tensor, caption_len: Tensor) -> Tensor:
        spots = self.see(picture).flatten(2)
        x = self.words(caption) + (self.words(caption) @ spots).softmax(-1) @ spots.mT
        hidden = torch.arange(caption.shape[1]) >= caption_len[:, None]
        if self.counts:
            x = x.masked_fill(hidden[..., None], 0.0)
        return x.sum(1) / caption_len[:, None]


@pytest.mark.parametrize("size", [5, 7])  # 7: a side of the picture is as long as the caption
def test_lengths_count_the_words_that_end_in_one_number_and_not_the_channels_of_a_picture(size: int) -> None:
    caption = torch.tensor([[4, 9, 2, 0, 0, 0, 0], [5, 3, 8, 7, 1, 6, 2]])
    inputs = (drawn(2, 4, size, size), caption, torch.tensor([3, 7]))
    assert told(Captioner(False), inputs, "padding") == [("", "sum", "row 0 depends on padding")]
    assert told(Captioner(True), inputs, "padding") == []


class Translator(nn.Module):
    """Attention of one sequence to another, each of which has a mask; ``fault`` is the one that is not looked at."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.fault = nn.Embedding(30, 8), fault

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        read, said = self.words(source), self.words(target)
        own, other = target_mask[:, None].bool(), source_mask[:, None].bool()
        own, other = (own | (self.fault == "target")), (other | (self.fault == "source"))
        said = said + (said @ said.mT).masked_fill(~own, -torch.inf).softmax(-1) @ said
        return said + (said @ read.mT).masked_fill(~other, -torch.inf).softmax(-1) @ read


@pytest.mark.parametrize(("fault", "size"), [("source", 5), ("target", 4)])
def test_each_of_two_sequences_is_asked_by_its_own_mask(fault: str, size: int) -> None:
    source, target = torch.tensor([[3, 7, 0, 0, 0]]), torch.tensor([[5, 6, 2, 0]])
    inputs = (source, target, (source > 0).long(), (target > 0).long())
    found = told(Translator(fault), inputs, "padding")
    assert found == [("", "softmax", f"row 0 (dimension 1 of {fault}_mask) depends on padding")]
    assert told(Translator(), inputs, "padding") == []


class OverTime(nn.Module):
    """Convolutions of a video or of a spectrogram, padded on both sides but along time, which is padded before it."""

    def __init__(self, time: int, causal: bool, sides: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = (nn.Conv3d if sides == 3 else nn.Conv2d)(3, 3, 3)
        pads = [(1, 1)] * sides
        pads[time - 2] = (2, 0) if causal else (1, 1)
        self.pads = [each for pair in reversed(pads) for each in pair]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(F.pad(x, self.pads))
        return y


@pytest.mark.parametrize("time", [2, 3])
def test_time_is_the_dimension_in_which_a_model_looks_back_alone(time: int) -> None:
    spectra = drawn(2, 3, 8, 8)
    assert told(OverTime(time, True, 2), spectra, "length") == []
    found = told(OverTime(time, False, 2), spectra, "length")
    assert found == [("conv", "conv2d", "the first half (tokens 0 to 3) depends on later tokens")]
    assert notes(OverTime(time, False, 2), spectra, "length")[1] == (
        "tokens are taken to be along dimension 2 of x, not along dimension 3 of x: dim= says another one"
    )


def test_frames_of_a_video_are_in_its_third_dimension() -> None:
    video = drawn(1, 3, 6, 6, 6)
    found = told(OverTime(2, False, 3), video, "length")
    assert found == [("conv", "conv3d", "the first half (tokens 0 to 2) depends on later tokens")]
    assert told(OverTime(2, True, 3), video, "length") == []


def test_a_dimension_that_is_named_is_asked_alone() -> None:
    spectra = drawn(2, 3, 8, 8)
    causal = OverTime(3, True, 2)
    for dim in (2, {"x": 2}):
        assert told(causal, spectra, "length", dim=dim) == [
            ("conv", "conv2d", "the first half (tokens 0 to 3) depends on later tokens")
        ]
    assert told(causal, spectra, "length", dim=-1) == []


class Fixed(nn.Module):
    """Takes no other number of frames or channels than these."""

    def forward(self, frames: Tensor) -> Tensor:
        return frames + torch.ones(4, 6)


def test_what_the_model_runs_with_no_part_of_is_told_and_is_not_its_own_exception() -> None:
    with pytest.raises(
        UsageError, match=r"half of dimension 1 of frames .RuntimeError: .*Say which .* dim=2"
    ) as raised:
        fxdebug.independent(Fixed(), torch.ones(2, 4, 6), over="length")
    assert isinstance(raised.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="must match"):  # of what was given
        fxdebug.independent(Fixed(), torch.ones(2, 5, 6), over="length")


@pytest.mark.parametrize("dim", [7, {"words": 1}, {"frames": 3}, {}])
def test_dimensions_that_are_not_there_are_refused(dim: Any) -> None:
    with pytest.raises(UsageError, match="dim="):
        fxdebug.independent(Fixed(), torch.ones(2, 4, 6), over="length", dim=dim)


class TimeFirst(nn.Module):
    """An LSTM over words in the first dimension, with or without their lengths."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.rnn, self.packed = nn.Embedding(20, 6), nn.LSTM(6, 6), packed

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        x = self.words(words)
        if self.packed:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        last: Tensor = self.rnn(x)[1][0][0]
        return last


def test_words_may_be_in_the_first_dimension_and_rows_in_the_second() -> None:
    inputs = (torch.tensor([[4, 5], [9, 2], [3, 7], [8, 0], [6, 0]]), torch.tensor([5, 3]))
    assert told(TimeFirst(False), inputs, "padding") == [("rnn", "lstm", "row 1 depends on padding")]
    assert told(TimeFirst(True), inputs, "padding") == []


class Bag(nn.Module):
    """The mean of words, of all or of those that are not 1."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.masked = nn.Embedding(20, 6), masked

    def forward(self, words: Tensor) -> Tensor:
        kept = (words != 1) | (not self.masked)
        return (self.words(words) * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)


def test_without_a_mask_one_number_at_the_ends_of_rows_is_taken_for_padding() -> None:
    words = torch.tensor([[4, 9, 3, 1, 1], [5, 2, 7, 8, 6]])
    assert told(Bag(False), words, "padding")[0][2] == "row 0 depends on padding"
    assert told(Bag(True), words, "padding") == []
    assert "padding is taken to be the 1 at the ends" in notes(Bag(True), words, "padding")
    with pytest.raises(UsageError, match="needs a mask of shape"):
        fxdebug.independent(Bag(True), torch.tensor([[4, 1, 3, 1, 1], [5, 2, 7, 8, 6]]), over="padding")


class Gated(nn.Module):
    """A gate that is left out for a single row, or for none."""

    def __init__(self, skips: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.skips, self.into, self.gate, self.out = skips, nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        if len(x) > 1 or not self.skips:
            x = x * self.gate(x).sigmoid()
        y: Tensor = self.out(x)
        return y


def test_a_module_that_runs_in_one_run_alone_is_named() -> None:
    report = fxdebug.independent(Gated(True), drawn(3, 6))
    (finding,) = report.findings
    assert (finding.path, finding.op) == ("gate", "Linear")
    assert finding.what.startswith(
        "row 0 depends on the other rows of the batch: gate runs here, and not for row 0 alone; this is"
    )
    assert fxdebug.independent(Gated(False), drawn(3, 6)).findings == ()


class Experts(nn.Module):
    """Each row by one of two experts, which take all their rows, or no more than one."""

    def __init__(self, most: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts, self.most = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)]), most

    def forward(self, x: Tensor) -> Tensor:
        chosen, y = (x[:, 0] > 0).long(), x.clone()
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()[: self.most]
            if len(rows):
                y = y.index_add(0, rows, expert(x[rows]))
        return y


def test_an_expert_that_other_rows_chose_is_not_what_a_row_depends_on() -> None:
    x = drawn(4, 6)
    x[:, 0] = torch.tensor([1.0, -1.0, 2.0, 3.0])
    assert fxdebug.independent(Experts(9), x).findings == ()
    assert all("runs" not in finding.what for finding in fxdebug.independent(Experts(1), x).findings)
    assert fxdebug.independent(Experts(1), x).findings


class Joined(nn.Module):
    """Patches of images of any size in one row, or padded to the largest, each of which sees its own image, or all."""

    def __init__(self, how: str, apart: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.apart, self.cut, self.qkv = how, apart, nn.Conv2d(3, 8, 2, stride=2), nn.Linear(8, 24)

    def forward(self, images: list[Tensor]) -> Tensor:
        patches = [self.cut(image[None])[0].flatten(1).T for image in images]
        number = torch.cat([torch.full((len(each),), at) for at, each in enumerate(patches)])
        if self.how == "padded":
            x = nn.utils.rnn.pad_sequence(patches, batch_first=True)
            real = torch.arange(x.shape[1]) < torch.tensor([len(each) for each in patches])[:, None]
            seen = real[:, None] | (not self.apart)
        else:
            x = torch.cat(patches)
            seen = (number[:, None] == number) | (not self.apart)
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("how", ["joined", "padded"])
def test_images_of_a_list_are_run_alone_and_found_again_in_what_the_model_made_of_them(how: str) -> None:
    images = [drawn(3, 4, 6), drawn(3, 4, 4), drawn(3, 2, 6)]
    found = told(Joined(how, False), (images,), "pack")
    first = "sample 0" if how == "joined" else "sample 1"  # the largest has no padding
    assert found[0] == ("", "softmax", f"{first} depends on its neighbours in the pack")
    assert told(Joined(how, True), (images,), "pack") == []


class Further(Joined):
    def forward(self, *images: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(list(images))


def test_images_may_be_further_arguments() -> None:
    images = (drawn(3, 4, 6), drawn(3, 4, 4))
    assert told(Further("joined", False), images, "pack")[0][1] == "softmax"
    assert told(Further("joined", True), images, "pack") == []
