"""``FindingRow``: a finding of a comparison that writes a script which shows it."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from fxdebug.api.names import every_name
from fxdebug.brief import brief
from fxdebug.comparison.result import Row
from fxdebug.plugins.feature import answer

MOST_LATER = 3


@brief
@dataclass(frozen=True)
class FindingRow(Row):
    """A finding that writes a script.

    ``later`` are the next pairs of results that differ: it shows there where one side has no result of its own.
    ``of_findings`` has the positions of all findings by their operations in b.
    """

    later: tuple[Row, ...] = field(default=(), repr=False, compare=False)
    of_findings: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

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
        ...     lines = fxdebug.compare(a, b).first.repro(folder).read_text().splitlines()
        >>> [line.split()[-1] for line in lines if "F.layer_norm" in line]
        ['eps=1e-05)', 'eps=0.1)']
        """
        place = every_name()["write_repro"]  # it loads torch: saved runs are compared without it
        script: Path = answer(f"{place}:write_repro", self, Path(folder))
        return script


def with_repro(findings: Sequence[Row], rows: Sequence[Row]) -> tuple[tuple[FindingRow, ...], tuple[Row, ...]]:
    """Return findings that write scripts, and all rows with these among them."""
    if not findings:
        return (), tuple(rows)
    differing = sorted(filter(_differs, rows), key=_position)
    positions = [row.position for row in differing]
    of_nodes = {row.b.node: row.position for row in reversed(findings) if row.b is not None and row.b.node is not None}
    made: dict[int, FindingRow] = {}
    for row in findings:
        facts = {each.name: getattr(row, each.name) for each in fields(Row)}
        start = bisect_left(positions, row.position)
        later = tuple(differing[start : start + MOST_LATER])
        made[id(row)] = FindingRow(**facts, later=later, of_findings=of_nodes)
    return tuple([made[id(row)] for row in findings]), tuple([made.get(id(row), row) for row in rows])


def _position(row: Row) -> int:
    return row.position


def _differs(row: Row) -> bool:
    """Is it a pair of results that differ, and no finding?"""
    has_results = all(side is not None and side.value is not None for side in (row.a, row.b))
    return row.kind is None and has_results and row.measured and row.error > row.tolerance
