"""Weights that are to be one tensor and are two, and modules that are to be several and are one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members
from fxdebug.data.findings import ADVICE, WARNING, Finding

LEAST = 64  # different elements of two equal weights that are no chance
MOST_ROWS = 4096  # of two weights that tell whether they are nearly equal
ALIKE = 0.9  # cosine of two weights that were one: that of two that were drawn or trained apart lies near 0


def find_broken_ties(model: nn.Module, *, trained: bool) -> Iterator[Finding]:
    """Yield heads that hold the numbers of an embedding, or are configured to, and are not tied to it."""
    modules = list(members.named_modules_of(model))
    tables = [(path, one) for path, one in modules if isinstance(one, nn.Embedding) and _has_data(one.weight)]
    heads = [(path, one) for path, one in modules if isinstance(one, nn.Linear) and _has_data(one.weight)]
    for path, head in heads:
        for name, table in tables:
            apart = head.weight is not table.weight and head.weight.data_ptr() != table.weight.data_ptr()
            if not apart or head.weight.shape != table.weight.shape or head.weight.numel() < LEAST:
                continue
            one, other = head.weight.detach(), table.weight.detach().to(head.weight)
            if torch.equal(one, other) and len(one.unique()) >= LEAST:
                yield _broken(path, head, name, "have equal numbers and are two parameters: a tie that was broken", 0)
            elif trained and (cosine := _cosine(one[:MOST_ROWS], other[:MOST_ROWS])) > ALIKE:
                what = f"are two parameters and nearly equal (cosine {cosine:.4f}): a tie that was broken"
                yield _broken(path, head, name, what, 0)
    if trained:  # a model that is not loaded yet is tied when it is
        yield from _configured(model, dict(modules))
    yield from _tied_by_settings(model, tables, heads)


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.cosine_similarity(one.float().flatten(), other.float().flatten(), 0))


def _configured(model: nn.Module, modules: dict[str, nn.Module]) -> Iterator[Finding]:
    """Yield the head of a transformers model whose configuration ties it to the embedding, where it is not."""
    tied = getattr(getattr(model, "config", None), "tie_word_embeddings", False)
    if tied is not True or not getattr(model, "_tied_weights_keys", None):
        return
    try:
        table, head = model.get_input_embeddings(), model.get_output_embeddings()  # type: ignore[operator]
    except Exception:  # a model that has none
        return
    if not isinstance(table, nn.Module) or not isinstance(head, nn.Module):
        return
    one, other = getattr(head, "weight", None), getattr(table, "weight", None)
    paths = {id(module): path for path, module in modules.items()}
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one is other or one.shape != other.shape:
        return
    if not _has_data(one) or not _has_data(other):
        return
    apart = int((one.detach() != other.detach().to(one)).sum())
    if apart:  # equal ones are told already
        what = f"are to be tied (config.tie_word_embeddings), and differ in {apart} of {one.numel()} elements"
        yield _broken(paths.get(id(head), ""), head, paths.get(id(table), ""), what, apart)


def _tied_by_settings(
    model: nn.Module, tables: list[tuple[str, nn.Embedding]], heads: list[tuple[str, nn.Linear]]
) -> Iterator[Finding]:
    """Yield a head that the configuration of a model of one's own ties, or only that of a part of it, where it is not.

    Code that asks the model's own configuration (``config.tie_word_embeddings``) does not tie what a part's asks for.
    """
    config = _settings(getattr(model, "config", None))
    own = config.get("tie_word_embeddings")
    if own is True and not hasattr(model, "get_output_embeddings"):  # transformers says so of models that tie nothing
        said = "config.tie_word_embeddings"
    elif "tie_word_embeddings" not in config:
        parts = [name for name in config if name.endswith("_config")]
        part = next((name for name in parts if _settings(config[name]).get("tie_word_embeddings") is True), None)
        said = "" if part is None else f"{part}.tie_word_embeddings; the config of the model has none"
    else:
        said = ""
    pairs = [(head, table) for head in heads for table in tables if head[1].weight.shape == table[1].weight.shape]
    if not said or len(pairs) != 1:
        return
    (path, head), (name, table) = pairs[0]
    one, other = head.weight.detach(), table.weight.detach()
    apart = int((one != other.to(one)).sum())
    if head.weight is not table.weight and one.data_ptr() != other.data_ptr() and apart:
        what = f"are to be tied ({said}), and differ"
        yield _broken(path, head, name, f"{what} in {apart} of {one.numel()} elements", apart)


def _settings(config: Any) -> Mapping[str, Any]:
    """Return what a configuration says, a dictionary or an object with attributes."""
    if type(config) is dict:
        return config
    known = dict(getattr(config, "__dict__", {}))
    if hasattr(config, "tie_word_embeddings"):  # it may be one of the class
        known["tie_word_embeddings"] = config.tie_word_embeddings
    return known


def _broken(path: str, head: nn.Module, table: str, what: str, apart: int) -> Finding:
    return Finding(
        rule="broken tie",
        severity=WARNING,
        path=path,
        call=f"{path}#0",
        op=type(head).__name__,
        what=f"{members.join(path, 'weight')} and {members.join(table, 'weight')} {what}"
        + ("" if apart else ", which training moves apart"),
        measured=float(apart),
        advice="Tie them again after loading or casting: head.weight = embedding.weight, or model.tie_weights().",
    )


def _has_data(weight: Tensor | None) -> bool:
    return weight is not None and not weight.is_meta and type(weight) in (Tensor, nn.Parameter)


def find_repeated(model: nn.Module) -> Iterator[Finding]:
    """Yield lists of modules that have one module with weights several times."""
    for path, module in members.named_modules_of(model):
        named = isinstance(module, nn.ModuleDict)  # two names for one module may be meant: all for one are told
        if not named and not isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        entries: dict[int, list[str]] = {}
        for index, one in module._modules.items():
            if one is not None and members.parameters_of(one):
                entries.setdefault(id(one), []).append(index)
        for index, *others in entries.values():
            if others and (not named or (len(others) > 1 and len(entries) == 1)):
                place, times = members.join(path, index), 1 + len(others)
                yield Finding(
                    rule="repeated module",
                    severity=ADVICE,
                    path=place,
                    call=f"{place}#0",
                    op=type(module._modules[index]).__name__,
                    what=f"{path or 'the model'} has {times} entries that are one module: they share all weights",
                    measured=float(times),
                    advice="dict.fromkeys(names, Layer()) repeats one: make each, {name: Layer() for name in names}."
                    if named
                    else "[layer] * n repeats one module: make each, [Layer() for _ in range(n)], or copy.deepcopy.",
                )
        if len(entries) > 1 and not named:
            yield from _shared_inside(path, [module._modules[first] for first, *_ in entries.values()])


def _keeps_statistics(module: nn.Module) -> bool:
    return module._buffers.get("running_mean") is not None


def _shared_inside(path: str, entries: list[nn.Module | None]) -> Iterator[Finding]:
    """Yield modules with weights that stand at the same place in all entries of a list, and are one."""
    first, *others = [dict(members.named_modules_of(one)) for one in entries if one is not None]
    told: list[str] = []
    for place, module in sorted(first.items(), key=lambda item: not _keeps_statistics(item[1])):
        if not place or not members.parameters_of(module) or any(place.startswith(f"{outer}.") for outer in told):
            continue
        if all(other.get(place) is module for other in others):
            told.append(place)
            names = [f"{members.join(path, str(number))}.{place}" for number in range(2)]
            yield Finding(
                rule="repeated module",
                severity=ADVICE,
                path=names[0],
                call=f"{names[0]}#0",
                op=type(module).__name__,
                what=f"{names[0]} is one module in all {len(entries)} entries of {path or 'the model'}: they share its "
                + ("running statistics, which mix what all of them see" if _keeps_statistics(module) else "weights"),
                measured=float(len(entries)),
                advice="If each is to learn its own, make one for each entry, or copy.deepcopy.",
            )
