"""A sequence as a whole and in parts: what is kept from one part to the next, and is not what it should be."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug

X = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(5))
FIRST = "the one at {} of dimension 1 is the first to return something else, though it is given what a has there"


class Causal(nn.Module):
    """A causal convolution that keeps the inputs of the parts before; ``keeps`` says what it takes for them."""

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.conv, self.keeps = nn.Conv1d(8, 8, 4, groups=8), keeps

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        x = x.transpose(1, 2)
        state = torch.zeros(x.shape[0], 8, 3) if state is None else state
        joined = torch.cat([state, x], -1)
        y = self.conv(joined).sigmoid()
        kept = {"inputs": joined, "shifted": joined[..., :-1], "results": torch.cat([state, y], -1)}
        state = torch.zeros_like(state) if self.keeps == "nothing" else kept[self.keeps][..., -3:]
        return y.transpose(1, 2), state


class Window(nn.Module):
    """Attention to the last four positions, with those before in a cache."""

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.q, self.k, self.keeps = nn.Linear(8, 8), nn.Linear(8, 8), keeps
        self.places = nn.Embedding(12, 8)

    def forward(self, x: Tensor, past: tuple[Tensor, int] | None) -> tuple[Tensor, tuple[Tensor, int]]:
        start = 0 if past is None else past[1]
        places = torch.arange(x.shape[1]) + (0 if self.keeps == "places" else start)
        k = self.k(x + self.places(places))
        k = k if past is None else torch.cat([past[0], k], 1)
        at = torch.arange(x.shape[1]) + (k.shape[1] - x.shape[1])
        of_keys = torch.arange(k.shape[1])
        hidden = (of_keys > at[:, None]) | (of_keys <= at[:, None] - 4)
        weights = (self.q(x) @ k.mT).masked_fill(hidden, -torch.inf).softmax(-1)
        return weights @ k, (k[:, -2 if self.keeps == "two" else -3 :], start + x.shape[1])


class Recurrent(nn.Module):
    """A GRU with its state, or without it."""

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.gru, self.keeps = nn.GRU(8, 8, batch_first=True), keeps

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        y, last = self.gru(x, state)
        kept = {"state": last, "early": y[:, :1].transpose(0, 1).contiguous(), "nothing": None}
        return y, kept[self.keeps]


class Scan(nn.Module):
    """A running average of the positions, beginning with its state or with zeros."""

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.rate, self.keeps = nn.Parameter(torch.rand(8)), keeps

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        room = x.new_zeros(x.shape)
        state = x.new_zeros(x.shape[0], 8) if state is None else state
        for at in range(x.shape[1]):
            state = state * self.rate.sigmoid() + x[:, at]
            room[:, at] = state
        return room + 0.5, None if self.keeps == "nothing" else state


class Padded(nn.Module):
    """A causal convolution that puts zeros or the inputs before a part."""

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.conv, self.keeps = nn.Conv1d(8, 8, 4, padding=3 if keeps == "by itself" else 0), keeps

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        count, x = x.shape[1], x.transpose(1, 2)
        if self.keeps == "inputs" and state is not None:
            x = torch.cat([state, x], -1)
        elif self.keeps != "by itself":
            x = torch.nn.functional.pad(x, (3, 0))
        return self.conv(x)[..., :count].transpose(1, 2), x[..., -3:]


class Stream(nn.Module):
    """A model on all positions, or on parts of a size."""

    def __init__(self, part: nn.Module, size: int) -> None:
        super().__init__()
        self.part, self.head, self.size = part, nn.Linear(8, 3), size

    def forward(self, x: Tensor) -> Tensor:
        state, found = None, []
        for part in x.split(self.size, 1):
            y, state = self.part(part, state)
            found.append(y)
        return self.head(torch.cat(found, 1))


def runs(kind: Any, right: str, keeps: str, size: int = 4) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    whole, parts = Stream(kind(right), 12).eval(), Stream(kind(keeps), size).eval()
    parts.load_state_dict(whole.state_dict())
    return whole, parts


BEGINS = "it begins at 4 with"
PUTS = "before positions 4:8 it puts"
CASES = [
    (Causal, "inputs", "nothing", "cat", f"{PUTS} 0, not what a has at 1:4"),
    (Causal, "inputs", "results", "cat", f"{PUTS} what sigmoid returns in a at 1:4, not what a has there"),
    (Causal, "inputs", "shifted", "cat", f"{PUTS} what a has at 0:3, not at 1:4"),
    (
        Window,
        "three",
        "two",
        "softmax",
        "position 4 attends to keys from 1 on in a; b keeps 2 positions before 4:8, from 2 on",
    ),
    (Window, "three", "places", "arange", "for positions 4:8 it returns what arange of a returns for 0:4"),
    (
        Recurrent,
        "state",
        "nothing",
        "gru",
        "it begins at 4 with the state 0: that after position 3 is not passed on",
    ),
    (
        Recurrent,
        "state",
        "early",
        "gru",
        "it begins at 4 with that after position 0 of a, not with that after position 3",
    ),
    (
        Scan,
        "state",
        "nothing",
        "new_zeros",
        "it begins at 4 with zeros, as at 0: what the positions before it left is not passed on",
    ),
    (Padded, "inputs", "nothing", "pad", f"{PUTS} 0, not what a has at 1:4"),
    (Padded, "by itself", "by itself", "conv1d", f"{PUTS} 0, not what a has at 1:4"),
]


@pytest.mark.parametrize(("kind", "right", "keeps", "op", "what"), CASES)
def test_what_is_kept_of_the_parts_before_is_told(kind, right, keeps, op, what) -> None:
    whole, parts = runs(kind, right, keeps)
    traces = [fxdebug.fx_debug(model, X, values="tensors") for model in (whole, parts)]
    for found in (fxdebug.compare(*traces), fxdebug.compare_models(whole, parts, X, budget=0)):
        assert found.first is not None
        assert (found.first.op, found.first.because.partition(" (called on ")[0]) == (op, what)


@pytest.mark.parametrize(
    ("kind", "right"),
    [(Causal, "inputs"), (Window, "three"), (Recurrent, "state"), (Scan, "state"), (Padded, "inputs")],
)
@pytest.mark.parametrize("size", [1, 4, 5])
def test_parts_that_keep_what_they_should_are_equal_to_the_whole(kind, right, size) -> None:
    whole, parts = runs(kind, right, right, size)
    assert fxdebug.compare(*[fxdebug.fx_debug(each, X, values="tensors") for each in (whole, parts)]).findings == ()


def test_the_call_on_a_part_is_told_with_its_place() -> None:
    whole, parts = runs(Recurrent, "state", "nothing")
    found = fxdebug.compare(*[fxdebug.fx_debug(each, X, values="tensors") for each in (whole, parts)])
    assert found.first is not None
    assert (found.first.path, found.first.because.partition(" (called")[2]) == (
        "part.gru",
        f" on 3 parts in b; {FIRST.format('4:8')})",
    )
    again = copy.deepcopy(parts)
    assert fxdebug.compare(*[fxdebug.fx_debug(each, X, values="tensors") for each in (parts, again)]).findings == ()


class Cached(nn.Module):
    """Unpadded convolutions on parts, each behind the frames before it."""

    def __init__(self, size: int, last: bool) -> None:
        super().__init__()
        self.convs, self.size, self.last = nn.ModuleList([nn.Conv1d(8, 8, 3), nn.Conv1d(8, 8, 3)]), size, last

    def forward(self, x: Tensor) -> Tensor:
        before, found = torch.zeros(2, 4, 8), []
        for part in x.split(self.size, 1):
            h = torch.cat([before, part], 1).transpose(1, 2)
            before = torch.cat([before, part], 1)[:, -4:] if self.last else part[:, :4]
            for conv in self.convs:
                h = conv(h).relu()
            found.append(h.transpose(1, 2))
        return torch.cat(found, 1)


def test_what_is_joined_outside_of_all_modules_is_told_where_nothing_else_could_be_paired() -> None:
    torch.manual_seed(0)
    whole, parts = Cached(12, True), Cached(6, False)
    parts.load_state_dict(whole.state_dict())
    found = fxdebug.compare(*[fxdebug.fx_debug(each, X, values="tensors") for each in (whole, parts)])
    assert found.first is not None
    assert (found.first.op, found.first.because) == (
        "cat",
        "before positions 6:12 it puts what a has at 0:4, not at 2:6",
    )


class Counted(nn.Module):
    """Positions of a part: the count of those before, which stands still once the cache is full, and a range."""

    def __init__(self, stops: bool) -> None:
        super().__init__()
        self.rate, self.stops = nn.Linear(8, 8), stops

    def forward(self, x: Tensor, before: int) -> Tensor:
        count = min(before, 6) if self.stops else before
        places = count + torch.arange(x.shape[1])
        return self.rate(x) * (places[:, None] * torch.arange(1.0, 9.0)).cos()


class InSteps(nn.Module):
    def __init__(self, part: Counted, size: int) -> None:
        super().__init__()
        self.part, self.size = part, size

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.part(each, at * self.size) for at, each in enumerate(x.split(self.size, 1))], 1)


def test_a_range_that_begins_at_0_in_every_part_is_not_told_for_the_count_that_is_added_to_it() -> None:
    torch.manual_seed(0)
    whole = InSteps(Counted(True), 12)
    for stops in (True, False):
        parts = InSteps(Counted(stops), 2)
        parts.load_state_dict(whole.state_dict())
        found = fxdebug.compare(*[fxdebug.fx_debug(each, X, values="tensors") for each in (whole, parts)])
        told = [(row.op, row.because.partition(" (called")[0]) for row in found.findings]
        assert told == ([("add", "for positions 8:10 it returns what add of a returns for 6:8")] if stops else [])


class CausalKeys(nn.Module):
    """Attention with the keys before in a cache; ``always`` asks for ``is_causal`` with a cache, too."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.q, self.k, self.always = nn.Linear(8, 8), nn.Linear(8, 8), always

    def forward(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        keys = self.k(x) if before is None else torch.cat([before, self.k(x)], 1)
        causal = self.always or before is None
        return nn.functional.scaled_dot_product_attention(self.q(x), keys, keys, is_causal=causal), keys


class OneByOne(nn.Module):
    def __init__(self, part: CausalKeys, size: int) -> None:
        super().__init__()
        self.part, self.size = part, size

    def forward(self, x: Tensor) -> Tensor:
        before, found = None, []
        for each in x.split(self.size, 1):
            y, before = self.part(each, before)
            found.append(y)
        return torch.cat(found, 1)


def test_a_query_behind_a_cache_that_is_causal_from_the_first_key_on_is_told() -> None:
    torch.manual_seed(0)
    whole = OneByOne(CausalKeys(True), 12)
    for always in (True, False):
        parts = OneByOne(CausalKeys(always), 1)
        parts.load_state_dict(whole.state_dict())
        found = fxdebug.compare(*[fxdebug.fx_debug(each, X, values="tensors") for each in (whole, parts)])
        told = [(row.op, row.because.partition(" (called")[0]) for row in found.findings[:1]]
        sees = "is_causal counts from the first key: its query sees 1 of 2 keys"
        assert told == ([("scaled_dot_product_attention", sees)] if always else [])


class Remembering(nn.Module):
    """A causal convolution that keeps the end of a part by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.state = nn.Conv1d(8, 8, 4), torch.zeros(2, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.state, x], -1)
        self.state = x[..., -3:]
        return self.conv(x)


class Deep(nn.Module):
    """Causal layers, each called on every part."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers, self.size = nn.Sequential(*[Remembering() for _ in range(4)]), size

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.layers(part) for part in x.mT.split(self.size, -1)], -1)


def test_calls_on_parts_that_return_what_the_whole_does_count_as_compared() -> None:
    whole, parts = Deep(12).eval(), Deep(4).eval()
    parts.load_state_dict(whole.state_dict())
    found = fxdebug.compare(*[fxdebug.fx_debug(each, X, values="tensors") for each in (whole, parts)])
    assert (found.verdict, found.missing) == ("equal", ())
