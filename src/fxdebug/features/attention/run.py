"""``attention``: the attention of a run, rebuilt from what its operations were given."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.api.files import load
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, target_of
from fxdebug.api.trace import Trace
from fxdebug.capture.probe import members, state_restored
from fxdebug.data.calls import Note
from fxdebug.data.values import Value
from fxdebug.errors import FxDebugError, NotFound, UsageError, first_line, nearest, with_article
from fxdebug.exports import registry
from fxdebug.features.attention import flow
from fxdebug.features.attention.findings import AttentionLimits, Measured
from fxdebug.features.attention.heads import head_numbers
from fxdebug.features.attention.maps import AttentionMap, Tokens, joined
from fxdebug.features.attention.report import AttentionData, HeadRow, attention_report
from fxdebug.features.attention.seen.probe import SeenAttention
from fxdebug.features.attention.seen.probed_run import AttentionRun, run_with_attention
from fxdebug.features.attention.seen.rebuilt import Rebuilt, of_weights, rebuild_fused, rebuild_multi_head
from fxdebug.features.attention.seen.recorded import RecordedAttention, attentions_of
from fxdebug.operators.attention import ATTENTIONS, FUSED, SOFTMAX
from fxdebug.plugins.given import GivenModel
from fxdebug.stats.cpu_sums import shaped_array_of
from fxdebug.stats.elements import is_dense

BUDGET = 1 << 30  # bytes of maps that are kept; numbers are taken of all


class Tokenizer(Protocol):
    """Names the tokens of ids, as transformers' tokenizers do."""

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]: ...


class AttentionReport(AttentionData, Report[HeadRow]):
    """The report on attention: a row for each head, the maps, and the way of tokens through all layers.

    >>> import torch, fxdebug
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> report = fxdebug.attention(layer, (x, x, x))
    >>> report.maps[0].weights.shape, report.rollout().shape
    ((1, 2, 5, 5), (5, 5))
    """

    def map(self, path: str) -> AttentionMap:
        """Return the map of a module by its path, or of one call by its id; the calls of a cache are joined to one.

        Raises ``NotFound`` with the nearest names, ``UsageError`` for calls that cannot be joined.
        """
        found = [one for one in self.maps if path in (one.path, one.call)]
        if not found:
            names = list(dict.fromkeys(one.path for one in self.maps))
            raise NotFound(f"no map of {path!r}: there are {len(names)}.{nearest(path, names)}")
        one = joined(found) if len(found) > 1 else found[0]
        if one is None:
            raise UsageError(f"{path} was called {len(found)} times on other tokens: name a call, such as {path}#1")
        return one

    def rollout(self, row: int = 0) -> np.ndarray:
        """Return the attention rollout of a row of the batch: (tokens after the last layer, tokens before the first).

        Each layer is half the mean of its heads and half the residual connection; rows have the sum 1
        (Abnar, Zuidema 2020). Raises ``UsageError`` where no layer attends to its own tokens.
        """
        return flow.rollout(self.maps, row)

    def flow(self, query: int = -1, row: int = 0) -> np.ndarray:
        """Return the attention flow from one token after the last layer to each before the first: a maximum flow.

        It takes a second for 12 layers of 32 tokens (Abnar, Zuidema 2020). Raises ``UsageError`` as :meth:`rollout`.
        """
        return flow.flow_to(self.maps, query, row)

    def edges(self, least: float = 0.05, row: int = 0) -> list[dict[str, object]]:
        """Return every weight of at least ``least`` as an edge between tokens: call, head, query, key, weight."""
        return flow.edges_of(self.maps, least, row)

    def export(self, path: str | os.PathLike[str], to: str | None = None) -> Path:
        """Write the report as every report; ``.html`` is the page of the maps, where there are some."""
        if self.maps and registry.form_of("report", Path(path), to) == ".html":
            return registry.export("attention", self, Path(path), to=".html")
        return super().export(path, to)

    def plot_map(self, path: str | os.PathLike[str], name: str, head: int | None = None, row: int = 0) -> Path:
        """Draw one map to a ``.png``, ``.svg`` or ``.pdf``: a head of the module ``name``, or the mean of all heads.

        Raises ``NotFound`` for a name without a map, ``MissingExtra`` without matplotlib.
        """
        one = self.map(name)
        if head is not None and not 0 <= head < one.heads:
            raise UsageError(f"{name} has {one.heads} heads, and no head {head}")
        return registry.export("map", (self, one), Path(path), head=head, row=row)


def attention(
    model: nn.Module | Callable[..., Any] | Trace | str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    tokens: Sequence[str] | Sequence[Sequence[str]] | Tokenizer | None = None,
    padding: Tensor | None = None,
    causal: bool | None = None,
    limits: AttentionLimits | None = None,
    budget: int = BUDGET,
) -> AttentionReport:
    """Show where each head of a model looks: run it once, and rebuild the weights of every attention.

    ``model`` is a module, a method of one, such as ``model.generate``, or a run that kept its tensors: a trace or the
    folder of one (``fx_debug(..., values="tensors")``). The weights are computed from the query, key,
    value and mask of each ``scaled_dot_product_attention`` and ``multi_head_attention_forward``; where attention is
    written out, they are the softmax's. So it works whatever the model is asked to return. Each map is compared with
    what the fused operation returned; one that rounding does not explain is left out, with a note.

    ``tokens`` are labels (a list for each row of the batch, or one list), or a tokenizer. ``padding`` is True (or 0, as
    ``attention_mask`` has it) for tokens that are padding: (batch, keys); by default the model's ``attention_mask``
    tells. ``causal``: whether later tokens must not be seen; by default layers of one kind are held to one another.
    ``limits`` are the thresholds of the findings. Maps take at most ``budget`` bytes; the rest have numbers only.
    Afterwards buffers, attributes of modules and random generators are as before. Exceptions of the model pass through.
    Raises ``UsageError`` for a run without graphs or tensors, ``LoadError`` for a path that is no run.

    >>> import torch, fxdebug
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> report = fxdebug.attention(layer, (x, x, x), tokens=["the", "cat", "sat", "on", "it"])
    >>> [(row.head, 0 < row.entropy <= 1) for row in report.rows], report.totals["largest error"][0] < 1e-6
    ([(0, True), (1, True)], True)
    """
    limits = AttentionLimits() if limits is None else limits
    if isinstance(model, (str, os.PathLike)):
        model = load(model)
    if isinstance(model, Trace):
        return _of_trace(model, tokens, padding, causal, limits, budget)
    module, target, method = target_of(model, "forward")
    args, keywords = arguments(inputs, kwargs)
    named = named_inputs(module, method, args, keywords)
    known = _tokens(module, named, tokens, padding)
    name = type(module).__name__

    def measured(collected: _Collected) -> AttentionRun:
        def found(path: str, number: int, seen: SeenAttention) -> None:
            collected.add(path, f"{path or name}#{number}", seen)

        with state_restored(module), torch.no_grad() if method != "forward" else _as_is():
            return run_with_attention(target, module, args, keywords, found)

    collected = _Collected(known, budget)
    run = measured(collected)
    if collected.is_late:
        collected = _Collected(known, budget, collected.padding)
        run = measured(collected)
    kinds = {path: type(inner).__name__ for path, inner in members.named_modules_of(module)}
    notes = [*run.notes, *collected.notes(), *_without_maps(kinds, run.called, collected.measured)]
    return _report(name, collected, known, limits, causal, run.bytes, notes)


def _report(
    name: str,
    collected: _Collected,
    tokens: Tokens,
    limits: AttentionLimits,
    causal: bool | None,
    bytes_read: int,
    notes: Sequence[Note],
) -> AttentionReport:
    data = attention_report(
        name,
        collected.measured,
        tokens,
        limits=limits,
        causal=causal,
        bytes_read=bytes_read,
        notes=notes,
        kept=collected.kept,
    )
    report = AttentionReport.of(data)
    assert isinstance(report, AttentionReport)
    return report


def _of_trace(
    trace: Trace,
    tokens: Sequence[str] | Sequence[Sequence[str]] | Tokenizer | None,
    padding: Tensor | None,
    causal: bool | None,
    limits: AttentionLimits,
    budget: int,
) -> AttentionReport:
    """Return the report on a run that kept its tensors: the weights are computed from these."""
    if trace.call_graphs is None:
        raise UsageError("the run has no graphs: record it without graph=False")
    attentions = list(attentions_of(trace))
    unsaved = [one for one in attentions if any(value.saved is None for value in one.values)]
    if attentions and len(unsaved) == len(attentions):
        raise UsageError(
            "the run kept no tensors of its attentions: record it with values='tensors', or give the model and inputs"
        )
    known = _tokens(None, _kept_inputs(trace), tokens, padding)
    collected, read, notes = _Collected(known, budget), 0, []
    for one in attentions:
        if one in unsaved:
            notes.append(Note("the tensors of this attention were not kept", where=one.call))
            continue
        try:
            rebuilt = _rebuilt(trace, one)
        except FxDebugError:
            raise
        except Exception as error:  # as in a live run: of a nested or sparse tensor there is no map
            what = f"an attention could not be read: {type(error).__name__}: {first_line(error)}"
            notes.append(Note(what, where=one.call))
            continue
        read += rebuilt.bytes
        if one.dropped and one.op != SOFTMAX:
            rebuilt = replace(rebuilt, error=None, tolerance=None)
        collected.add(one.path, one.call, SeenAttention(0, one.op, one.source, rebuilt, one.dropped))
    called = list(dict.fromkeys(call.path for call in trace.calls))
    kinds = {call.path: call.type for call in trace.calls}
    notes += [*collected.notes(), *_without_maps(kinds, called, collected.measured)]
    return _report(trace.model, collected, known, limits, causal, read, notes)


def _rebuilt(trace: Trace, one: RecordedAttention) -> Rebuilt:
    if one.op == SOFTMAX:
        return of_weights(trace.tensor(one.arguments["weights"]), None)
    arguments = {name: trace.tensor(x) if isinstance(x, Value) else x for name, x in one.arguments.items()}
    if one.result is None:
        raise ValueError("the run does not tell its result")
    result = trace.tensor(one.result)
    return rebuild_fused(arguments, result) if one.op == FUSED else rebuild_multi_head(arguments, result)


def _kept_inputs(trace: Trace) -> dict[str, Any]:
    """Return the tensors that the run was given by name, as far as it kept them."""
    kept = {slot: trace.tensor(value) for slot, value in trace.root.inputs.named() if value.saved is not None}
    if "args[0]" in kept:
        kept.setdefault("input_ids", kept["args[0]"])
    return kept


class _Collected:
    """Takes the attentions of a run: numbers of all, maps as long as they fit the budget."""

    def __init__(
        self, tokens: Tokens, budget: int, padding: dict[tuple[str, int, int], np.ndarray] | None = None
    ) -> None:
        self.measured: list[Measured] = []
        self.kept: list[AttentionMap] = []
        self.padding: dict[tuple[str, int, int], np.ndarray] = {} if padding is None else padding
        self.is_late = False  # was padding found that attentions measured before were not held to?
        self._without: set[tuple[str, int, int]] = set()
        self._tokens, self._room, self._wanted = tokens, budget, budget > 0
        self._left_out = 0

    def add(self, path: str, call: str, seen: SeenAttention) -> None:
        """Measure one attention, and keep its map where there is room."""
        rebuilt = seen.rebuilt
        outputs = rebuilt.outputs
        norms = rebuilt.projected
        if norms is None and outputs is not None and outputs.shape[1] == rebuilt.weights.shape[1]:
            norms = tuple(outputs.detach().cpu().double().transpose(0, 1).flatten(1).norm(dim=1).tolist())
        one = AttentionMap(
            path=path,
            call=call,
            op=seen.op,
            weights=shaped_array_of(rebuilt.weights.float()),
            visible=None if rebuilt.visible is None else shaped_array_of(rebuilt.visible),
            error=rebuilt.error,
            tolerance=rebuilt.tolerance,
            source=seen.source,
            norms=norms,
            projected=rebuilt.projected is not None,
            dropped=seen.dropped,
            narrow=rebuilt.narrow,
            added=rebuilt.added,
        )
        numbers = head_numbers(one, self._tokens_of(one, rebuilt))
        size = one.weights.nbytes
        if size <= self._room:
            self._room -= size
            self.kept.append(one)
        else:
            self._left_out += 1
            empty = np.broadcast_to(np.float32(0), one.weights.shape)
            one = replace(one, weights=empty, visible=None)
        self.measured.append(Measured(one, numbers))

    def _tokens_of(self, one: AttentionMap, rebuilt: Rebuilt) -> Tokens:
        """Return the tokens, with the padding that the masks of layers of this kind hide where nothing else tells."""
        if self._tokens.padding is not None:
            return self._tokens
        kind = re.sub(r"\d+", "#", one.path), one.weights.shape[0], one.weights.shape[3]
        if rebuilt.padding is not None and kind not in self.padding and bool(rebuilt.padding.any()):
            self.padding[kind] = shaped_array_of(rebuilt.padding)
            self.is_late |= kind in self._without
        if kind not in self.padding:
            self._without.add(kind)
            return self._tokens
        return replace(self._tokens, padding=self.padding[kind])

    def notes(self) -> list[Note]:
        """Return a note where maps were not kept, unless a budget of 0 asks for none."""
        if not self._left_out or not self._wanted:
            return []
        return [Note(f"{self._left_out} maps were measured and not kept: raise budget= to keep them")]


def named_inputs(module: nn.Module, method: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run by the names that the method gives them, as far as these are known."""
    code = getattr(getattr(type(module), method, None), "__code__", None)
    if code is None:
        return dict(keywords)
    names = code.co_varnames[1 : code.co_argcount]
    return dict(zip(names, args)) | dict(keywords)


def _tokens(
    module: nn.Module | None,
    named: Mapping[str, Any],
    tokens: Sequence[str] | Sequence[Sequence[str]] | Tokenizer | None,
    padding: Tensor | None,
) -> Tokens:
    ids = next(
        (named[name] for name in ("input_ids", "inputs", "idx", "tokens", "x") if _is_ids(named.get(name))), None
    )
    mask = named.get("attention_mask")
    hidden = None
    if padding is not None:
        hidden = padding.bool() if padding.dtype == torch.bool else padding == 0
    elif _is_table(mask):
        hidden = mask == 0
    for name in ("src_key_padding_mask", "key_padding_mask"):
        given = named.get(name)
        if hidden is None and _is_table(given) and given.dtype == torch.bool:
            hidden = given
    config = getattr(module, "config", None)
    return Tokens(
        labels=_labels(ids, tokens),
        padding=None if hidden is None else shaped_array_of(hidden),
        ids=None if ids is None else shaped_array_of(ids).astype(np.int64),
        of_encoder=bool(getattr(config, "is_encoder_decoder", False)) or "decoder_input_ids" in named,
    )


def _is_table(given: Any) -> TypeGuard[Tensor]:
    return isinstance(given, Tensor) and is_dense(given) and given.dim() == 2


def _is_ids(given: Any) -> bool:
    return _is_table(given) and given.dtype in (torch.int64, torch.int32)


def _labels(
    ids: Tensor | None, tokens: Sequence[str] | Sequence[Sequence[str]] | Tokenizer | None
) -> tuple[tuple[str, ...], ...]:
    convert = getattr(tokens, "convert_ids_to_tokens", None)
    if convert is not None:
        if ids is None:
            raise UsageError("tokens is a tokenizer, and the inputs have no ids (input_ids): give a list of labels")
        return tuple(tuple(map(_readable, convert(row))) for row in ids.tolist())
    if tokens is not None and not isinstance(tokens, (str, Iterable)):
        given = with_article(type(tokens).__name__)
        raise UsageError(f"tokens is {given}: give a list of labels, a list for each row, or a tokenizer")
    labels = list(tokens) if tokens is not None else []  # type: ignore[arg-type]
    if labels and all(isinstance(label, str) for label in labels):
        return (tuple(_readable(str(label)) for label in labels),)
    if labels:
        return tuple(tuple(_readable(str(label)) for label in row) for row in labels)
    return () if ids is None else tuple(tuple(map(str, row)) for row in ids.tolist())


def _readable(token: str) -> str:
    """Return a token without the marks of byte-level and sentencepiece vocabularies for a space and a line break."""
    return token.replace("Ġ", "·").replace("▁", "·").replace("Ċ", "⏎")


def _without_maps(kinds: Mapping[str, str], called: Sequence[str], measured: Sequence[Measured]) -> list[Note]:
    """Return a note about modules that are attention by their name, and in which none was seen."""
    seen = {one.map.path for one in measured}
    without = [
        path
        for path in called
        if "attention" in kinds.get(path, "").lower() and not any(_is_inside(other, path) for other in seen)
    ]
    outer = [path for path in without if not any(path != other and _is_inside(path, other) for other in without)]
    if not outer and measured:
        return []
    if not outer:
        return [Note("no attention was seen: neither a fused one nor a softmax whose result is multiplied with values")]
    shown = ", ".join(outer[:3]) + (", …" if len(outer) > 3 else "")
    return [Note(f"no attention was seen in {len(outer)} modules that are some by their name: {shown}")]


def _is_inside(path: str, outer: str) -> bool:
    return path == outer or not outer or path.startswith(outer + ".")


def _as_is() -> torch.enable_grad | torch.no_grad:
    """Return a block with gradients as they are now."""
    return torch.enable_grad() if torch.is_grad_enabled() else torch.no_grad()


def on_model(given: GivenModel, limits: AttentionLimits) -> AttentionReport:
    """Answer ``check`` about a model."""
    return attention(given.model, given.inputs, given.kwargs, limits=limits, budget=0)


def on_run(trace: Trace, limits: AttentionLimits) -> AttentionReport:
    """Answer ``check`` about a run that kept its tensors."""
    return attention(trace, limits=limits)


def report_for_page(trace: Trace) -> AttentionReport | None:
    """Return the report for the page of a run that kept its tensors, ``None`` where it has no attention."""
    return attention(trace) if any(op.op in ATTENTIONS for graph in trace.graphs for op in graph.ops) else None
