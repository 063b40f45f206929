"""Two runs side by side: compare traces, saved runs, or two live models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug.api.files import load
from fxdebug.api.run import fx_debug, last_failed
from fxdebug.comparison import Comparison
from fxdebug.errors import FxDebugError
from fxdebug.trace import Trace, replaced

if TYPE_CHECKING:
    from torch import nn


def compare(
    a: Trace | str | os.PathLike[str],
    b: Trace | str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
) -> Comparison:
    """Hold a run ``b`` against a reference ``a``: see :func:`fxdebug.comparison.compare`. Paths are loaded.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> compare(trace, trace).equal
    True
    """
    from fxdebug.comparison import compare as compared

    one, other = (trace if not isinstance(trace, (str, os.PathLike)) else load(trace) for trace in (a, b))
    return compared(one, other, mapping=mapping, ignore=ignore, tolerance=tolerance)


def compare_models(
    model_a: nn.Module,
    model_b: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
    inputs_b: Any = None,
) -> Comparison:
    """Compare two live models call by call: every guilty call is found, not only the first.

    Each call of b that has a counterpart is given what a's was given, in b's dtype, and hands back what a's returned;
    what it computes itself is compared. a runs once, b twice: as it is, to find the pairs, and so. ``inputs`` and
    ``kwargs`` are as for :func:`fx_debug`, ``inputs_b`` where b takes others; the rest is as for :func:`compare`.
    ``comparison.outputs`` are those of the plain runs. All runs begin with the same random numbers, buffers and
    attributes of modules, and those and the hooks are afterwards as before. What model a raises is raised; where b
    raises, the plain runs are compared and a note says so.

    >>> import copy, torch
    >>> one = torch.nn.Sequential(*[torch.nn.LayerNorm(8) for _ in range(3)])
    >>> other = copy.deepcopy(one)
    >>> other[0].eps = other[2].eps = 0.5
    >>> [(row.path, row.op) for row in compare_models(one, other, torch.arange(16.0).view(2, 8)).findings]
    [('0', 'layer_norm'), ('2', 'layer_norm')]
    """
    from fxdebug.capture import isolated
    from fxdebug.comparison import compare as compared
    from fxdebug.comparison import paired

    others = inputs if inputs_b is None else inputs_b
    options: dict[str, Any] = {"mapping": mapping, "ignore": ignore, "tolerance": tolerance}
    with isolated.as_they_were(model_a, model_b) as again:
        a = fx_debug(model_a, *isolated.copied((inputs, kwargs)), values="tensors")
        again()
        b, failed = _run(model_b, *isolated.copied((others, kwargs)))
        plain = compared(a, b, **options)
        if failed is not None:
            return replace(plain, notes=(*plain.notes, f"not isolated: b raised {failed}"))
        again()
        rails = isolated.Rails(model_b, paired(a, b, mapping))
        with rails:
            alone, failed = _run(model_b, *isolated.copied((others, kwargs)), values="tensors")
    if failed is not None:
        return replace(plain, notes=(*plain.notes, f"not isolated: with what a was given, b raised {failed}"))
    found = compared(a, replaced(alone, settings={**alone.settings, "isolated": True}), **options)
    note = f"isolated: {rails.fed} of {len(b.calls) - 1} calls of b were given what those of a were given"
    return replace(found, outputs=plain.outputs, notes=(*found.notes, note))


def _run(model: nn.Module, inputs: Any, kwargs: Any, **options: Any) -> tuple[Trace, str | None]:
    """The trace of a run; of one that raised what there is, and what it raised."""
    try:
        return fx_debug(model, inputs, kwargs, **options), None
    except FxDebugError:
        raise
    except Exception as error:
        partial = last_failed()
        assert partial is not None
        return partial, f"{type(error).__name__}: {error}"


def comparison_text(comparison: Comparison, **options: Any) -> str:
    """A comparison on one screen: see :func:`fxdebug.exports.comparison_text.screen`."""
    from fxdebug.exports import comparison_text as as_text

    return as_text.screen(comparison, **options)


def comparison_html(comparison: Comparison) -> str:
    """A comparison as a piece of HTML: see :func:`fxdebug.exports.comparison_text.html`."""
    from fxdebug.exports import comparison_text as as_text

    return as_text.html(comparison)


def export_comparison(comparison: Comparison, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write a comparison for other programs and for eyes, by suffix; return the path.

    ``.svg .png .pdf .dot .gv``: the graph of b with the findings marked (``fold``, ``rankdir``); ``.csv``: every row;
    ``.json``: everything; ``.txt`` and ``.html``: the screen (``width``, ``fold``). Raises ``UsageError`` for another
    suffix, ``MissingExtra`` where a picture cannot be drawn here.
    """
    from fxdebug.exports import comparisons, registry

    return registry.export(comparison, Path(path), table=comparisons.EXPORTERS, **options)
