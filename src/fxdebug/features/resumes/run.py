"""``resumes``: train in one go, and with saving and loading in between, and name what was lost."""

from __future__ import annotations

from collections.abc import Callable

from fxdebug.api.reports.report import Report
from fxdebug.errors import UsageError
from fxdebug.features.resumes.report import LostRow, resumes_report
from fxdebug.features.resumes.runs import resumption_of


def resumes(make: Callable[[], object], *, steps: int = 3) -> Report[LostRow]:
    """Train ``2 · steps`` steps in one go, and with saving and loading in between; report what is lost.

    ``make`` builds the training from nothing and returns the functions ``(step, save, load)``, or an object with these
    methods: ``step()`` trains one step and may return the loss, ``save(path)`` writes a checkpoint and ``load(path)``
    reads it into a training that was made anew. Loading is tried as in a new process, with other random numbers.

    Compared are losses and weights after each step, to the last bit, and all parts that the functions use: weights,
    buffers, modes, optimizers, everything with a ``state_dict``, generators, numbers in variables and attributes, and
    the batches. Where the steps differ, each lost part is tried: all others are brought back, and the steps are run
    again. A part that is needed is an error, another one is advice.
    Random generators are afterwards as before. Exceptions of the training pass through. Raises ``UsageError`` where
    ``make`` returns something else.

    >>> import torch, fxdebug
    >>> def make():
    ...     torch.manual_seed(0)
    ...     model = torch.nn.Linear(3, 1)
    ...     optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    ...     def step():
    ...         optimizer.zero_grad()
    ...         loss = model(torch.ones(2, 3)).pow(2).mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         return loss.item()
    ...     def save(path): torch.save(model.state_dict(), path)
    ...     def load(path): model.load_state_dict(torch.load(path))
    ...     return step, save, load
    >>> report = fxdebug.resumes(make)
    >>> [(row.part, row.lost, row.needed) for row in report.rows if row.kind == "optimizer"]
    [('optimizer', 'step, exp_avg, exp_avg_sq of 2 parameters missing', 'yes')]
    """
    if not callable(make):
        raise UsageError("resumes needs a function that makes the training: resumes(make)")
    if type(steps) is not int or steps < 1:
        raise UsageError(f"steps={steps!r}: give the number of steps before and after loading, at least 1")
    return resumes_report(resumption_of(make, steps), steps)
