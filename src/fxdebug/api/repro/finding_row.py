"""``FindingRow``: a finding of a comparison that writes a script which shows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from fxdebug.brief import brief
from fxdebug.comparison.result import Row, Side


@brief
@dataclass(frozen=True)
class FindingRow(Row):
    """A finding, with the two results at which it shows: its own, or the next that differ where one side has none."""

    shown_at: tuple[Side, Side] | None = field(default=None, repr=False, compare=False)

    def repro(self, folder: str | os.PathLike[str]) -> Path:
        """Write a script that shows the finding without the model and without fxdebug; return its path.

        The folder gets ``repro.py`` and ``tensors.safetensors``: the tensors that went in (of a), the weights, and the
        operations of both sides as plain calls of torch. It needs runs with ``values="tensors"``, and their models or
        weights. Before it is written, it is tried: each side must return what was recorded, and the results differ.
        Raises ``UsageError`` where no such script can be written, ``SaveError`` for a folder with other files.

        >>> import copy, tempfile, torch, fxdebug
        >>> model = torch.nn.Sequential(torch.nn.LayerNorm(4))
        >>> port = copy.deepcopy(model)
        >>> port[0].eps = 0.1
        >>> x = torch.arange(8.0).view(2, 4)
        >>> with torch.no_grad():
        ...     a, b = [fxdebug.fx_debug(each, x, values="tensors") for each in (model, port)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [line for line in fxdebug.compare(a, b).first.repro(folder).read_text().splitlines() if "eps" in line]
        ['    return F.layer_norm(x, (4,), weight=weight, bias=bias, eps=1e-05)', '…']
        """
        from fxdebug.api.repro.script import write_repro  # loads torch

        return write_repro(self, Path(folder))


def with_repro(findings: Sequence[Row], rows: Sequence[Row]) -> tuple[tuple[FindingRow, ...], tuple[Row, ...]]:
    """Return findings that write scripts, and all rows with these among them."""
    made: dict[int, FindingRow] = {}
    for row in findings:
        facts = {each.name: getattr(row, each.name) for each in fields(Row)}
        made[id(row)] = FindingRow(**facts, shown_at=_shown_at(row, rows))
    return tuple([made[id(row)] for row in findings]), tuple([made.get(id(row), row) for row in rows])


def _shown_at(row: Row, rows: Sequence[Row]) -> tuple[Side, Side] | None:
    """Return both sides of a finding; where one is missing, those of the next pair that differs."""
    if _has_results(row):
        return _sides(row)
    after = [each for each in rows if each.position >= row.position and _has_results(each)]
    found = next((each for each in after if each.measured and each.error > each.tolerance), None)
    return None if found is None else _sides(found)


def _has_results(row: Row) -> bool:
    return all(side is not None and side.value is not None for side in (row.a, row.b))


def _sides(row: Row) -> tuple[Side, Side]:
    assert row.a is not None and row.b is not None
    return row.a, row.b
