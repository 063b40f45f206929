"""Which calls are folded: layers that follow one another, groups that repeat in turn, steps of a loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import Trace, fx_debug
from fxdebug.query.folding import FoldedCalls, Row, fold_repeated
from support.trees import Does, ones


def rows(trace: Trace, **options: Any) -> list[str]:
    """Every row below the root, with its class."""
    lines: list[str] = []

    def add(row: Row, depth: int) -> None:
        lines.append("  " * depth + row.name + (f" {row.first.type}" if isinstance(row, FoldedCalls) else ""))
        for child in row.children:
            add(child, depth + 1)

    for child in fold_repeated(trace, **options).children:
        add(child, 0)
    return lines


def unfolded(row: Row) -> list[int]:
    """The calls that a row stands for, in the order that the row says they ran in."""
    if isinstance(row, FoldedCalls):
        assert not row.children
        return [call.index for call in row.calls]
    turns = [unfolded(child) for child in row.children]
    lengths = [len(turn) // row.repeats for turn in turns]
    return [
        index
        for repeat in range(row.repeats)
        for turn, length in zip(turns, lengths, strict=True)
        for index in turn[repeat * length : (repeat + 1) * length]
    ]


def sequence(kinds: str) -> Trace:
    """A run of layers by letter: a and b are Linear layers with and without bias, r, t and g activations."""
    layers = {
        "a": lambda: nn.Linear(4, 4),
        "b": lambda: nn.Linear(4, 4, bias=False),
        "r": nn.ReLU,
        "t": nn.Tanh,
        "g": nn.GELU,
        "n": lambda: nn.LayerNorm(4),
    }
    return fx_debug(nn.Sequential(*(layers[kind]() for kind in kinds)), ones(), graph=False)


@pytest.mark.parametrize(
    ("kinds", "drawn"),
    [
        ("arararara", ["(0, 1) … (6, 7) ×4", "  0 … 6 Linear", "  1 … 7 ReLU", "8 Linear"]),
        ("aararar", ["0 Linear", "(1, 2) … (5, 6) ×3", "  1 … 5 Linear", "  2 … 6 ReLU"]),
        ("aaaa", ["0 … 3 ×4 Linear"]),
        ("arar", ["0 Linear", "1 ReLU", "2 Linear", "3 ReLU"]),
        ("tnrtnrtnrt", ["(0, 1, 2) … (6, 7, 8) ×3", "  0 … 6 Tanh", "  1 … 7 LayerNorm", "  2 … 8 ReLU", "9 Tanh"]),
        ("aaaraaaraaar", ["(0, 1, 2, 3) … (8, 9, 10, 11) ×3", "  0 … 10 ×3 Linear", "  3 … 11 ReLU"]),
        ("rarara" + "ttt", ["(0, 1) … (4, 5) ×3", "  0 … 4 ReLU", "  1 … 5 Linear", "6 … 8 ×3 Tanh"]),
    ],
)  # fmt: skip
def test_layers_in_turn_are_a_group_and_only_what_repeats_is_folded(kinds, drawn):
    trace = sequence(kinds)
    assert rows(trace) == drawn


@pytest.mark.parametrize("kinds", ["arararara", "agtrgtrgtr", "aaaaaarrrrrr", "nanrtnanrtnanrtn", "rt" * 9 + "ra" * 4])
def test_what_is_folded_says_the_order_in_which_it_ran(kinds):
    trace = sequence(kinds)
    order = [index for row in fold_repeated(trace).children for index in unfolded(row)]
    assert order == list(range(1, len(trace.calls)))


def test_a_loop_over_parts_is_one_group_that_begins_where_the_loop_does():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = x
        for turn in range(5):
            hidden = (self.cell if turn else self.first)(self.drop(hidden))
            x = x + self.out(hidden)
        return x

    parts = {"drop": nn.Dropout(0.0), "first": nn.Linear(4, 4), "cell": nn.Linear(4, 4), "out": nn.Linear(4, 4)}
    turn = ["  drop Dropout", "  cell Linear", "  out Linear"]
    trace = fx_debug(Does(forward, **parts), ones())
    assert rows(trace) == ["drop Dropout", "first Linear", "out Linear", "(drop, cell, out) ×4", *turn]


def test_groups_below_repeated_layers_and_blocks_in_a_group():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(4, 4), nn.ReLU())))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.mlp(x)

    trace = fx_debug(nn.Sequential(*(Block() for _ in range(4))), ones())
    inner = ["    (0, 1) … (4, 5) ×3", "      0 … 4 Linear", "      1 … 5 ReLU"]
    assert rows(trace) == ["0 … 3 ×4 Block", "  mlp Sequential", *inner]
    trace = fx_debug(nn.Sequential(*(part for _ in range(3) for part in (Block(), nn.Tanh()))), ones())
    nested = ["  0 … 4 Block", "    mlp Sequential", *(f"  {line}" for line in inner), "  1 … 5 Tanh"]
    assert rows(trace) == ["(0, 1) … (4, 5) ×3", *nested]
    assert rows(trace, depth=1) == ["(0, 1) … (4, 5) ×3", "  0 … 4 Block", "  1 … 5 Tanh"]


def test_a_group_ends_where_a_nan_begins():
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(4, 4), nn.Tanh())))
    with torch.no_grad():
        model[8].weight[0, 0] = math.nan
    assert rows(fx_debug(model, ones()))[0::3] == ["(0, 1) … (6, 7) ×4", "(8, 9) … (14, 15) ×4"]


# Steps of a loop over the model ------------------------------------------------------------------


class Cached(nn.Module):
    """A model that writes its own tokens; its cache is a list in a dict, an object of its own, or a buffer."""

    def __init__(self, cache: str) -> None:
        super().__init__()
        self.kind, self.embed, self.head = cache, nn.Embedding(9, 4), nn.Linear(4, 9)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
        self.register_buffer("seen", torch.zeros(1, 12, 4))

    def forward(self, tokens: torch.Tensor, cache: Any = None, at: int = 0) -> Any:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        if self.kind == "buffer":
            self.seen[:, at : at + x.shape[1]] = x
            x = self.seen[:, : at + x.shape[1]]
        elif cache is not None:
            cache["x"] = x = torch.cat([*cache.values(), x], dim=1)
        logits = self.head(x[:, -1:])
        return (logits, cache) if self.kind == "returned" else logits

    def write(self, tokens: torch.Tensor, steps: int, chunk: int | None = None) -> torch.Tensor:
        cache: Any = {} if self.kind in ("returned", "given") else None
        given, at = tokens, 0
        for _ in range(steps):
            *chunks, given = given.split(chunk or given.shape[1], dim=1)
            for part in [*chunks, given]:
                result = self(part, cache, at)
                at += part.shape[1]
            logits = result[0] if isinstance(result, tuple) else result
            given = logits.argmax(-1)
            tokens = torch.cat([tokens, given], dim=1)
            given = tokens if self.kind == "none" else given
        return tokens


@pytest.mark.parametrize("cache", ["returned", "given", "buffer"])
def test_steps_that_go_on_from_a_cache_are_decode_steps_and_one_row(cache):
    torch.manual_seed(0)
    trace = fx_debug(Cached(cache), (torch.tensor([[1, 2, 3]]), 6), method="write")
    inside = ["  embed Embedding", "  layers.0 … layers.2 ×3 Sequential", "    0 Linear", "    1 Tanh", "  head Linear"]
    assert rows(trace) == ["step 0 · prefill Cached", *inside, "step 1 … 5 · decode ×5 Cached", *inside]
    assert rows(trace, fold=False, depth=1) == [
        "step 0 · prefill Cached",
        *(f"step {i} · decode Cached" for i in range(1, 6)),
    ]


def test_a_prompt_in_chunks_is_prefill():
    trace = fx_debug(Cached("returned"), (torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]]), 4, 2), method="write")
    assert rows(trace, depth=1) == [
        "step 0 · prefill Cached",
        "step 1 … 3 · prefill ×3 Cached",
        "step 4 … 6 · decode ×3 Cached",
    ]


def test_steps_without_a_cache_have_numbers_and_the_range_of_their_sizes():
    trace = fx_debug(Cached("none"), (torch.tensor([[1, 2, 3]]), 6), method="write")
    assert rows(trace, depth=1) == ["step 0 … 5 ×6 Cached"]
    lines = trace.text(width=80, color=False).splitlines()
    assert [line.split()[:8] for line in lines if "step" in line] == [
        ["└", "step", "0", "…", "5", "×6", "Cached", "1×1×9"]
    ]
    assert [line.split()[-6] for line in lines if "embed" in line] == ["1×3…8×4"]


def test_a_wrapped_model_that_is_given_a_cache_has_steps_of_its_name():
    def forward(self: Any, tokens: torch.Tensor) -> torch.Tensor:
        cache: dict[str, torch.Tensor] = {}
        for _ in range(5):
            tokens = self.inner(tokens, cache=cache).argmax(-1)
        return tokens

    trace = fx_debug(Does(forward, inner=Cached("given")), torch.tensor([[1, 2]]))
    assert rows(trace, depth=1) == ["inner · step 0 · prefill Cached", "inner · step 1 … 4 · decode ×4 Cached"]


def test_a_cell_called_in_a_loop_has_no_steps_and_a_model_that_calls_itself_is_itself():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = x
        for _ in range(4):
            hidden = self.cell(x, hidden)
        return hidden

    assert rows(fx_debug(Does(forward, cell=nn.GRUCell(4, 4)), ones())) == ["cell ×4 GRUCell"]

    def recursive(self: Any, x: torch.Tensor, left: int = 2) -> torch.Tensor:
        return self(x, left - 1) if left else x + 1

    assert rows(fx_debug(Does(recursive), ones())) == ["(itself) Does", "  (itself) Does"]
