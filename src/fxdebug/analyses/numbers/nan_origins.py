"""Find the producers of NaN and infinities in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fxdebug.analyses.numbers import dtype_limits
from fxdebug.analyses.numbers.lineage import (
    Lineage,
    NodeInput,
    NodeResults,
    Origin,
    is_operation,
    is_output,
    literals_of,
)
from fxdebug.analyses.numbers.lost_epsilons import lost_epsilon
from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding, Severity
from fxdebug.data.graphs import Ref
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.operators.categories import (
    CASTS,
    GIVES_MEMORY,
    REPLACES_NONFINITE,
    SOFTMAXES,
    UNFILLED,
    VIEWS,
    WRITES,
    is_from_ranks,
    is_probability,
    uses_only_shape,
)
from fxdebug.operators.masks import is_mask
from fxdebug.operators.nonfinite import has_nonfinite, nonfinite_counts
from fxdebug.operators.nonfinite_cause import (
    INF,
    INTENDED,
    MADE_ANEW,
    NAN,
    UNINITIALISED,
    CauseKind,
    NonFiniteCause,
    find_cause,
    leaves_memory_unwritten,
)
from fxdebug.query.network import Node

ADDS: Final = frozenset(["add", "radd", "iadd"])


class NonFiniteOrigins:
    """The operations, inputs and weights from which the NaN and infinities of a run come."""

    def __init__(self, trace: TraceData, results: NodeResults) -> None:
        self._trace = trace
        self._results = results
        self._net = results.net
        self._readers: dict[int, Node] = {}  # origin in uninitialised memory → the first node that computed with it
        unfilled = [node for node in self._net.nodes.values() if node.op in UNFILLED]
        self._unfilled = {value.storage for node in unfilled for value in node.values}  # uninitialised storages
        given = [node for node in self._net.nodes.values() if node.op in GIVES_MEMORY]
        taken = [one for node in given for one in results.inputs(node)]
        self._made_anew = {value.storage for value, _ in taken} - {None}  # perhaps, and unseen
        self._holders = {source for _, source in taken}  # nodes that gave the tensors: freed ones have no storage
        self._probabilities: set[int] = set()
        for node in self._net.nodes.values():
            if is_probability(node.op, (value for value, _ in results.inputs(node)), self._probabilities):
                self._probabilities.update(value.number for value in node.values)
        self._intended = 0  # origins that are no faults by themselves (intended, uninitialised), as bits
        self._causes: list[NonFiniteCause] = []
        self._nodes: list[Node] = []
        self.lineage = Lineage(results, has_nonfinite, self._find_cause)

    def findings(self) -> list[Finding]:
        """Return a finding for every origin that is a fault."""
        findings = [self._finding(origin) for origin in self.lineage.origins]
        return dtype_limits.group_findings([finding for finding in findings if finding is not None], calls_only=True)

    # Causes --------------------------------------------------------------------------------------

    def _find_cause(
        self, node: Node, inputs: list[NodeInput], nonfinite: list[Value], inherited: int
    ) -> NonFiniteCause | int | None:
        """Return the cause at a node, for :class:`Lineage`: see there for the arguments and the result."""
        cause = self._cause_at(node, inputs, nonfinite, inherited)
        if cause is not None and not inherited and self._has_no_producer(node, nonfinite[0]):
            earlier = self._earlier_causes(node)
            if earlier:
                return earlier
        if cause is not None:
            self._nodes.append(node)
            if cause.kind in (INTENDED, UNINITIALISED) or is_from_ranks(node.op, node.target):
                self._intended |= 1 << len(self._causes)
            self._causes.append(cause)
        elif inherited and is_operation(self._net, node) and node.op not in VIEWS | WRITES:
            for number, earlier_cause in enumerate(self._causes):
                if inherited >> number & 1 and self._counts_once_read(earlier_cause, self._nodes[number]):
                    self._readers.setdefault(number, node)
        return cause

    def _counts_once_read(self, cause: NonFiniteCause, node: Node) -> bool:
        """Is it no fault unless an operation computes with it: memory without content, of this rank or of another?"""
        return cause.kind == UNINITIALISED or is_from_ranks(node.op, node.target)

    def _cause_at(
        self, node: Node, inputs: list[NodeInput], nonfinite: list[Value], inherited: int
    ) -> NonFiniteCause | None:
        if node.kind == "get_attr":
            return None if inherited else _cause_in_weight(nonfinite[0])
        if node.kind in ("placeholder", "output"):
            return None if inherited else self._cause_outside(node, nonfinite)
        if node.kind == "call_module":
            if inherited or self._net.steps(node.call):
                return None if inherited else self._cause_outside(node, nonfinite)
            return self._cause_in_call(node, nonfinite)
        if inherited & ~self._intended:
            return None  # the operation only passes on a fault of an earlier one
        values = tuple(dict.fromkeys(value for value, _ in inputs))
        literals = literals_of(node)
        from_ranks = is_from_ranks(node.op, node.target)
        cause = find_cause(node.op, literals, values, nonfinite, self._probabilities, from_ranks=from_ranks)
        if (
            cause is not None
            and nonfinite[0].storage in self._unfilled
            and leaves_memory_unwritten(node.op, literals, values, from_ranks=from_ranks)
        ):
            return NonFiniteCause(UNINITIALISED, "the rest of its memory was never written to")
        if cause is not None and cause.kind == NAN and node.op in SOFTMAXES:
            made = [one for bit, one in enumerate(self._nodes) if inherited >> bit & 1 and one.op in CASTS | ADDS]
            if made:  # nobody wrote an infinity: the lowest numbers of a mask became one
                became = "does not fit" if made[0].op in CASTS else "is added to another one"
                why = f"{cause.why} (the lowest number of a mask {became} at {made[0].id}, and is -Inf from there on)"
                return replace(cause, why=why)
        if cause is not None and node.op in VIEWS and self._may_be_made_anew(node, nonfinite[0]):
            return NonFiniteCause(UNINITIALISED, MADE_ANEW)
        if cause is not None and cause.kind in (NAN, INF):
            return replace(cause, why=cause.why + lost_epsilon(self._results, node))
        return cause

    def _may_be_made_anew(self, node: Node, value: Value) -> bool:
        """May the memory that a view shows be new, because the program has asked for its storage?"""
        sources = (source for _, source in self._results.inputs(node))
        return value.storage in self._made_anew or not self._holders.isdisjoint(sources)

    def _has_no_producer(self, node: Node, value: Value) -> bool:
        """Is this a tensor without a known source: no operation's result, no parameter or buffer, no input?"""
        return node.kind == "get_attr" and value.name is None and not is_mask(value)

    def _earlier_causes(self, node: Node) -> int:
        """Return the earlier faults of the same call, as bits; code with hidden results (vmap) may pass them on."""
        bits = 0
        for number, (earlier_cause, at) in enumerate(zip(self._causes, self._nodes)):
            if earlier_cause.kind in (NAN, INF) and at.call is node.call:
                bits |= 1 << number
        return bits

    def _cause_outside(self, node: Node, nonfinite: list[Value]) -> NonFiniteCause | None:
        """Return the cause in a value that no recorded operation made: an input of the run, or unrecorded code."""
        if all(map(is_mask, nonfinite)):
            return NonFiniteCause(INTENDED, "a mask")
        outermost = node.call.parent is None or is_output(self._net.nodes[self._net.call_id(node.call)])
        if node.kind == "placeholder" and outermost:
            return NonFiniteCause("input", f"the input {node.target!r} has {nonfinite_counts(nonfinite[0].stats)}")
        parent = node.call.parent
        if parent is not None and not self._net.steps(parent):
            return NonFiniteCause(
                _nan_or_inf(nonfinite),
                f"the code of {_module_name(parent.path, self._trace)} made it between its calls",
            )
        return NonFiniteCause(_nan_or_inf(nonfinite), "it comes from code whose operations were not recorded")

    def _cause_in_call(self, node: Node, nonfinite: list[Value]) -> NonFiniteCause:
        call = node.call
        inputs = [value for value in call.inputs if has_nonfinite(value)]
        if inputs and not all(map(is_mask, inputs)):
            return self._cause_outside(node, inputs) or NonFiniteCause(_nan_or_inf(nonfinite), "it was given it")
        if not call.children:
            weight = self._nonfinite_weight_of(call.path)
            if weight is not None:
                return NonFiniteCause("weight", f"the weight {weight} is not finite")
        if all(map(is_mask, nonfinite)):
            return NonFiniteCause(INTENDED, "a mask")
        cause = find_cause(call.type, (), tuple(call.inputs), nonfinite)
        why = "its operations were not recorded" if cause is None or "finite numbers" in cause.why else cause.why
        return NonFiniteCause(
            _nan_or_inf(nonfinite),
            f"it was given finite numbers and returned {nonfinite_counts(nonfinite[0].stats)}; {why}",
        )

    def _nonfinite_weight_of(self, path: str) -> str | None:
        for parameter in self._trace.parameters:
            stats = parameter.before or parameter.stats
            inside = any(name.startswith(f"{path}." if path else "") for name in parameter.names)
            if inside and stats is not None and stats.finite < stats.count:
                return parameter.name
        return None

    # Findings ------------------------------------------------------------------------------------

    def _finding(self, origin: Origin) -> Finding | None:
        cause, node = origin.cause, origin.node
        assert isinstance(cause, NonFiniteCause)
        number = origin.bit.bit_length() - 1
        is_read = number in self._readers or origin.is_output
        if cause.kind == INTENDED or (self._counts_once_read(cause, node) and not is_read):
            return None
        return Finding(
            rule="input" if node.kind == "get_attr" and cause.kind == UNINITIALISED else cause.kind,
            severity=self._severity(origin, cause),
            path=node.path,
            call=self._net.call_id(node.call),
            op=node.target if node.kind in ("get_attr", "placeholder") else node.op,
            what=self._sentence(origin, cause, self._readers.get(number)),
            node=node.id,
            source=node.source or (self._readers[number].source if number in self._readers else None),
            value=origin.value,
            inputs=_shown_inputs(node, origin.inputs),
            reached=len(origin.reached),
            output=origin.is_output,
            absorbed=tuple(dict.fromkeys(other.id for other in origin.absorbed)),
        )

    def _severity(self, origin: Origin, cause: NonFiniteCause) -> Severity:
        if origin.is_output or self._trace.error is not None:
            return ERROR
        stats = origin.value.stats
        if cause.kind in ("input", "weight") and stats is not None and not stats.nan and not stats.posinf:
            return ADVICE  # an additive mask that contains a bias
        computed = [
            node for node in origin.reached if node.op not in VIEWS | WRITES | REPLACES_NONFINITE and not _scales(node)
        ]
        if origin.absorbed and not computed and all(self._replaced(node) for node in origin.absorbed):
            return ADVICE  # the model replaces every NaN or infinity: it expects them
        return WARNING

    def _replaced(self, node: Node, steps: int = 6) -> bool:
        """Is the NaN or infinity replaced by another number here, or a few steps after a cast to integers?

        T5 takes the logarithm of distances, rounds it, and chooses with ``where`` whether to use it.
        """
        if node.op in REPLACES_NONFINITE:
            return True
        whole = node.value is not None and node.value.dtype in ("int64", "int32", "int16", "int8", "uint8")
        if not whole or not steps:
            return False
        edges = [edge for edge in self._net.out_of.get(node.id, ()) if edge.kind == "data"]
        later = [self._net.nodes[edge.target] for edge in edges]
        later = [other for other in later if is_operation(self._net, other) and not uses_only_shape(other.op)]
        return bool(later) and all(self._replaced(other, steps - 1) for other in later)

    def _sentence(self, origin: Origin, cause: NonFiniteCause, reader: Node | None) -> str:
        counts = nonfinite_counts(origin.value.stats)
        if cause.kind in ("input", "weight"):
            return cause.why
        if cause.kind == UNINITIALISED:
            used = "it was returned" if reader is None else f"{reader.id} computes with it"
            return f"{cause.why}: it holds {counts}, and {used}"
        unmeasured = [value.name for value in origin.inputs if value.stats is None and value.name]
        hint = f" (weights were not measured: run with weights=True to see {unmeasured[0]})" if unmeasured else ""
        return f"{cause.why}: {counts} elements{hint}"


def _scales(node: Node) -> bool:
    """Does the operation only multiply by a number or add one?"""
    operands = 0 if node.step is None else sum(isinstance(arg, Ref) for arg in node.step.args)
    return operands == 1 and node.op.strip("ir") in ("mul", "add", "sub", "truediv", "div", "neg", "multiply")


def _nan_or_inf(nonfinite: Sequence[Value]) -> CauseKind:
    return NAN if any(value.stats.nan for value in nonfinite if value.stats) else INF


def _cause_in_weight(value: Value) -> NonFiniteCause:
    if is_mask(value):
        return NonFiniteCause(INTENDED, "a mask")
    if value.name is None:  # neither parameter nor buffer: it may be new memory that is about to be filled
        return NonFiniteCause(UNINITIALISED, "a tensor that was made before or elsewhere")
    return NonFiniteCause("weight", f"the weight {value.name} has {nonfinite_counts(value.stats)} before it is used")


def _module_name(path: str, trace: TraceData) -> str:
    return path or trace.model


def _shown_inputs(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    return () if node.kind in ("get_attr", "placeholder") else inputs
