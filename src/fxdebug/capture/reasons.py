"""Every reason that users read: why a call is ``recorded`` or ``opaque``, and why ``call.fx`` refuses.

A reason is a text with named parts. Other files fill in the parts (``reasons.RAISED(error="ValueError")``) and word no
reason themselves; a test sees to it. Where a line of the user's source is known, it follows in brackets.
``docs/what-a-status-means.md`` explains each reason, with an example that produces it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NewType, TypeAlias

from fxdebug.errors import with_article

ReasonText = NewType("ReasonText", str)
"""Text of a reason with its parts filled in. A type of its own, so that mypy refuses any text not made here."""

Where: TypeAlias = Literal["recorded", "opaque", "call.fx", "within", "assumption"]
"""Place where a user reads a reason: on a call with this status, in the error that ``call.fx`` raises, within the text
of another reason, or as an assumption of a verified graph (the answer follows)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason: its name, its text with ``{parts}`` to fill in, and where users read it. Names never change.

    >>> RAISED(error="ValueError")
    'it raised ValueError'
    >>> KIND_EXPECTED(kind="int", given="Tensor")
    'an int is expected where Tensor was passed'
    """

    key: str
    text: str
    where: Where

    def __call__(self, **parts: object) -> ReasonText:
        """Return the text with its parts filled in, each after the article that it takes."""
        if _AFTER_ARTICLE.search(self.text) is None:
            return ReasonText(self.text.format_map(parts))
        text = _AFTER_ARTICLE.sub(lambda found: f"{{{found[1]}_with_article}}", self.text)
        articles = {f"{name}_with_article": with_article(str(part)) for name, part in parts.items()}
        return ReasonText(text.format_map({**parts, **articles}))


_AFTER_ARTICLE = re.compile(r"\ba \{(\w+)\}")
NO_REASON = ReasonText("")  # on a call that is verified without any assumption


def assumptions(guards: list[str]) -> ReasonText:
    """Return the reason of a verified call: the first three guards of its graph."""
    return ReasonText("; ".join(guards[:3]) + ("; …" if len(guards) > 3 else ""))


# Opaque: nothing inside can be seen ---------------------------------------------------------------

FUSED = Reason("fused", "{module} runs fused or compiled code that watching would switch off", "opaque")
INSIDE_FUSED = Reason(
    "inside-fused", "inside {module}, which runs fused or compiled code that watching would switch off", "opaque"
)
COMPILED = Reason("compiled", "torch.compile runs it as one piece", "opaque")
RETURNED_UNSEEN = Reason(
    "returned-unseen", "it runs code that torch.compile made, and this torch does not show what that returned", "opaque"
)
INSIDE_COMPILED = Reason("inside-compiled", "inside code that torch.compile made", "opaque")
INSIDE_OPERATION = Reason("inside-operation", "inside {function}, which is one operation", "opaque")
MODE_TAKEN_OFF = Reason("mode-taken-off", "the program took off the mode that records operations", "opaque")
OTHER_METHOD = Reason(
    "other-method", "a method other than forward: what it does besides calling modules is not noted", "opaque"
)
NOTHING_NOTED = Reason("nothing-noted", "no operation of it was noted", "opaque")
NOT_EXPLAINED = Reason("not-explained", "it could not be explained ({error})", "opaque")


# Recorded: what ran cannot be followed by operations alone ----------------------------------------

CHANGED_UNSEEN = Reason("changed-unseen", "a tensor can be changed unseen through {function}", "recorded")
FORWARD_AD = Reason("forward-ad", "it computes inside a level of torch.autograd.forward_ad", "recorded")
GRADIENT_CHANGED = Reason(
    "gradient-changed",
    "a tensor's requires_grad changed outside the recorded operations, as in a custom autograd function",
    "recorded",
)
GRADIENT_CHANGED_BEFORE = Reason(
    "gradient-changed-before",
    "a tensor's requires_grad changed outside the recorded operations, as in a custom autograd function, "
    "before this line",
    "recorded",
)
TRACED_BY_TORCH = Reason("traced-by-torch", "torch itself traces operations in it", "recorded")
RUNS_COMPILED = Reason("runs-compiled", "it runs code that torch.compile made", "recorded")
RUNS_COMPILED_UNNOTED = Reason(
    "runs-compiled-unnoted", "it runs code that torch.compile made, which could not be noted", "recorded"
)
CALLERS_MODE = Reason("callers-mode", "it runs under a mode of its caller's ({modes})", "recorded")
RAISED = Reason("raised", "it raised {error}", "recorded")
CALL_RAISED = Reason("call-raised", "a call in it raised {error}", "recorded")
RAISED_LATE = Reason(
    "raised-late", "{what} raised {error} after it may have written to a tensor or drawn random numbers", "recorded"
)
RAISED_OTHERWISE = Reason("raised-otherwise", "run again, {what} does not raise {error} as it did", "recorded")
CHANGES_ARGUMENT = Reason("changes-argument", "it changes {container} that it was given", "recorded")
GIVEN_ITERATOR = Reason("given-iterator", "it was given an iterator, which would be used up", "recorded")
CONTAINER_TOO_LARGE = Reason("container-too-large", "it passes containers too large to be followed", "recorded")
CAPTURES_GRAPH = Reason("captures-graph", "it captures a CUDA graph", "recorded")
REPLAYS_GRAPH = Reason("replays-graph", "it replays a CUDA graph, whose operations are not seen", "recorded")
SWAPS_TENSORS = Reason("swaps-tensors", "it swaps tensors", "recorded")
STARTS_THREADS = Reason("starts-threads", "it starts threads", "recorded")
GOES_ON_STILL = Reason("goes-on-still", "the run goes on: its graph is checked when it is over", "recorded")
EDITED = Reason("edited", "what it computed was edited while it ran", "recorded")
OWN_THREAD = Reason("own-thread", "it ran in a thread of its own", "recorded")
GOES_ON = Reason("goes-on", "its forward goes on after it has returned", "recorded")
ARGUMENT_UNNOTED = Reason("argument-unnoted", "an argument could not be noted ({error})", "recorded")
OPERATION_UNNOTED = Reason("operation-unnoted", "an operation could not be noted ({error})", "recorded")
RESULT_UNNOTED = Reason("result-unnoted", "what it returned could not be noted ({error})", "recorded")
CALL_UNNOTED = Reason("call-unnoted", "it could not be noted ({error})", "recorded")


# Recorded: its Python must not run again, as it could not be undone -------------------------------

KEPT_ELSEWHERE = Reason("kept-elsewhere", "the program keeps a tensor of it in a place of its own", "recorded")
HOLDS_TOO_MUCH = Reason(
    "holds-too-much", "the program holds more objects than could be put back if it were run again", "recorded"
)
HELD_FAST = Reason(
    "held-fast",
    "the program holds a {kind} in a tuple, a set or the like, where it cannot be kept from being used twice",
    "recorded",
)
EARLIER_STATE_LOST = Reason("earlier-state-lost", "it was given an object whose earlier state was not kept", "recorded")
WRITES_FILE = Reason("writes-file", "it writes to a file", "recorded")
WRITES_FILE_BY = Reason("writes-file-by", "it writes to a file ({function})", "recorded")
CHANGES_FILES = Reason("changes-files", "it changes files ({function})", "recorded")
ASKS_FOR_INPUT = Reason("asks-for-input", "it asks for input", "recorded")
ACTS_ON_PROCESSES = Reason("acts-on-processes", "it acts on processes ({function})", "recorded")
STARTS_PROCESS = Reason("starts-process", "it starts a process", "recorded")
STARTS_THREAD = Reason("starts-thread", "it starts a thread", "recorded")
OPENS_CONNECTION = Reason("opens-connection", "it opens a connection", "recorded")
COMMUNICATES = Reason("communicates", "it communicates with other processes", "recorded")
PUTS_IN_QUEUE = Reason("puts-in-queue", "it puts something in a queue", "recorded")
TAKES_FROM_QUEUE = Reason("takes-from-queue", "it takes something from a queue", "recorded")
COLLECTOR_ON = Reason("collector-on", "it switches the garbage collector on", "recorded")
COLLECTOR_OFF = Reason("collector-off", "it switches the garbage collector off", "recorded")
RUNS_SCRIPTED = Reason("runs-scripted", "it runs a scripted function", "recorded")
USES_OPEN_FILE = Reason("uses-open-file", "it uses a file that the program holds open", "recorded")
USES_HELD = Reason("uses-held", "it uses a {kind} that the program holds", "recorded")
USES_LARGE_ARRAY = Reason("uses-large-array", "it uses a large array of numpy's that the program holds", "recorded")
USES_ITERATOR = Reason("uses-iterator", "it takes from an iterator that the program holds", "recorded")


# Recorded: it changes what a graph does not hold --------------------------------------------------

SETS_RANDOM_STATE = Reason(
    "sets-random-state", "its Python sets the state of torch's random numbers before an operation", "recorded"
)
SETS_RANDOM_STATE_LAST = Reason(
    "sets-random-state-last", "its Python sets the state of torch's random numbers after its last operation", "recorded"
)
CHANGES_TORCH_SETTING = Reason("changes-torch-setting", "it changes a setting of torch's ({name})", "recorded")
CHANGES_PROCESS_SETTING = Reason(
    "changes-process-setting", "it changes a setting of the process's ({name})", "recorded"
)
CHANGES_LOGGING = Reason("changes-logging", "it changes what is logged ({name})", "recorded")
CHANGES_SIGNALS = Reason("changes-signals", "it changes what happens on a signal ({name})", "recorded")
CHANGES_EXIT = Reason("changes-exit", "it changes what happens when the program ends ({name})", "recorded")
OWN_MODE = Reason("own-mode", "it computes under a mode of its own ({modes})", "recorded")


# Recorded: symbols cannot stand for its tensors ---------------------------------------------------

NO_SYMBOL_FOR_KIND = Reason(
    "no-symbol-for-kind", "it cannot be run again with a symbol for a {kind} tensor", "recorded"
)
NO_SYMBOL_FOR_SIZE = Reason(
    "no-symbol-for-size", "it cannot be run again with a symbol for a tensor whose size is not known", "recorded"
)
INSIDE_TRANSFORM = Reason(
    "inside-transform", "it computes inside torch.vmap or another transform of torch.func", "recorded"
)
ASKS_FOR = Reason("asks-for", "it asks a tensor for {attribute}, which a symbol does not have", "recorded")
BELOW_PYTHON = Reason(
    "below-python", "{operation} was called past torch's Python functions, as C or scripted code does", "recorded"
)
CHANGES_SHAPE = Reason("changes-shape", "{operation} changes the shape or dtype of a tensor in place", "recorded")
NESTS_TOO_DEEP = Reason("nests-too-deep", "the body nests too deep to run it again", "recorded")
RAISES_WITHOUT_DATA = Reason("raises-without-data", "run again without data, it raises {error}", "recorded")


# Recorded: run again with symbols, it does something else -----------------------------------------

ENDS_EARLY = Reason("ends-early", "run again, it ends before {operation} ({reached} of {count} operations)", "recorded")
RUNS_ON = Reason("runs-on", "run again, it goes on with {operation} after all that ran", "recorded")
CALLS_OTHER = Reason("calls-other", "run again, it calls {now} where {then} ran", "recorded")
RETURNS_OTHER = Reason("returns-other", "run again, it returns something else: {difference}", "recorded")
GATHERED_PAST = Reason(
    "gathered-past",
    "it returns tensors that were made inside its children and gathered past them, as by hooks there",
    "recorded",
)
TAKEN_PAST = Reason(
    "taken-past",
    "{operation} takes a tensor that was made inside {module} and not returned by it, as from an attribute",
    "recorded",
)
OTHER_CONTEXT = Reason("other-context", "the grad or autocast state differs at {operation}", "recorded")
OTHER_ARGUMENTS = Reason("other-arguments", "the arguments of {operation} differ", "recorded")
IN_OPERATION = Reason("in-operation", "{difference}, in {operation}", "recorded")
VERSION_LACKS = Reason("version-lacks", "it cannot be run again on this version: {missing}", "recorded")
GRAPH_DIFFERS = Reason("graph-differs", "its graph does not match what ran", "recorded")


# Differences, which are part of the text of one of the reasons above:
OTHER_TENSOR = Reason("other-tensor", "another tensor is passed", "within")
NEW_TENSOR = Reason(
    "new-tensor",
    "a tensor is passed that was not there when it ran: from outside, or made by no operation (from_numpy)",
    "within",
)
REPLACED_TENSOR = Reason("replaced-tensor", "since it ran, {name} was replaced by another tensor", "within")
OTHER_SIZE = Reason("other-size", "the size {now} stands where {then} was", "within")
OTHER_CONSTANT = Reason("other-constant", "the constant {now} stands where {then} was", "within")
OTHER_LENGTH = Reason("other-length", "a {kind} of other length or kind", "within")
OTHER_KEYS = Reason("other-keys", "a dict with other keys", "within")
OTHER_FIELDS = Reason("other-fields", "a {kind} with other fields", "within")
OTHER_KIND = Reason("other-kind", "a {kind} stands where {then} was", "within")
OTHER_OBJECT = Reason("other-object", "another {kind} is passed", "within")


# Verified: what was assumed. The answer follows, as in "bool() of a tensor is True" ---------------

VALUE_ASKED = Reason("value-asked", "{function}() of a tensor", "assumption")
GRADIENT_ASKED = Reason("gradient-asked", "requires_grad", "assumption")
EXCEPTION_CAUGHT = Reason("exception-caught", "the exception of {what}", "assumption")
SIZES_FIXED = Reason("sizes-fixed", "every size", "assumption")
ONE_NAME = Reason("one-name", "the maker of a tensor that operations return as they got it", "assumption")


# call.fx refuses: there is nothing to run ---------------------------------------------------------

ONLY_SHOWN = Reason("only-shown", "the graph of {call} is {status} and can only be shown", "call.fx")
ONLY_SHOWN_BECAUSE = Reason(
    "only-shown-because", "the graph of {call} is {status} and can only be shown: {reason}", "call.fx"
)
FITS_NO_MORE = Reason("fits-no-more", "the graph of {call} does not fit its module as it is now: {error}", "call.fx")
HOLDS_NOT = Reason("holds-not", "the graph of {call} does not hold here: {reason}", "call.fx")


# call.fx refuses: the body does more than its graph -----------------------------------------------

CHANGES_WHAT_LASTS = Reason(
    "changes-what-lasts",
    "its Python changes attributes or other objects that last{what}, and a graph does not",
    "call.fx",
)
CHANGES_AROUND_CALL = Reason(
    "changes-around-call",
    "its Python changes attributes or other objects around a call, and a graph does not",
    "call.fx",
)
MODE_AROUND_CALL = Reason(
    "mode-around-call",
    "its Python calls a module under a mode of its own ({modes}), and a graph does not",
    "call.fx",
)
SETTING_AROUND_CALL = Reason(
    "setting-around-call", "its Python changes a setting of torch's around a call, and a graph does not", "call.fx"
)
ENVIRONMENT_AROUND_CALL = Reason(
    "environment-around-call", "its Python changes the environment around a call, and a graph does not", "call.fx"
)
VARIABLE_AROUND_CALL = Reason(
    "variable-around-call",
    "its Python sets a context variable around a call ({name}), and a graph does not",
    "call.fx",
)
DRAWS_RANDOM_NUMBERS = Reason(
    "draws-random-numbers", "its Python draws random numbers of its own, and a graph does not", "call.fx"
)
WORKS_ON = Reason("works-on", "it works on {kinds}, whose state is not part of the graph", "call.fx")
HIDDEN_TENSOR = Reason("hidden-tensor", "{module} in it takes a tensor that is no argument of it", "call.fx")
RAN_UNDER_CALLERS_MODE = Reason("ran-under-callers-mode", "it ran under a mode of its caller's ({modes})", "call.fx")
RAN_OTHER_FORWARD = Reason("ran-other-forward", "{module} ran another forward than it has", "call.fx")


# call.fx refuses: the arguments are of another kind -----------------------------------------------

TENSOR_EXPECTED = Reason("tensor-expected", "a tensor is expected where {given} was passed", "call.fx")
SAME_TENSOR_EXPECTED = Reason(
    "same-tensor-expected", "one and the same tensor is expected in two places, and two were passed", "call.fx"
)
SAME_OBJECT_EXPECTED = Reason(
    "same-object-expected", "the {kind} that it was recorded with is expected, and another was passed", "call.fx"
)
KIND_EXPECTED = Reason("kind-expected", "a {kind} is expected where {given} was passed", "call.fx")
ITEMS_EXPECTED = Reason("items-expected", "{count} items are expected where {given} were passed", "call.fx")
KEYWORDS_EXPECTED = Reason("keywords-expected", "the keyword arguments are {names}", "call.fx")
FIELDS_EXPECTED = Reason("fields-expected", "a {kind} with the same fields is expected", "call.fx")
HOLDS_FOR = Reason("holds-for", "it holds for the argument {expected}, not for {given}", "call.fx")
MADE_WITH = Reason("made-with", "it was made with a {kind} where a {given} is given", "call.fx")


# call.fx refuses: for these inputs, the body does something else ----------------------------------

OTHER_ANSWER = Reason("other-answer", "the graph was made where {assumption}; here it is {answer}", "call.fx")
ARRANGED_OTHERWISE = Reason(
    "arranged-otherwise", "its arguments or results are arranged differently for these inputs", "call.fx"
)
RUNS_MORE = Reason("runs-more", "for these inputs, and as the model is now, it runs more operations{place}", "call.fx")
RUNS_FEWER = Reason(
    "runs-fewer", "for these inputs, and as the model is now, it runs fewer operations{place}", "call.fx"
)
RUNS_OTHER = Reason("runs-other", "for these inputs, and as the model is now, it does something else{place}", "call.fx")
OTHER_CALLS = Reason("other-calls", "it makes other calls than its graph", "call.fx")
OTHER_MODULE = Reason("other-module", "{module} is called where the graph calls {other}", "call.fx")
CALL_GIVEN_OTHER = Reason("call-given-other", "{module} in it is given something else than by the graph", "call.fx")
CALL_RUNS_OTHER = Reason("call-runs-other", "{module} in it does something else than alone{place}", "call.fx")
RAISES = Reason("raises", "an operation raises {error}", "call.fx")
NOT_CHECKED = Reason("not-checked", "it cannot be checked for these inputs ({error})", "call.fx")

REASONS = {reason.key: reason for reason in list(globals().values()) if isinstance(reason, Reason)}
"""All reasons, by key."""


class CannotTrace(Exception):
    """Raised to end the re-execution of a body, as it cannot be traced or does something else: ``reason`` says why."""

    def __init__(self, reason: ReasonText) -> None:
        super().__init__(reason)
        self.reason = reason
