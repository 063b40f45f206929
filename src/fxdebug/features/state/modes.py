"""Training mode where it is not meant, and the statistics of batch norm that it moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from torch import nn

from fxdebug.capture.probe import members
from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import counted

NAMED = 3
OF_START = 0.2  # share of the first statistics that running ones may still have
BatchNorm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def find_modes(model: nn.Module) -> Iterator[Finding]:
    """Yield modules that are in training mode in a model that is in evaluation, where that makes a difference."""
    if model.training:
        return
    stray: list[tuple[str, nn.Module, nn.Module]] = []
    of_lists: set[str] = set()
    for path, module in members.named_modules_of(model):
        for place, one in members.unregistered_in(module):
            acting = next((each for each in members.modules_of(one) if each.training and _acts(each)), None)
            if acting is not None and "[" in place:
                stray.append((members.join(path, place), one, acting))
                of_lists.add(stray[-1][0])
        known = any(path.startswith(f"{outer}.") for outer, *_ in stray)
        if not module.training or known:
            continue
        acting = next((one for one in members.modules_of(module) if one.training and _acts(one)), None)
        if acting is not None:
            stray.append((path, module, acting))
    if not stray:
        return
    path, module, acting = stray[0]
    named = ", ".join([place for place, *_ in stray[:NAMED]]) + (", …" if len(stray) > NAMED else "")
    effect = (
        "normalises with the numbers of its batch and moves its statistics"
        if isinstance(acting, BatchNorm)
        else "drops values at random"
    )
    unseen = path in of_lists
    yield Finding(
        rule="mode",
        severity=WARNING,
        path=path,
        call=f"{path}#0",
        op=type(module).__name__,
        what=f"{named} {'is' if len(stray) == 1 else 'are'} in training mode, the model is in evaluation: "
        f"{type(acting).__name__} {effect}" + (", and eval() does not reach it in a plain list or dict" * unseen),
        advice="Use nn.ModuleList or nn.ModuleDict."
        if unseen
        else "Call model.eval() after the last change, or eval() of this module.",
        others=tuple([f"{place}#0" for place, *_ in stray[1:]]),
    )


def _acts(module: nn.Module) -> bool:
    """Does training mode change what a module computes?"""
    if isinstance(module, DROPOUTS):
        return module.p > 0
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0
    if isinstance(module, nn.MultiheadAttention):
        return module.dropout > 0
    return isinstance(module, BatchNorm)


def find_statistics(model: nn.Module, *, trained: bool) -> Iterator[Finding]:
    """Yield batch norms whose statistics move though nothing learns there, or are not those of any data."""
    norms = [
        (path, one)
        for path, one in members.named_modules_of(model)
        if isinstance(one, BatchNorm) and one.running_mean is not None and one.running_var is not None
    ]
    frozen = [(path, one) for path, one in norms if one.training and _is_frozen(model, path)]
    if frozen and any(parameter.requires_grad for parameter in members.parameters_of(model)):
        yield _finding(
            frozen,
            "in training mode, though frozen: running_mean and running_var move with every batch, and no gradient "
            "shows it",
            "Call eval() of the frozen part after model.train(): requires_grad_(False) does not stop statistics.",
        )
    if not trained:
        return
    untouched = [(path, one) for path, one in norms if not one.training and _is_at_start(one)]
    if untouched:
        yield _finding(
            untouched,
            "with statistics as at their start (mean 0, variance 1), in a model that is trained: it normalises nothing",
            "Copy the buffers along (an averaged copy of the parameters alone does not have them), or load them.",
        )
    early = [(path, one, left) for path, one in norms if (left := _of_start(one)) > OF_START]
    if early:
        share = max(left for *_, left in early)
        yield _finding(
            [(path, one) for path, one, _ in early],
            f"with statistics that are still {share:.0%} those of their start: momentum {early[0][1].momentum:g}, "
            f"batches seen: {int(early[0][1].num_batches_tracked or 0)}",
            "momentum is the share of the new batch (0.1 by default): 1 minus that of other frameworks.",
        )


def _is_frozen(model: nn.Module, path: str) -> bool:
    """Does nothing learn in a norm, nor in the module around it where the norm has no weights?"""
    norm = model.get_submodule(path)
    own = members.parameters_of(norm)
    if not own:
        outer = path.rpartition(".")[0]
        own = members.parameters_of(model.get_submodule(outer)) if outer else []
    return bool(own) and not any(parameter.requires_grad for parameter in own)


def _is_at_start(norm: BatchNorm) -> bool:
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None or mean.is_meta:
        return False
    return not bool(mean.any()) and bool((variance == 1).all())


def _of_start(norm: BatchNorm) -> float:
    """Return the share of the first statistics in the running ones; 0 where it cannot be known."""
    seen, variance = norm.num_batches_tracked, norm.running_var
    if norm.momentum is None or variance is None or variance.is_meta or seen is None or not int(seen):
        return 0.0
    left = float((1 - norm.momentum) ** int(seen))
    # what is left of the first variance, 1, is at least in each: loaded statistics may lie below it
    return left if bool((variance >= 0.999 * left).all()) else 0.0


def _finding(norms: list[tuple[str, BatchNorm]], what: str, advice: str) -> Finding:
    path, one = norms[0]
    named = ", ".join([place for place, _ in norms[:NAMED]]) + (", …" if len(norms) > NAMED else "")
    return Finding(
        rule="statistics",
        severity=WARNING,
        path=path,
        call=f"{path}#0",
        op=type(one).__name__,
        what=f"{counted(len(norms), 'batch norm')} ({named}) {what}",
        advice=advice,
        others=tuple([f"{place}#0" for place, _ in norms[1:]]),
    )
