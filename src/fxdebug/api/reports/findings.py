"""``Findings``: the report of ``check``, which is also a sequence of its findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from fxdebug.analyses.numbers import findings
from fxdebug.analyses.numbers.findings import Checked
from fxdebug.api.reports.report import Report
from fxdebug.brief import MOST, cut
from fxdebug.data.findings import Finding
from fxdebug.data.measures import counted


class Findings(Report[Finding], Sequence[Finding]):
    """Findings on the numbers of a run, the worst first: a :class:`Report`, and a sequence like a tuple of them.

    It is false where there are none, and equal to a tuple of the same findings.

    >>> import torch, fxdebug
    >>> found = fxdebug.check(fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2)))
    >>> len(found), found == (), found.healthy, found.analysis, found.totals["operations"]
    (0, True, True, 'check', (1, ''))
    """

    @property
    def healthy(self) -> bool:
        """Is there nothing but advice?"""
        return findings.is_healthy(self.findings)

    @property
    def checked(self) -> Checked:
        """The extent of the check: the number of operations and calls, and notes on what could not be checked."""
        return findings.extent(self)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data, with ``healthy`` and the extent of the check."""
        numbers = {"operations": self.checked.operations, "calls": self.checked.calls}
        return {**super().as_json(), "healthy": self.healthy, **numbers, "unmeasured": self.checked.unmeasured}

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[index]

    def __add__(self, other: Sequence[Finding]) -> tuple[Finding, ...]:
        return self.findings + tuple(other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Findings):
            return self.findings == other.findings and self.checked == other.checked
        return self.findings == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.findings)

    def __repr__(self) -> str:
        lines = str(self).splitlines()
        if len(lines) <= 2 and max(map(len, lines)) <= MOST:
            return str(self)
        more = f" … {counted(len(lines) - 2, 'more line')}: print it" if len(lines) > 2 else ""
        return "\n".join([cut(line, MOST - 40) for line in lines[:2]]) + more
