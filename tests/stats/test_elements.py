"""Sparse, nested and quantised results of a run that kept its tensors: measured by all their elements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.stats.elements import MOST_IMPLICIT, elements

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((1, 1)),
    "jagged": lambda x: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged),
    "nested": lambda x: torch.nested.nested_tensor([x, x[:2]]),
}


class Makes(nn.Module):
    """Passes a tensor of another layout through a module."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.inner = kind, nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        self.inner(KINDS[self.kind](x))
        return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_result_of_any_layout_is_checked_measured_and_compared(kind: str, tmp_path: Path) -> None:
    live = fxdebug.fx_debug(Makes(kind), torch.eye(3), values="tensors", save=tmp_path)
    for trace in (live, fxdebug.load(tmp_path)):
        assert fxdebug.check(trace, config=False).text()
        assert fxdebug.compare(trace, live).equal
        report = fxdebug.activations(trace)
        if kind == "nested":  # torch tells no size of it
            assert any("was not measured" in note.what for note in report.notes)
            continue
        row = next(row for row in report.rows if row.call == "inner#0")
        assert (round(row.mean or 0, 6), round(row.zeros, 4), row.tokens) == (0.333333, 66.6667, None)
        assert sum(report.distributions["inner"].counts) == (15 if kind == "jagged" else 9)


def test_a_sparse_tensor_of_a_size_that_no_memory_holds_is_refused() -> None:
    huge = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), (1 << 40, 1 << 20))
    with pytest.raises(ValueError, match=f"more than {MOST_IMPLICIT} are not read"):
        elements(huge)
