"""What functions compute from sizes stays symbolic when its results are cached by size: the graph holds for others."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import UsageError, fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates

LIBRARY = '''
"""A library that reshapes by pattern and caches what it works out, as einops does."""

import functools

TABLE = {}


def _split_uncached(shape, heads):
    return (*shape[:-1], heads, shape[-1] // heads)


_split = functools.lru_cache(1024)(_split_uncached)


def split(x, heads):
    return x.reshape(_split(x.shape, heads))


def split_by_table(x, heads):
    key = (tuple(x.shape), heads)
    if key not in TABLE:
        TABLE[key] = _split_uncached(x.shape, heads)
    return x.reshape(TABLE[key])


def split_with_get(x, heads):
    made = TABLE.get((x.shape[0], x.shape[-1], heads))
    if made is None:
        made = TABLE[(x.shape[0], x.shape[-1], heads)] = _split_uncached(x.shape, heads)
    return x.reshape(made)


class Splitter:
    def __init__(self, heads):
        self.heads = heads

    @functools.lru_cache(maxsize=None)
    def sizes(self, *shape):
        return _split_uncached(shape, self.heads)

    def __call__(self, x):
        return x.reshape(self.sizes(*x.shape))


SPLITTER = Splitter(2)
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "splitting.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("splitting")
    sys.modules.pop("splitting")


class Uses(nn.Module):
    def __init__(self, split: Callable[..., Any]) -> None:
        super().__init__()
        self.split = split

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.split(x).sum(-1) + 1


WAYS: dict[str, Callable[[ModuleType], Callable[..., Any]]] = {
    "lru_cache of a function": lambda library: lambda x: library.split(x, 2),
    "a table of the library's": lambda library: lambda x: library.split_by_table(x, 2),
    "a table, asked with get": lambda library: lambda x: library.split_with_get(x, 2),
    "lru_cache of a method": lambda library: library.SPLITTER,
}


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_library_caches_by_size_stays_symbolic(library: ModuleType, way: str, is_cached: bool) -> None:
    forget_templates()
    model, x, other = Uses(WAYS[way](library)), torch.randn(2, 4), torch.randn(5, 6)
    if is_cached:
        model(x)
    call = fx_debug(model, x).root
    assert call.status == "verified", call.reason
    assert torch.equal(call.fx(x), model(x))
    assert torch.equal(call.fx(other), model(other))
    assert torch.equal(model(x), model(x)) and model(other).shape == (5, 2)


TABLE: dict[Any, Any] = {}


@functools.cache
def halves(rows: int, columns: int) -> tuple[int, int, int]:
    return rows, columns // 2, 2


class CachesInItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Any] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape not in self.known:
            self.known[x.shape] = halves(*x.shape)
        return x.view(self.known[x.shape]) * 2


class CachesInTheProgram(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(TABLE.setdefault(x.shape, (x.shape[0], 2, -1)))


@pytest.mark.parametrize("kind", [CachesInItself, CachesInTheProgram])
def test_what_the_program_caches_by_size_stays_symbolic(kind: type[nn.Module]) -> None:
    model, x, other = kind(), torch.randn(2, 4), torch.randn(3, 8)
    call = fx_debug(model, x).root
    assert call.status == "verified" and torch.equal(call.fx(x), model(x))
    assert torch.equal(call.fx(other), model(other))


class CountsSizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[int, int] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counts[x.shape[0]] = self.counts.get(x.shape[0], 0) + 1
        return x * 2


def test_a_count_by_size_is_no_cache() -> None:
    model, x = CountsSizes(), torch.randn(2, 4)
    call = fx_debug(model, x).root
    assert call.status == "verified" and model.counts == {2: 1}
    with pytest.raises(UsageError, match="changes attributes or other objects that last"):
        call.fx(x)
    assert model.counts == {2: 1} and set(map(type, model.counts)) == {int}


TAKEN = {2: 0.5, 4: 0.25}


class LooksUp(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * TAKEN[x.shape[-1]]
        return y + 1 if x.shape[0] in {2, 3} else y


def test_a_table_of_sizes_is_looked_up_as_it_was() -> None:
    model, x = LooksUp(), torch.randn(2, 4)
    call = fx_debug(model, x).root
    assert call.status == "verified" and torch.equal(call.fx(x), model(x))
    with pytest.raises(UsageError):
        call.fx(torch.randn(2, 2))  # another number in the table
    with pytest.raises(UsageError):
        call.fx(torch.randn(5, 4))


class TwoOfOneSize(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(halves(*x.shape)) + x.T.reshape(halves(*x.T.shape))


def test_two_sizes_that_happen_to_be_equal_are_kept_apart() -> None:
    model, x = TwoOfOneSize(), torch.randn(4, 4)
    call = fx_debug(model, x).root
    assert call.status == "verified" and not call.guards
    assert torch.equal(call.fx(x), model(x))
    assert str(call.fx.code).count(".size(") == 4


class CachesATensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in self.known:
            self.known[x.shape[0]] = torch.arange(x.shape[0]).view(-1, 1) * 2.0
        return x + self.known[x.shape[0]]


def test_a_cached_tensor_is_not_made_anew() -> None:
    model, x = CachesATensor(), torch.randn(2, 4)
    model(x)
    before = dict(model.known)
    trace = fx_debug(model, x)
    call = trace.root
    assert [op.op for op in trace.ops()] == ["add"]
    assert call.status == "verified" and torch.equal(call.fx(x), model(x))
    assert list(model.known) == list(before) and model.known[2] is before[2]
