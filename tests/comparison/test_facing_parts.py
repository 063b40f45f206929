"""One sample alone against the same sample in a batch, padded or packed: rows and positions that face each other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fxdebug
from fxdebug import fx_debug


class Layer(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        return x + self.out(mixed.reshape(b * t, d)).view(b, t, d)


class Text(nn.Module):
    """A decoder; ``counts`` positions from the first real token, ``masks`` padding, ``packs`` documents apart."""

    def __init__(self, *, counts: bool = True, masks: bool = True, packs: bool = True, pools: str = "") -> None:
        super().__init__()
        self.counts, self.masks, self.packs, self.pools = counts, masks, packs, pools
        self.tokens, self.positions = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(16, 50)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Tensor:
        b, t = input_ids.shape
        own = torch.arange(t).expand(b, t)
        if self.counts:
            own = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        places = own if position_ids is None else position_ids
        x = self.tokens(input_ids) + self.positions(places)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        if self.masks:
            mask = mask & attention_mask[:, None, None, :].bool() | torch.eye(t, dtype=torch.bool)
        if self.packs and position_ids is not None:
            documents = (position_ids == 0).cumsum(-1)
            mask = mask & (documents[:, None, :, None] == documents[:, None, None, :])
        for layer in self.layers:
            x = layer(x, mask)
        if self.pools == "all":
            return self.head(x.mean(1))
        if self.pools == "real":
            weights = attention_mask[..., None].to(x.dtype)
            return self.head((x * weights).sum(1) / weights.sum(1))
        return self.head(x)


IDS = torch.tensor([[11, 7, 23, 5]])
OTHER = torch.tensor([[3, 9, 12, 4, 8, 21]])


def text(model: nn.Module, ids: Tensor, mask: Tensor | None = None, **more: Tensor) -> fxdebug.Trace:
    mask = torch.ones_like(ids) if mask is None else mask
    with torch.no_grad():
        return fx_debug(model.eval(), {"input_ids": ids, "attention_mask": mask, **more}, values="tensors")


def fresh(**options: Any) -> Text:
    torch.manual_seed(0)
    return Text(**options)


LEFT = torch.cat((torch.zeros(1, 2, dtype=torch.long), IDS), 1)
RIGHT = torch.cat((IDS, torch.zeros(1, 2, dtype=torch.long)), 1)


def mask_of(ids: Tensor) -> Tensor:
    return (ids != 0).long()


def padded(ids: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.cat((OTHER, ids))
    return both, mask_of(both)


@pytest.mark.parametrize("ids", [LEFT, RIGHT])
def test_a_text_alone_equals_itself_in_a_padded_batch_in_either_order(ids: Tensor) -> None:
    model = fresh()
    alone, batch = text(model, IDS), text(model, *padded(ids))
    for one, other in ((alone, batch), (batch, alone)):
        found = fxdebug.compare(one, other)
        assert (found.verdict, found.findings) == ("equal", ())
        assert found.outputs[0].error < 1e-5


def test_what_faces_what_is_said() -> None:
    found = fxdebug.compare(text(fresh(), IDS), text(fresh(), *padded(LEFT)))
    assert found.notes == (
        "compared are row 0 of a with row 1, positions 2 to 5, of b, which have the same tokens, call by call; "
        'this takes the tensors of both (values="tensors")',
    )


def test_positions_that_count_from_the_padding_are_named() -> None:
    model = fresh(counts=False)
    found = fxdebug.compare(text(model, IDS), text(model, *padded(LEFT)))
    assert found.first is not None
    assert found.first.because == "arange returns 0, 1, 2, 3 in a, 2, 3, 4, 5 in b, for the same tokens"
    assert fxdebug.compare(text(model, IDS), text(model, *padded(RIGHT))).equal


def test_the_layer_that_sees_the_padding_is_named() -> None:
    model = fresh(masks=False)
    found = fxdebug.compare(text(model, IDS), text(model, *padded(LEFT)))
    assert found.first is not None and (found.first.path, found.first.op) == (
        "layers.0",
        "scaled_dot_product_attention",
    )
    assert found.first.because.startswith("given the same at these positions, the code up to ")
    assert fxdebug.compare(text(model, IDS), text(model, *padded(RIGHT))).equal  # causal: it sees only what is before


def test_a_mean_over_padding_is_named_and_one_over_real_tokens_is_not() -> None:
    model = fresh(pools="all")
    found = fxdebug.compare(text(model, IDS), text(model, *padded(RIGHT)))
    assert found.first is not None and found.first.op == "mean"
    assert fxdebug.compare(text(fresh(pools="real"), IDS), text(fresh(pools="real"), *padded(RIGHT))).equal


def test_a_text_alone_equals_itself_in_a_pack_unless_the_neighbour_is_seen() -> None:
    pack = torch.cat((OTHER, IDS), 1)
    places = {"position_ids": torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2, 3]])}
    own = {"position_ids": torch.tensor([[0, 1, 2, 3]])}
    apart, mixed = fresh(), fresh(packs=False)
    for turn in (1, -1):  # the pack may be either one
        assert fxdebug.compare(*(text(apart, IDS, **own), text(apart, pack, **places))[::turn]).equal
        found = fxdebug.compare(*(text(mixed, IDS, **own), text(mixed, pack, **places))[::turn])
        assert found.first is not None and found.first.path == "layers.0"


@pytest.mark.parametrize("training", [True, False])
def test_an_image_alone_equals_itself_in_a_batch_unless_statistics_of_the_batch_are_used(training: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    model.train(training)
    images = torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        alone, batch = (fx_debug(model, x, values="tensors") for x in (images[3:4], images))
    found = fxdebug.compare(alone, batch)
    assert found.equal is not training
    assert found.notes[0].startswith("compared are row 0 of a with row 3 of b, which have the same numbers in ")
    if training:
        assert found.first is not None and found.first.path == "1"


def test_two_rows_face_those_of_another_batch_in_another_order() -> None:
    torch.manual_seed(0)
    model, rows = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(6, 4)
    one, other = (fx_debug(model, x, values="tensors") for x in (rows[[4, 1]], rows))
    found = fxdebug.compare(one, other)
    assert found.equal
    assert found.notes[0].startswith("compared are row 0 of a with row 4 of b, row 1 of a with row 1 of b, which")


def test_inputs_of_other_sizes_that_share_no_row_are_other_inputs() -> None:
    model = nn.Linear(4, 4)
    one, other = (fx_debug(model, torch.randn(n, 4), values="tensors") for n in (1, 3))
    found = fxdebug.compare(one, other)
    assert found.first is not None and found.first.kind == "input"


def test_without_tensors_and_models_nothing_faces_anything() -> None:
    model = fresh()
    with torch.no_grad():
        runs = [
            fx_debug(model.eval(), {"input_ids": ids, "attention_mask": mask_of(ids)}) for ids in (IDS, padded(LEFT)[0])
        ]
    assert fxdebug.compare(*runs).equal  # both run once more
    found = fxdebug.compare(*map(copy.copy, runs))
    assert found.first is not None and found.first.kind == "input"


class Cached(nn.Module):
    """Attention over a cache of keys and values; ``counts`` positions from the end of the cache, or from 0."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.counts, self.tokens, self.places = counts, nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, ids: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        start, count = 0 if past is None else past[0].shape[1], ids.shape[1]
        x = self.tokens(ids) + self.places(torch.arange(count) + (start if self.counts else 0))
        k, v = self.k(x), self.v(x)
        if past is not None:
            k, v = torch.cat((past[0], k), 1), torch.cat((past[1], v), 1)
        hidden = ~torch.ones(count, start + count, dtype=torch.bool).tril(start)
        weights = (self.q(x) @ k.transpose(1, 2) / 4).masked_fill(hidden, -torch.inf).softmax(-1)
        return weights @ v, (k, v)


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_a_step_that_counts_its_positions_from_0_is_named_and_a_right_one_is_not(values: str) -> None:
    ids = torch.randint(50, (1, 8), generator=torch.Generator().manual_seed(0))
    found = {}
    for counts in (False, True):
        model = Cached(counts).eval()
        with torch.no_grad():
            whole, past = fx_debug(model, ids, values=values), model(ids[:, :7])[1]
            found[counts] = fxdebug.compare(whole, fx_debug(model, (ids[:, 7:], past), values=values))
    assert found[True].findings == ()
    first = found[False].findings[0]
    assert first.because == "integers are 7 less than in a, all of them: they are counted from another start"


class Blocks(nn.Module):
    """A strided convolution over a whole signal, or over a block of it with what was kept of the one before."""

    def __init__(self, keeps: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.mix, self.keeps = nn.Conv1d(1, 4, 8, stride=4), nn.Conv1d(4, 2, 1), keeps

    def forward(self, wave: torch.Tensor, state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        wave = nn.functional.pad(wave, (4, 0)) if state is None else torch.cat((state, wave), -1)
        return self.mix(torch.tanh(self.conv(wave))), wave[..., wave.shape[-1] - self.keeps :]


BEFORE = "conv1d is given 4 positions before those of the input in a, 7 in b: its results are those of other places"


@pytest.mark.parametrize("values", ["stats", "tensors"])
@pytest.mark.parametrize(("keeps", "because"), [(4, []), (7, [("conv", BEFORE)])])
def test_a_block_of_a_signal_is_compared_with_the_end_of_the_whole(
    keeps: int, because: list[tuple[str, str]], values: str
) -> None:
    model = Blocks(keeps).eval()
    wave = torch.randn(1, 1, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = fxdebug.fx_debug(model, {"wave": wave}, values=values)
        block = {"wave": wave[..., 16:], "state": wave[..., 16 - keeps : 16]}
        found = fxdebug.compare(whole, fxdebug.fx_debug(model, block, values=values))
    assert [(row.path, row.because) for row in found.findings] == because
