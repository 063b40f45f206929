"""Settings that cost time: training mode in inference, threads, padding, dtypes and numbers that are slow here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import counted
from fxdebug.features.profile.wasted.surroundings import SMALLEST, Surroundings
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, drops

_NO_KERNEL = frozenset("gru rnn_tanh rnn_relu".split())  # took 1.6 to 5 times as long as in float32; lstm took less


def settings(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    """Tell what is at stake by the mode, the threads, the dtypes and the numbers of the run."""
    if not work.ops:
        return
    yield from _training_mode(work, around, least)
    yield from _threads(work, around, least)
    yield from _anomaly_mode(work, around, least)
    yield from _kept_graphs(work, around, least)
    if around.device == "cpu":
        yield from _half_on_cpu(work, least)
        yield from _subnormal(work, around, least)
    yield from _padding(work, around, least)


def _training_mode(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    drawn = [op for op in work.ops if not op.profile.call.training and "dropout" in op.name and drops(op)]
    share = work.share(sum(op.seconds for op in drawn))
    if drawn and share >= least:
        what = f"{counted(len(drawn), 'dropout')} {'sets' if len(drawn) == 1 else 'set'} elements to zero in eval mode"
        advice = "Is it meant? torch.nn.functional.dropout drops unless training=self.training is passed."
        yield work.finding("training mode", costliest(drawn), share, least, what, advice)
    if around.has_loss:
        return
    yield from _observers(work, least)
    ops = [op for op in work.ops if op.profile.call.training and _is_of_training(op)]
    share = work.share(sum(op.seconds for op in ops))
    if ops and share >= least:
        what = f"{len(ops)} operations (dropout, batch norm) run as in a training, in a run without a loss"
        advice = "Is it an inference? Then call model.eval() before it: results change, too."
        yield work.finding("training mode", costliest(ops), share, least, what, advice)


def _observers(work: Work, least: float) -> Iterator[Finding]:
    """Observers of a quantisation, which belong to its calibration, and what is made of what they have seen."""
    calls = [call for call in work.trace.calls if call.type.endswith("Observer")]
    observed = {call.index for call in calls} | {call.parent_index for call in calls} - {0, None}
    inside = [op for op in work.ops if any(index in observed for index in work.around(op.profile.call.index))]
    ops = [op for op in inside if not op.name.startswith("fake_quantize")]
    share = work.share(sum(op.seconds for op in ops))
    if ops and share >= least:
        what = f"{counted(len(ops), 'operation')} of observers look at the numbers that a quantisation is made for"
        advice = "Is the calibration over? Then model.apply(torch.ao.quantization.disable_observer)."
        yield work.finding("training mode", costliest(ops), share, least, what, advice)


def _is_of_training(op: TimedOp) -> bool:
    return op.step.kwargs.get("training") is True and ("dropout" in op.name or "norm" in op.name)


def _threads(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    if around.device == "cpu" and around.threads > around.cores:
        what = f"torch computes with {around.threads} threads, and this process may use {around.cores} cores"
        advice = f"Would torch.set_num_threads({around.cores}) be faster? fxdebug.tune measures it."
        yield _of_run(work, "threads", least, what, advice)


def _anomaly_mode(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    if around.finds_anomalies:
        what = "autograd's anomaly mode is on: it notes the line of each operation, and looks for NaN in each gradient"
        advice = "Was it left on? torch.autograd.set_detect_anomaly(False) switches it off."
        yield _of_run(work, "anomaly mode", least, what, advice)


def _kept_graphs(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    for path, name in around.kept_graphs:
        op = next((op for op in work.ops if op.profile.call.path == path), costliest(work.ops))
        what = f"{path}{'.' if path else ''}{name} keeps the graph of a run after the next one: memory grows from step "
        what += "to step, and a backward through it goes through all earlier steps"
        advice = "Could what is kept be detached: x.detach()?"
        yield replace(work.finding("kept graph", op, 100.0, least, what, advice, WARNING), what=what)


def _of_run(work: Work, rule: str, least: float, what: str, advice: str) -> Finding:
    """Return a finding about the whole run: it has no line."""
    return replace(work.finding(rule, costliest(work.ops), 100.0, least, what, advice, WARNING), source=None)


def _half_on_cpu(work: Work, least: float) -> Iterator[Finding]:
    ops = [op for op in work.ops if any(v.dtype == "float16" and v.numel > 1 for v in op.results)]
    share = work.share(sum(op.seconds for op in ops))
    if ops and share >= least:
        what = f"{len(ops)} operations compute in float16 on the CPU, which few processors have kernels for"
        advice = "Would model.float() or model.bfloat16() be faster? fxdebug.tune measures both."
        yield work.finding("float16 on the CPU", costliest(ops), share, least, what, advice)
    ops = [op for op in work.ops if op.name in _NO_KERNEL and op.operands and op.operands[0].dtype == "bfloat16"]
    share = work.share(sum(op.seconds for op in ops))
    if ops and share >= least:
        what = f"{counted(len(ops), 'operation')} ({ops[0].name}) computes in bfloat16 on the CPU, where of the "
        what += "recurrent ones lstm alone has a kernel for it"
        yield work.finding("bfloat16 on the CPU", costliest(ops), share, least, what, "Would model.float() be faster?")


def _subnormal(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    names = set(around.subnormal)
    ops = [op for op in work.ops if any(_is_subnormal(v) or v.name in names for v in (*op.operands, *op.results))]
    share = work.share(sum(op.seconds for op in ops))
    if ops and share >= least:
        where = f" (such as {around.subnormal[0]})" if around.subnormal else ""
        what = f"{len(ops)} operations have subnormal numbers, below 1.2e-38, among their operands or results{where}, "
        advice = "Would torch.set_flush_denormal(True) be faster? fxdebug.tune measures it."
        yield work.finding("subnormal", costliest(ops), share, least, what + "which processors compute slowly", advice)


def _is_subnormal(value: object) -> bool:
    stats = getattr(value, "stats", None)
    if stats is None or getattr(value, "dtype", "") != "float32" or not stats.absmax or stats.absmax >= SMALLEST:
        return False
    return bool(stats.count > stats.zeros)


def _padding(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    if not around.padded:
        return
    most = max(around.padded, key=lambda one: one.length - one.longest)
    long = [op for op in work.ops if any(most.length in v.shape for v in op.results)]
    share = (1 - most.longest / most.length) * work.share(sum(op.seconds for op in long))
    if long and share >= least:
        what = f"the last {most.length - most.longest} of {most.length} steps of {most.slot} are padding in every row"
        advice = f"Could the inputs be padded to their longest row, {most.longest} (padding='longest'), and rows be "
        yield work.finding("padding", costliest(long), share, least, what, advice + "sorted by their length?", WARNING)
