"""What is wrong with the numbers of a run: who made the first NaN, what is about to overflow, what got lost."""

from __future__ import annotations

from collections.abc import Sequence

from fxdebug.analyses import dtype_limits
from fxdebug.analyses.findings import ADVICE, ERROR, WARNING, Checked, Finding, Findings, Severity, worst_first
from fxdebug.analyses.origins import Given, Lineage, Origin, Results, is_operation, is_output, literals_of
from fxdebug.data.graphs import Ref
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.operators.categories import CURES, UNFILLED, VIEWS, WRITES, is_probability, only_the_shape
from fxdebug.operators.nonfinite import (
    INF,
    MEANT,
    NAN,
    UNINITIALISED,
    Made,
    Verdict,
    broken,
    counted,
    judge,
    masking,
    unwritten,
)
from fxdebug.query.network import Node, network_of


def check(trace: TraceData, *, tensors: bool = True) -> Findings:
    """Everything that is wrong with the numbers of a run, worst first; a tuple of ``Finding``.

    Every operation that made a NaN or an infinity of what had none is named, those that only pass it on are counted.
    Infinities that are meant (masks, ``masked_fill``, numbers written as such) are none. Further: overflow and
    underflow by the limits of each dtype, cancellation, and as advice what would not fit into float16. Works on
    statistics, also of a loaded or partial trace; without graphs it names calls instead of operations. Numbers
    below the smallest normal one are counted where the run kept its ``tensors`` (this reads them, and needs torch).

    >>> import torch, fxdebug
    >>> from torch import nn
    >>> trace = fxdebug.fx_debug(nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)), torch.tensor([1.0, float("nan")]))
    >>> [(finding.kind, finding.severity, finding.node) for finding in check(trace)]
    [('input', 'error', 'Sequential#0/input_1')]
    """
    net = network_of(trace)
    results = Results(net)
    position = {id: node.position for id, node in net.nodes.items()}
    nonfinite = NonFinites(trace, results)
    found = [*nonfinite.findings(), *dtype_limits.check(trace, results, tensors=tensors)]
    return Findings(worst_first(found, position), _checked(trace, results))


def _checked(trace: TraceData, results: Results) -> Checked:
    net = results.net
    operations = [node for node in net.nodes.values() if is_operation(net, node) and node.kind != "call_module"]
    made = {value.number: value for node in net.nodes.values() for value in results.made(node)}
    unmeasured = sum(value.stats is None and value.layout != "" for value in made.values())
    notes = []
    if trace.graph_source is None:
        notes.append("The run has no graphs (graph=False, or it was cut short): calls are named, not operations.")
    else:
        opaque = sum(call.status == "opaque" for call in trace.calls)
        if opaque:
            notes.append(f"{opaque} calls are opaque: they are named, not the operations inside them.")
    if trace.error is not None:
        notes.append(f"The run raised {trace.error.type}: this is what happened until then.")
    return Checked(len(operations), len(trace.calls), unmeasured, tuple(notes))


class NonFinites:
    """Who made the NaNs and infinities of a run."""

    def __init__(self, trace: TraceData, results: Results) -> None:
        self._trace = trace
        self._results = results
        self._net = results.net
        self._read: dict[int, Node] = {}  # origin of memory that was never written to → who first computed with it
        unfilled = [node for node in self._net.nodes.values() if node.op in UNFILLED]
        self._unfilled = {value.storage for node in unfilled for value in node.values}  # memory that began as nothing
        self._probabilities: set[int] = set()
        for node in self._net.nodes.values():
            if is_probability(node.op, (value for value, _ in results.given(node)), self._probabilities):
                self._probabilities.update(value.number for value in node.values)
        self._meant = 0  # the origins that are no fault, as bits
        self._known: list[Verdict] = []
        self._at: list[Node] = []
        self.lineage = Lineage(results, broken, self._judged)

    def findings(self) -> list[Finding]:
        """One for every origin that is a fault."""
        found = [self._finding(origin) for origin in self.lineage.origins]
        return dtype_limits.grouped([finding for finding in found if finding is not None], calls_only=True)

    # Judging -------------------------------------------------------------------------------------

    def _judged(self, node: Node, given: list[Given], bad: list[Value], inherited: int) -> Verdict | int | None:
        verdict = self._verdict(node, given, bad, inherited)
        if verdict is not None and not inherited and self._from_nowhere(node, bad[0]):
            earlier = self._earlier(node)
            if earlier:
                return earlier
        if verdict is not None:
            self._at.append(node)
            if verdict.kind in (MEANT, UNINITIALISED):
                self._meant |= 1 << len(self._known)
            self._known.append(verdict)
        elif inherited and is_operation(self._net, node) and node.op not in VIEWS | WRITES:
            for number, known in enumerate(self._known):
                if inherited >> number & 1 and known.kind == UNINITIALISED:
                    self._read.setdefault(number, node)
        return verdict

    def _verdict(self, node: Node, given: list[Given], bad: list[Value], inherited: int) -> Verdict | None:
        if node.kind == "get_attr":
            return None if inherited else _weight(bad[0])
        if node.kind in ("placeholder", "output"):
            return None if inherited else self._arrived(node, bad)
        if node.kind == "call_module":
            if inherited or self._net.steps(node.call):
                return None if inherited else self._arrived(node, bad)
            return self._of_call(node, bad)
        if inherited & ~self._meant:
            return None  # it only passes on what another one made
        values = tuple(dict.fromkeys(value for value, _ in given))
        literals = literals_of(node)
        verdict = judge(node.op, literals, values, bad, self._probabilities)
        if verdict is not None and bad[0].storage in self._unfilled and unwritten(node.op, literals, values):
            return Verdict(UNINITIALISED, "the rest of its memory was never written to")
        return verdict

    def _from_nowhere(self, node: Node, value: Value) -> bool:
        """Is this a tensor that no operation that was seen made, nor one of the model's or of the inputs?"""
        return node.kind == "get_attr" and value.name is None and not masking(value)

    def _earlier(self, node: Node) -> int:
        """The faults of the same call until here: code that hides its results (vmap) brings them in unseen."""
        bits = 0
        for number, (known, at) in enumerate(zip(self._known, self._at)):
            if known.kind in (NAN, INF) and at.call is node.call:
                bits |= 1 << number
        return bits

    def _arrived(self, node: Node, bad: list[Value]) -> Verdict | None:
        """A value that no step made: an input of the run, or made by code that was not recorded."""
        if all(map(masking, bad)):
            return Verdict(MEANT, "a mask")
        outermost = node.call.parent is None or is_output(self._net.nodes[self._net.call_id(node.call)])
        if node.kind == "placeholder" and outermost:
            return Verdict("input", f"the input {node.target!r} has {counted(bad[0].stats)}")
        parent = node.call.parent
        if parent is not None and not self._net.steps(parent):
            return Verdict(_kind(bad), f"the code of {_name(parent.path, self._trace)} made it between its calls")
        return Verdict(_kind(bad), "it comes from code whose operations were not recorded")

    def _of_call(self, node: Node, bad: list[Value]) -> Verdict:
        call = node.call
        given = [value for value in call.inputs if broken(value)]
        if given and not all(map(masking, given)):
            return self._arrived(node, given) or Verdict(_kind(bad), "it was given it")
        if not call.children:
            weight = self._weight_of(call.path)
            if weight is not None:
                return Verdict("weight", f"the weight {weight} is not finite")
        if all(map(masking, bad)):
            return Verdict(MEANT, "a mask")
        found = judge(call.type, (), tuple(call.inputs), bad)
        why = "its operations were not recorded" if found is None or "finite numbers" in found.why else found.why
        return Verdict(_kind(bad), f"it was given finite numbers and returned {counted(bad[0].stats)}; {why}")

    def _weight_of(self, path: str) -> str | None:
        for parameter in self._trace.parameters:
            stats = parameter.before or parameter.stats
            inside = any(name.startswith(f"{path}." if path else "") for name in parameter.names)
            if inside and stats is not None and stats.finite < stats.count:
                return parameter.name
        return None

    # Telling -------------------------------------------------------------------------------------

    def _finding(self, origin: Origin) -> Finding | None:
        verdict, node = origin.what, origin.node
        assert isinstance(verdict, Verdict)
        number = origin.bit.bit_length() - 1
        if verdict.kind == MEANT or (verdict.kind == UNINITIALISED and number not in self._read and not origin.output):
            return None
        return Finding(
            kind="input" if node.kind == "get_attr" and verdict.kind == UNINITIALISED else verdict.kind,
            severity=self._severity(origin, verdict),
            path=node.path,
            call=self._net.call_id(node.call),
            op=node.target if node.kind in ("get_attr", "placeholder") else node.op,
            what=self._sentence(origin, verdict, self._read.get(number)),
            node=node.id,
            source=node.source or (self._read[number].source if number in self._read else None),
            value=origin.made,
            inputs=_shown(node, origin.given),
            reached=len(origin.reached),
            output=origin.output,
            absorbed=tuple(dict.fromkeys(other.id for other in origin.absorbed)),
        )

    def _severity(self, origin: Origin, verdict: Verdict) -> Severity:
        if origin.output or self._trace.error is not None:
            return ERROR
        stats = origin.made.stats
        if verdict.kind in ("input", "weight") and stats is not None and not stats.nan and not stats.posinf:
            return ADVICE  # a mask with a bias in it, as some are given
        computed = [node for node in origin.reached if node.op not in VIEWS | WRITES | CURES and not _scales(node)]
        if origin.absorbed and not computed and all(self._replaced(node) for node in origin.absorbed):
            return ADVICE  # somebody knew, and put something else in its place
        return WARNING

    def _replaced(self, node: Node, steps: int = 6) -> bool:
        """Is something else put where the NaN or infinity was, here or, after a cast to integers, a few steps on?

        T5 takes the logarithm of distances, rounds it, and chooses with ``where`` whether to use it.
        """
        if node.op in CURES:
            return True
        whole = node.value is not None and node.value.dtype in ("int64", "int32", "int16", "int8", "uint8")
        if not whole or not steps:
            return False
        edges = [edge for edge in self._net.out_of.get(node.id, ()) if edge.kind == "data"]
        later = [self._net.nodes[edge.target] for edge in edges]
        later = [other for other in later if is_operation(self._net, other) and not only_the_shape(other.op)]
        return bool(later) and all(self._replaced(other, steps - 1) for other in later)

    def _sentence(self, origin: Origin, verdict: Verdict, reader: Node | None) -> str:
        made = counted(origin.made.stats)
        if verdict.kind in ("input", "weight"):
            return verdict.why
        if verdict.kind == UNINITIALISED:
            used = "it was returned" if reader is None else f"{reader.id} computes with it"
            return f"{verdict.why}: it holds {made}, and {used}"
        unmeasured = [value.name for value in origin.given if value.stats is None and value.name]
        hint = f" (weights were not measured: run with weights=True to see {unmeasured[0]})" if unmeasured else ""
        return f"{verdict.why}: {made} elements{hint}"


def _scales(node: Node) -> bool:
    """Does it only multiply or shift by numbers?"""
    operands = 0 if node.step is None else sum(isinstance(arg, Ref) for arg in node.step.args)
    return operands == 1 and node.op.strip("ir") in ("mul", "add", "sub", "truediv", "div", "neg", "multiply")


def _kind(bad: Sequence[Value]) -> Made:
    return NAN if any(value.stats.nan for value in bad if value.stats) else INF


def _weight(value: Value) -> Verdict:
    if masking(value):
        return Verdict(MEANT, "a mask")
    if value.name is None:  # no parameter or buffer: it may be new memory that is filled in a moment
        return Verdict(UNINITIALISED, "a tensor that was made before or elsewhere")
    return Verdict("weight", f"the weight {value.name} has {counted(value.stats)} before it is used")


def _name(path: str, trace: TraceData) -> str:
    return path or trace.model


def _shown(node: Node, given: tuple[Value, ...]) -> tuple[Value, ...]:
    return () if node.kind in ("get_attr", "placeholder") else given
