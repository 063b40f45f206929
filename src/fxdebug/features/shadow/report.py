"""``Shadow``: the report of ``shadow``, with the native run and the errors of its calls."""

from __future__ import annotations

from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace
from fxdebug.features.shadow.precision_loss import Row, ShadowData


class Shadow(Report[Row], ShadowData[Trace]):
    """A run compared with its shadow in ``dtype``: ``rows`` in execution order, ``findings`` where digits were lost.

    ``error`` is the relative error of the model's outputs, ``None`` where they could not be compared. ``calls`` has the
    error of every call's outputs by the call's id, in execution order; ``layers`` the calls that show its growth.
    ``trace`` is the native run, ``worst`` the operation at which the error grows most.
    """
