"""The weights of a model, and of two checkpoints: ``weights``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fxdebug.analyses.paired_names import prefix_between
from fxdebug.api.reports.report import Report
from fxdebug.capture.probe import members, special_tensors, untracked
from fxdebug.data.calls import Note
from fxdebug.data.report import ReportData
from fxdebug.errors import UsageError
from fxdebug.features.shared.drawn.as_drawn import is_trained
from fxdebug.features.shared.units.measured_activations import units_on
from fxdebug.features.weights.changed.adapters import find_merged_adapters
from fxdebug.features.weights.changed.averages import find_as_drawn, find_no_averages
from fxdebug.features.weights.changed.changes import ChangeRow, changes_report
from fxdebug.features.weights.changed.kinds import find_kinds
from fxdebug.features.weights.changed.names import (
    find_left_out,
    find_missing,
    find_nothing_loaded,
    find_prefix,
    find_unmatched,
    left_out_of,
)
from fxdebug.features.weights.changed.resized import find_resized
from fxdebug.features.weights.changed.ties import find_ties
from fxdebug.features.weights.facts import change_of, facts_of, rank_of_change
from fxdebug.features.weights.facts_of_model import weight_facts
from fxdebug.features.weights.fresh_twin import fresh_deviations
from fxdebug.features.weights.initialisation import Drawn, WeightLimits
from fxdebug.features.weights.record import UnreadWeight, WeightChange
from fxdebug.features.weights.report import WeightRow, weights_report
from fxdebug.plugins.given import GivenModel
from fxdebug.store.tensors.checkpoints import NestedWeights, Weights, read_checkpoint

Row: TypeAlias = WeightRow | ChangeRow
Checkpoint: TypeAlias = nn.Module | Mapping[str, Tensor] | str | os.PathLike[str]


def weights(
    model: Checkpoint,
    other: Checkpoint | Any = None,
    *,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    batches: Iterable[Any] | None = None,
    fresh: bool | None = None,
    spectra: bool = True,
    limits: WeightLimits | None = None,
) -> Report[Row]:
    """Report the weights of a model or a checkpoint; with inputs, what they do; of two, what changed.

    A checkpoint is a module, a state dict, a ``.safetensors`` or ``.pt`` file, or a folder with such files; the model
    of a file is not built. Of one: statistics, spectral norm, stable rank, units without weights, and the scheme by
    which each matrix was drawn, as far as the model is not trained yet; ``fresh`` says so, ``None`` finds out. Of two:
    the norm of each difference, from the first to the second, and findings: running statistics that moved where
    weights did not, or that are as at their start, and the names that only one of them has. No tensor is changed; where
    a weight of a transformers model fits no known scheme, another model is made from its configuration, to see the
    scheme of its class. ``spectra=False`` leaves out spectral norm and stable rank, which take most of the time.

    Nothing is run, unless ``inputs`` are given (the second argument, or by name) in the form of
    :func:`fxdebug.fx_debug`, or ``batches`` of them: then the model runs on each, and the report also has the units
    that the activation function behind their layer let through on no token, and the variance from block to block.
    Afterwards buffers and random generators are as before; exceptions of the model pass through.
    Raises ``LoadError`` for a file without weights, ``UsageError`` for inputs of a file.

    >>> import torch, fxdebug
    >>> layer = torch.nn.Linear(2, 2, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    >>> row = fxdebug.weights(layer).rows[0]
    >>> row.name, round(row.spectral_norm, 6), round(row.stable_rank, 6)
    ('weight', 3.0, 1.111111)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    >>> with torch.no_grad():
    ...     _ = net[0].bias[5].fill_(-100)
    >>> fxdebug.weights(net, torch.randn(32, 4)).findings[0].what[:30]
    'behind relu unit [5] of 8 is n'
    """
    if other is not None and not isinstance(other, (nn.Module, str, os.PathLike)) and not _are_weights(other, model):
        if inputs is not None:
            raise UsageError("inputs were given twice: as the second argument, and by name")
        inputs, other = other, None
    runs = [inputs] if batches is None and (inputs is not None or kwargs is not None) else batches
    if runs is not None and (other is not None or not isinstance(model, nn.Module)):
        raise UsageError("inputs are for one model: a file of weights cannot run, and two are compared without running")
    if other is not None:
        return _changes(model, other)
    if isinstance(model, nn.Module):
        return Report.of(_of_model(model, runs, kwargs, fresh, spectra, limits))
    loaded = _weights_of(model)
    bare = nn.Module()
    read = [(name, facts_of([name], tensor(), bare, "parameter", spectra=spectra)) for name, tensor in loaded.items()]
    return Report.of(
        weights_report(
            [facts for _, facts in read if facts is not None],
            _name_of(model),
            fresh=fresh,
            limits=limits,
            unread=[UnreadWeight(name, "parameter", None) for name, facts in read if facts is None],
        )
    )


def _of_model(
    model: nn.Module,
    runs: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
    fresh: bool | None,
    spectra: bool,
    limits: WeightLimits | None,
) -> ReportData[WeightRow]:
    activations, notes = (None, []) if runs is None else units_on(model, runs, kwargs)
    facts, without = weight_facts(model, spectra=spectra)
    notes = [*notes, Note(special_tensors.SHARDED)] if special_tensors.has_sharded_weights(model) else notes
    config = getattr(model, "config", None)
    known = [getattr(config, name, None) for name in ("initializer_range", "init_std", "initializer_factor")]
    drawn = Drawn(
        ranges=tuple([float(value) for value in known if isinstance(value, float) and value > 0]),
        layers=next((n for n in (getattr(config, name, None) for name in LAYERS) if isinstance(n, int)), None),
    )

    def report(drawn: Drawn, fresh: bool | None) -> ReportData[WeightRow]:
        return weights_report(
            facts,
            type(model).__name__,
            drawn=drawn,
            fresh=fresh,
            limits=limits,
            unread=without,
            on_inputs=activations,
            notes=notes,
        )

    first = report(drawn, fresh)
    if not any(finding.rule == "initialisation" for finding in first.findings):
        return first
    if fresh is None:  # small matrices fit some scheme by chance: norms and biases tell of training
        with untracked(), torch.no_grad():
            if is_trained(model):
                return report(drawn, False)
    again = fresh_deviations(model)  # a class may draw each of its weights in a way of its own
    return report(replace(drawn, again=again), fresh) if again else first


LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
TRIED = 4  # changed weights whose change is looked at
MOSTLY = 0.9  # of the names of a checkpoint have the prefix of its wrapper


def _changes(model: Checkpoint, other: Checkpoint) -> Report[Row]:
    models = [one if isinstance(one, nn.Module) else None for one in (model, other)]
    left_out = [left_out_of(one) if one is not None else {} for one in models]
    known = [name for one in models if one is not None for name in _weights_of(one)]
    read = [_weights_of(one, known) for one in (model, other)]
    under = next((found.under for found in read if isinstance(found, NestedWeights)), "")
    a, b = ({**one, **_detached(beyond)} for one, beyond in zip(read, left_out))
    names = list(a), list(b)
    prefix = "" if a.keys() & b.keys() else prefix_between(*names)
    if prefix and not any(MOSTLY * len(side) <= sum(name.startswith(prefix) for name in side) for side in names):
        prefix = ""  # of one part of a model that has others
    a, b = ({name.removeprefix(prefix): read for name, read in side.items()} for side in (a, b))
    if not a.keys() & b.keys():
        some = [next(iter(side), "none") for side in (a, b)]
        raise UsageError(f"both have no weight of one name: the first has {some[0]!r}, the second {some[1]!r}")
    with untracked():
        changes = [
            change_of(name, a[name]() if name in a else None, b[name]() if name in b else None)
            for name in dict.fromkeys((*a, *b))
        ]
    loaded = models.count(None) == 1
    unmatched = [
        finding
        for one, file in zip(models, (b, a))
        if one is not None and loaded and not prefix
        for finding in find_unmatched(file, one)
    ]
    beyond = {name.removeprefix(prefix): tensor for side in left_out for name, tensor in side.items()}
    findings = find_prefix(changes, prefix, *names) if prefix else []
    nothing = find_nothing_loaded(changes, under) if loaded else []
    findings = [*nothing, *unmatched] if nothing else findings
    findings = findings or [
        *unmatched,
        *find_left_out(beyond, None if loaded else [c.name for c in changes if c.name in beyond and c.differing]),
        *(find_missing(changes) if models == [None, None] else ()),
        *find_ties((models[0], a), (models[1], b), prefix),
        *find_resized(a, b, changes),
        *find_merged_adapters(a, b, changes),
        *find_kinds([change for change in changes if change.name not in beyond], loaded=loaded),
        *find_as_drawn(a, None if prefix else models[1], models[0]),
        *(find_no_averages(changes) if not loaded else ()),
    ]
    notes = [Note(f"names are compared without the prefix {prefix!r}, which only one of both has")] if prefix else []
    how = _how(changes, a, b)
    return Report.of(changes_report(changes, _name_of(model), _name_of(other), findings, notes, how, loaded=loaded))


def _how(changes: Sequence[WeightChange], a: Weights, b: Weights) -> str:
    """Say what the weights that changed have in common, where others are equal: products of few columns."""
    changed = [change for change in changes if change.differing]
    if not changed or len(changed) == len(changes):
        return ""
    with untracked(), torch.no_grad():
        ranks = [rank_of_change(a[one.name](), b[one.name]()) for one in changed[:TRIED]]
    known = [rank for rank in ranks if rank is not None]
    if len(known) < len(ranks):
        return ""
    rank = str(known[0]) if len(set(known)) == 1 else f"{min(known)} to {max(known)}"
    return f", by matrices of rank {rank} (as of an adapter: merged with another factor, or into one of both alone)"


def _are_weights(other: object, model: Checkpoint) -> bool:
    """Is it a state dict? Inputs of a model may be a mapping, too: of other names."""
    if not isinstance(other, Mapping) or not other:
        return False
    if not all(type(name) is str and isinstance(tensor, Tensor) for name, tensor in other.items()):
        return False
    return not isinstance(model, nn.Module) or any(name in other for name in _weights_of(model))


def _weights_of(checkpoint: Checkpoint, known: Sequence[str] = ()) -> Weights:
    if isinstance(checkpoint, Mapping):
        return _detached({name: one for name, one in checkpoint.items() if isinstance(one, Tensor)})
    if not isinstance(checkpoint, nn.Module):
        return read_checkpoint(Path(checkpoint), known)
    return _detached({**dict(members.named_parameters_of(checkpoint)), **dict(members.named_buffers_of(checkpoint))})


def _detached(tensors: Mapping[str, Tensor]) -> Weights:
    return {name: partial(Tensor.detach, special_tensors.local_part(tensor)) for name, tensor in tensors.items()}


def _name_of(checkpoint: Checkpoint) -> str:
    if isinstance(checkpoint, (nn.Module, Mapping)):
        return type(checkpoint).__name__ if isinstance(checkpoint, nn.Module) else "state dict"
    return Path(checkpoint).name


def on_model(given: GivenModel, limits: WeightLimits) -> Report[Row]:
    """Answer ``check`` about a model."""
    return weights(given.module, limits=limits, spectra=False)
