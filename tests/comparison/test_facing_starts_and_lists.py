"""A signal against its first frames, and an image alone against itself among others: what is compared with what."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug import fx_debug


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + 7 * shape[-1]))


def compared(model: nn.Module, a: tuple[Any, ...], b: tuple[Any, ...]) -> fxdebug.Comparison:
    model.eval()
    return fxdebug.compare(fx_debug(model, a, values="tensors"), fx_debug(model, b, values="tensors"))


def first(found: fxdebug.Comparison) -> tuple[str, str | None, str]:
    (row,) = found.findings
    return row.path, row.op, row.because


class Layer(nn.Module):
    """A convolution over frames, which are padded before them or on both sides; ``stride`` leaves fewer."""

    def __init__(self, sides: int, stride: int, causal: bool) -> None:
        super().__init__()
        self.conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[sides](4, 4, 3, stride=(stride,) + (1,) * (sides - 1))
        self.pads = [1, 1] * (sides - 1) + [2, 0] if causal else [1, 1] * sides

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(F.pad(x, self.pads)).tanh()
        return y


class Frames(nn.Module):
    def __init__(self, sides: int, fault: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into, self.fewer = Layer(sides, 1, True), Layer(sides, 2, not fault)
        self.out = Layer(sides, 1, True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.fewer(self.into(x)))
        return y


@pytest.mark.parametrize("sides", [1, 2, 3])
@pytest.mark.parametrize("flips", [False, True])
def test_the_first_frames_alone_equal_those_of_the_whole_unless_a_layer_sees_later_ones(
    sides: int, flips: bool
) -> None:
    whole = drawn(2, 4, 9, *[6, 5][: sides - 1])
    runs = [(whole,), (whole[:, :, :5],)]
    a, b = reversed(runs) if flips else runs
    assert compared(Frames(sides, False), a, b).equal
    found = compared(Frames(sides, True), a, b)
    assert first(found) == (
        "fewer.conv",
        f"conv{sides}d",
        f"given the same at these positions, the code up to conv{sides}d returns other values: what stands behind them "
        f"in {'b' if flips else 'a'} has an effect here",
    )
    assert found.notes[0].startswith("b has 9 positions, a 5" if flips else "a has 9 positions, b 5")


def test_one_image_is_compared_with_the_first_frame_of_a_video() -> None:
    whole = drawn(1, 4, 9, 6, 5)
    assert compared(Frames(3, False), (whole,), (whole[:, :, :1],)).equal
    found = compared(Frames(3, True), (whole,), (whole[:, :, :1],))
    assert [(row.path, row.op) for row in found.findings] == [("fewer.conv", "conv3d")]


class Chomped(nn.Module):
    """Frames that are padded on both sides, and the last results left out: a causal layer written otherwise."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 4, 3, padding=(2, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)[:, :, :-2].relu()


def test_results_that_are_left_out_again_have_no_effect() -> None:
    whole = drawn(2, 4, 9, 6)
    assert compared(Chomped(), (whole,), (whole[:, :, :5],)).equal


class Patches(nn.Module):
    """Patches of images in one row, or padded to the longest, each of which sees its own image, or all."""

    def __init__(self, how: str, apart: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.apart = how, apart
        self.cut, self.norm, self.mixed = nn.Conv2d(3, 8, 2, stride=2), nn.LayerNorm(8), Mixed()

    def forward(self, *images: Tensor) -> Tensor:
        patches = [self.cut(image[None])[0].flatten(1).T for image in images]
        if self.how == "padded":
            x = nn.utils.rnn.pad_sequence(patches, batch_first=True)
            real = torch.arange(x.shape[1]) < torch.tensor([len(each) for each in patches])[:, None]
            seen = real[:, None] | (not self.apart)
        else:
            x = torch.cat(patches)
            number = torch.cat([torch.full((len(each),), at) for at, each in enumerate(patches)])
            seen = (number[:, None] == number) | (not self.apart)
        y: Tensor = self.mixed(self.norm(x), seen)
        return y


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("how", ["joined", "padded"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_image_alone_equals_itself_among_others_unless_it_sees_them(how: str, number: int) -> None:
    images = (drawn(3, 4, 6), drawn(3, 6, 6)[:, :4, :4], drawn(3, 6, 4))
    alone, among = (images[number],), images
    for a, b in ((alone, among), (among, alone)):
        assert compared(Patches(how, True), a, b).equal
        if how == "joined" or number == 1:  # the others are the longest: without padding
            path, op, because = first(compared(Patches(how, False), a, b))
            assert (path, op) == ("mixed", "matmul")
            assert because.endswith(f"the other inputs of {'b' if b is among else 'a'} have an effect here")


def test_an_image_that_is_not_among_the_others_is_another_input() -> None:
    found = compared(Patches("joined", True), (drawn(3, 8, 4),), (drawn(3, 4, 6), drawn(3, 4, 4)))
    assert not found.equal


class OfList(Patches):
    def forward(self, images: list[Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(*images)


def test_images_may_be_in_one_list() -> None:
    images = [drawn(3, 4, 6), drawn(3, 6, 6)[:, :4, :4], drawn(3, 6, 4)]
    assert compared(OfList("joined", True), (images[1:2],), (images,)).equal
    path, op, _ = first(compared(OfList("joined", False), (images[1:2],), (images,)))
    assert (path, op) == ("mixed", "matmul")


class Counted(nn.Module):
    """Documents in one row, kept apart by where they begin and end."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.out = nn.Embedding(30, 8), nn.Linear(8, 4)

    def forward(self, words: Tensor, cu_seqlens: Tensor) -> Tensor:
        number = (torch.arange(words.shape[1])[:, None] >= cu_seqlens[1:-1]).sum(1)
        x = self.words(words)
        weights = (x @ x.mT).masked_fill(number[:, None] != number, -torch.inf).softmax(-1)
        y: Tensor = self.out(weights @ x)
        return y


def test_numbers_that_count_the_samples_are_no_other_inputs() -> None:
    words = torch.tensor([[4, 9, 2, 5, 3, 8, 7]])
    a, b = (words[:, 3:], torch.tensor([0, 4])), (words, torch.tensor([0, 3, 7]))
    assert compared(Counted(), a, b).equal
