"""The kind of state that changed from one checkpoint to another, where another kind did not."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from statistics import median

from fxdebug.data.findings import ADVICE, WARNING, Finding, Severity
from fxdebug.data.measures import counted
from fxdebug.features.weights.record import WeightChange
from fxdebug.operators.dtypes import EPS

NAMED = 3
UNLIKE = 0.3  # cosine of a matrix and itself after training from elsewhere: those of an average are near 1
STATISTICS = ("running_mean", "running_var")
COUNTERS = ("num_batches_tracked",)
TABLES = ("inv_freq", "freqs_cis", "position_ids", "relative_position_index", "causal_mask")
TURNED = 4.0  # times the angle by which a weight turned that it shrank at least
PARALLEL = 1e-10  # 1 minus the cosine of a weight and itself, scaled and rounded to float32


def find_kinds(changes: Sequence[WeightChange], *, loaded: bool) -> Iterator[Finding]:
    """Yield what a change of two checkpoints tells by its kind; ``loaded``: one is the model, the other its file."""
    both = [change for change in changes if change.differing is not None]
    lost = _at_their_start(both)
    yield from _moved_statistics([change for change in both if change.name.rpartition(".")[0] not in lost])
    yield from _first_statistics(
        [change for change in both if change.name in {f"{path}.running_mean" for path in lost}], _likeness(both, lost)
    )
    yield from _late_statistics([change for change in both if change.name.rpartition(".")[0] not in lost])
    yield from _tables(both)
    yield from _scaled(both)
    if loaded:
        yield from _unlike_the_file(both)


def is_statistic(name: str) -> bool:
    """Is a weight a running statistic or its counter?

    >>> is_statistic("bn.running_var"), is_statistic("bn.weight")
    (True, False)
    """
    return name.rpartition(".")[2] in (*STATISTICS, *COUNTERS)


def _moved_statistics(both: Sequence[WeightChange]) -> Iterator[Finding]:
    """Statistics of a part none of whose weights changed."""
    weights = [change for change in both if not is_statistic(change.name)]
    moved = [
        change
        for change in both
        if change.name.rpartition(".")[2] in STATISTICS and change.differing and _is_frozen(change, weights)
    ]
    if moved:
        yield _finding(
            "statistics moved",
            WARNING,
            moved,
            "changed in a part whose weights did not: frozen, and in training mode",
            "requires_grad_(False) does not stop statistics: call eval() of the frozen part after model.train().",
        )


def _is_frozen(statistic: WeightChange, weights: Sequence[WeightChange]) -> bool:
    """Did the weights of the norm not change, or of the module around it that has some?"""
    path = statistic.name.rpartition(".")[0]
    while path:
        inside = [change for change in weights if change.name.startswith(f"{path}.")]
        if inside:
            return not any(change.differing for change in inside)
        path = path.rpartition(".")[0]
    return False


def _at_their_start(both: Sequence[WeightChange]) -> set[str]:
    """Return the paths of norms whose statistics are as at their start in the second checkpoint alone."""
    names = {change.name: change for change in both}
    found = set()
    for name, mean in names.items():
        path, _, last = name.rpartition(".")
        variance = names.get(f"{path}.running_var")
        if last != "running_mean" or variance is None or not mean.differing or mean.norm_b != 0:
            continue
        if math.isclose((variance.norm_b or 0.0) ** 2, _count(variance), rel_tol=1e-12):
            found.add(path)
    return found


def _likeness(both: Sequence[WeightChange], norms: Collection[str]) -> float | None:
    """Return the median cosine of the matrices of the parts that some norms are in with themselves."""
    parts = {path.partition(".")[0] for path in norms}
    cosines = [
        change.cosine
        for change in both
        if change.name.partition(".")[0] in parts and change.cosine is not None and len(change.shape_a or ()) > 1
    ]
    return median(cosines) if cosines else None


def _first_statistics(lost: Sequence[WeightChange], likeness: float | None) -> Iterator[Finding]:
    """Statistics that the second checkpoint has as at their start, and the first does not."""
    if not lost:
        return
    what = "and their variances are as at their start in the second: mean 0, variance 1"
    advice = "An average of the parameters alone has no statistics: copy the buffers along."
    if likeness is not None and likeness < UNLIKE:
        what += f"; its matrices have nothing in common with those of the first, either (cosine {likeness:.2g}): "
        what += "nothing of the first was loaded there"
        advice = "Compare the names of the keys (a prefix such as backbone. or module.), and look for strict=False."
    yield _finding("statistics not copied", WARNING, lost, what, advice)


def _late_statistics(both: Sequence[WeightChange]) -> Iterator[Finding]:
    """Statistics of fewer batches in the second checkpoint than in the first, as of an average without buffers."""
    counts = [change for change in both if change.name.rpartition(".")[2] in COUNTERS and change.norm_b]
    late = [change for change in counts if change.norm_b < (change.norm or 0.0)]  # type: ignore[operator]
    if late and any(change.differing for change in both if not is_statistic(change.name)):
        yield _finding(
            "statistics late",
            WARNING,
            late,
            f"counted {late[0].norm_b:.0f} batches in the second, and {late[0].norm:.0f} in the first: these running "
            "statistics were not carried along, or the second is of an earlier step",
            "An average of the parameters alone keeps the statistics of the step in which it was made: average or copy "
            "the buffers along, or measure them anew (torch.optim.swa_utils.update_bn).",
        )


def _tables(both: Sequence[WeightChange]) -> Iterator[Finding]:
    changed = [change for change in both if change.name.rpartition(".")[2] in TABLES and change.differing]
    if changed:
        yield _finding(
            "table changed",
            WARNING,
            changed,
            "changed, and nothing trains it: a cast of the model rounds it, or it was made anew",
            "Keep it in float32, or make it again after the cast.",
        )


def _scaled(both: Sequence[WeightChange]) -> Iterator[Finding]:
    """Weights that only shrank: decay that no gradient answered."""
    shrunk = [
        change
        for change in both
        if change.differing
        and change.cosine is not None
        and 1 - change.cosine < PARALLEL
        and _count(change) > 1
        and change.norm
        and _shrinks(change)
    ]
    if shrunk:
        ratio = (shrunk[0].norm_b or 0.0) / (shrunk[0].norm or 1.0)
        yield _finding(
            "only shrank",
            ADVICE,
            shrunk,
            f"only shrank, by {100 * (1 - ratio):.3g} %: weight decay, and no gradient",
            "Leave weights without a gradient out of the optimizer, and norms and biases out of the decay.",
        )


def _shrinks(change: WeightChange) -> bool:
    """Is a weight shorter, by far more than it turned? A step of training does both alike."""
    assert change.cosine is not None
    turned = math.sqrt(max(2 * (1 - change.cosine), 0.0))
    return 1 - (change.norm_b or 0.0) / (change.norm or 1.0) > max(1e-6, TURNED * turned)


def _unlike_the_file(both: Sequence[WeightChange]) -> Iterator[Finding]:
    """Weights that differ from the file where most are equal to it."""
    weights = [change for change in both if not is_statistic(change.name)]
    other = [change for change in weights if _differs(change)]
    if other and 2 * len(other) < len(weights):
        yield _finding(
            "unlike file",
            WARNING,
            other,
            f"{'differs' if len(other) == 1 else 'differ'} from the checkpoint, to which {len(weights) - len(other)} "
            "other weights are equal",
            "It was not loaded, or written after loading: look for an initialisation that runs late.",
        )


def _differs(change: WeightChange) -> bool:
    rounding = max(EPS.get(change.dtype_a or "", 0.0), EPS.get(change.dtype_b or "", 0.0))
    if change.dtype_a == change.dtype_b:
        return bool(change.differing)
    return (change.change or 0.0) > rounding * (change.norm or 0.0)


def _count(change: WeightChange) -> int:
    return math.prod(change.shape_a or ())


def _finding(rule: str, severity: Severity, changes: Sequence[WeightChange], what: str, advice: str) -> Finding:
    names = [change.name for change in changes]
    noun = "statistic" if all(map(is_statistic, names)) else "weight"
    named = ", ".join(names[:NAMED]) + (f", … {counted(len(names), noun)} in all" if len(names) > NAMED else "")
    return finding_on(rule, severity, names, f"{named} {what}", advice)


def finding_on(rule: str, severity: Severity, names: Sequence[str], what: str, advice: str) -> Finding:
    """Return a finding on some weights, at the module of the first of them."""
    path = names[0].rpartition(".")[0]
    return Finding(
        rule=rule,
        severity=severity,
        path=path,
        call=f"{path}#0",
        op=names[0],
        what=what,
        measured=float(len(names)),
        threshold=0.0,
        advice=advice,
        others=tuple(names[1:]),
    )
