"""``FindingRow``: a finding of a comparison that writes a script which shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path

from fxdebug.brief import brief
from fxdebug.comparison.result import Row

MOST_LATER = 3


@brief
@dataclass(frozen=True)
class FindingRow(Row):
    """A finding that writes a script.

    ``later`` are the next pairs of results that differ: it shows there where one side has no result of its own.
    ``earlier`` are the operations of b in findings before it.
    """

    later: tuple[Row, ...] = field(default=(), repr=False, compare=False)
    earlier: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

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
        from fxdebug.api.repro.script import write_repro  # loads torch

        return write_repro(self, Path(folder))


def with_repro(findings: Sequence[Row], rows: Sequence[Row]) -> tuple[tuple[FindingRow, ...], tuple[Row, ...]]:
    """Return findings that write scripts, and all rows with these among them."""
    made: dict[int, FindingRow] = {}
    for row in findings:
        facts = {each.name: getattr(row, each.name) for each in fields(Row)}
        before = [each.b.node for each in findings if each.position < row.position and each.b is not None]
        later = tuple(islice(_differing_after(row, rows), MOST_LATER))
        made[id(row)] = FindingRow(**facts, later=later, earlier=frozenset(node for node in before if node is not None))
    return tuple([made[id(row)] for row in findings]), tuple([made.get(id(row), row) for row in rows])


def _differing_after(row: Row, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the pairs of results after a finding that differ, too."""
    for each in rows:
        if each is not row and each.kind is None and each.position >= row.position and each.measured:
            has_results = all(side is not None and side.value is not None for side in (each.a, each.b))
            if has_results and each.error > each.tolerance:
                yield each
