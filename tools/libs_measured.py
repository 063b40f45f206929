"""What came out for one model of another library: plain numbers and texts, which go through JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Measured:
    """What came out for one model."""

    name: str
    seconds: float = 0.0
    stopped: str | None = None  # the model itself cannot be made or run here
    failed: str | None = None  # we raised, took too long or too much memory
    output: str | None = None  # how the user's result differs from that of the plain run
    tensors: int = 0
    tensors_wrong: list[str] = field(default_factory=list)  # recorded tensors that the plain run did not have
    calls: int = 0
    verified: int = 0
    ops: int = 0
    ops_verified: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # status, type and reason → calls
    reasons_ops: dict[str, int] = field(default_factory=dict)  # the same → operations in them
    own: int = 0  # graphs whose call.fx was asked for the inputs they were made with
    own_refused: list[str] = field(default_factory=list)
    own_does_more: int = 0  # graphs that are refused because the body does more than any graph: it changes attributes
    batch: int = 0  # graphs whose call.fx was asked for another batch size
    batch_accepted: int = 0
    batch_refused: dict[str, int] = field(default_factory=dict)
    batch_not_asked: str | None = None  # why there is no other batch
    audited: int = 0
    wrong: list[str] = field(default_factory=list)  # verified graphs that compute something else

    @property
    def library(self) -> str:
        return self.name.partition("/")[0]

    @property
    def tensors_equal(self) -> int:
        return self.tensors - len(self.tensors_wrong)

    def problems(self) -> list[str]:
        """What must not be."""
        told = [f"{kind}: {text}" for kind, text in (("failed", self.failed), ("output", self.output)) if text]
        told += [f"a wrong graph: {text}" for text in self.wrong]
        told += [f"another tensor is recorded: {text}" for text in self.tensors_wrong]
        return told + [f"refuses its own inputs: {text}" for text in dict.fromkeys(self.own_refused)]

    def verdict(self) -> str:
        """A few words for the line of a model."""
        if self.stopped is not None:
            return f"cannot run here: {self.stopped[:80]}"
        words = [f"{self.verified} of {self.calls} calls, {self.ops_verified} of {self.ops} operations verified"]
        if self.batch_accepted < self.batch:
            words.append(f"{self.batch - self.batch_accepted} of {self.batch} refuse another batch")
        return "; ".join(["PROBLEMS"] * bool(self.problems()) + words)
