"""Gradients that a backward fills for a whole tensor, of which few rows, or a small part, were read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.features.profile.wasted.chains import STEPS
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, is_view

SMALL_PART = 4  # times as large as a part is what it is taken of, at least


def dense_gradients(work: Work, least: float) -> Iterator[Finding]:
    """Embeddings whose backward fills a gradient as large as the table, though few rows are read; parts of tensors."""
    for op in work.ops:
        if not work.has_loss or op.name != "embedding" or op.step.kwargs.get("sparse") or len(op.operands) < 2:
            continue
        index, table = op.operands[:2]
        if not table.requires_grad or not table.shape or index.numel * 4 >= table.shape[0]:
            continue
        share = work.share(op.backward)
        if share >= least:
            what = f"at most {index.numel} of {table.shape[0]:,} rows of {table.name or 'the table'} get a gradient, "
            what += "and the backward fills one for all of them, which the optimizer reads again"
            advice = "Could it be sparse=True (torch.optim.SparseAdam, SGD), or a smaller table?"
            yield work.finding("dense gradient", op, share, least, what, advice)
    for ops in whole_gradients(work, least):
        op = costliest(ops)
        what = f"{len(ops)} parts are taken of {op.operands[0].label}, and the backward of each fills a gradient "
        what += "for all of it"
        advice = "Could it be taken apart at once (unbind, split), or its parts be in a list, and stacked?"
        yield work.finding("dense gradient", op, work.share(sum(one.backward for one in ops)), least, what, advice)


def whole_gradients(work: Work, least: float) -> list[list[TimedOp]]:
    """Return operations that take many small parts of one tensor, where their backward takes the least share."""
    parts: defaultdict[int, list[TimedOp]] = defaultdict(list)
    for op in work.ops:
        if op.name in ("getitem", "select", "narrow") and op.backward and is_view(op) and len(op.results) == 1:
            whole = op.operands[0]
            if whole.storage is not None and op.results[0].numel * SMALL_PART <= whole.numel:
                parts[whole.storage].append(op)
    many = [ops for ops in parts.values() if len(ops) >= STEPS]
    return [ops for ops in many if work.share(sum(op.backward for op in ops)) >= least]
