"""The standard nested tree: the JSON of transformers' ``model_addition_debugger_context``.

Text-equal to what the reference writes where it works, and made from a finished
:class:`~fxdebug.data.trace.TraceData`: the modules that were registered when the run began, the inputs of
every call, the outputs of calls without calls below them. A call that raised has ``error`` in
addition, which the reference has no place for.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Inputs, Item, Stats, Thing, Value

Node: TypeAlias = dict[str, Any]
Entry: TypeAlias = Callable[[Value, str], Node]  # (value, the reference's name for it) → its JSON

MEASURED = frozenset({"float16", "float32", "bfloat16"})  # the dtypes the reference has statistics for

_ADDRESS = re.compile(r"object at 0x[0-9A-Fa-f]+")
_LAYER = re.compile(r"(.*)\.(\d+)$")
_deep = threading.Lock()


def standard_tree(trace: TraceData, entry: Entry, *, prune: bool) -> Node:
    """The tree as nested dicts, ready for :func:`write_full` and :func:`write_summary`.

    ``entry`` makes the JSON of a tensor. ``prune`` removes middle layers as the reference does: of
    siblings whose path ends in a number and that have children of that number, the first and last stay.
    """
    nodes: dict[int, Node] = {}
    below: dict[int, list[Call]] = {}
    for call in trace.calls:
        if call.origin == "registered":
            nodes[call.index] = _node(trace, call, entry)
            if call.parent_index is not None and (above := _standing_on(trace, call)) is not None:
                below.setdefault(above, []).append(call)
    for index, calls in below.items():  # the reference lists calls as they end
        calls.sort(key=lambda call: (call.finished is None, call.finished or 0, call.index))
        nodes[index]["children"] = [nodes[call.index] for call in calls]
    root = {key: value for key, value in nodes[0].items() if value}
    if prune:
        _prune_layers(root)
    for node in _walk(root):
        if node.get("children"):
            node.pop("outputs", None)
    return root


def _standing_on(trace: TraceData, call: Call) -> int | None:
    """The registered call that was running when this one was made: what the reference hangs it under.

    ``None`` where none was: of such a call (a generator made it, outside any) the reference keeps nothing.
    """
    while True:
        index = call.invoked_in if call.invoked_in is not None else call.parent_index
        if index is None or index < 0:
            return None
        call = trace.calls[index]
        if call.origin == "registered":
            return index


def _node(trace: TraceData, call: Call, entry: Entry) -> Node:
    path = f"{trace.model}.{call.path}" if call.path else trace.model
    node: Node = {"module_path": path}
    if call.parent_index is None and call.method != "forward":
        return node  # stands for calls made outside the model's forward: nothing went in
    node["inputs"] = _inputs(call.inputs, entry, f"{path}_inputs", everything=call.parent_index is None)
    node["outputs"] = None
    if call.outputs is not None and (call.parent_index is None or not call.has_submodules):
        node["outputs"] = _json(call.outputs.item, entry, f"{path}_outputs")
    if call.error is not None:
        node["error"] = str(call.error)
    return node


def _inputs(inputs: Inputs, entry: Entry, path: str, everything: bool) -> Node:
    found: Node = {}
    if inputs.args or everything:
        found["args"] = [_json(arg, entry, f"{path}_args_{i}") for i, arg in enumerate(inputs.args)]
    if inputs.kwargs or everything:
        found["kwargs"] = {name: _json(arg, entry, f"{path}_kwargs_{name}") for name, arg in inputs.kwargs.items()}
    return found


def _json(item: Item, entry: Entry, path: str) -> Any:
    if isinstance(item, Value):
        return entry(item, path)
    if isinstance(item, Group) and item.kind == "sequence":
        return [_json(inner, entry, f"{path}_{i}") for i, inner in enumerate(item.items)]
    if isinstance(item, Group) and item.kind == "mapping":
        assert item.keys is not None
        made: Node = {}
        for key, inner in zip(item.keys, item.items):
            made[_free(key, made)] = _json(inner, entry, f"{path}_{_word(key)}")
        return made
    if isinstance(item, (Group, Thing)):
        return _ADDRESS.sub("object at 0xXXXXXXXX", item.text or "")
    return _ADDRESS.sub("object at 0xXXXXXXXX", repr(item))


def key_of(key: Any) -> Any:
    """A dict key as ``json.dump`` takes it; keys it does not know become their text."""
    if isinstance(key, Thing):
        return key.text
    return key if key is None or isinstance(key, (str, int, float)) else repr(key)


def _free(key: Any, taken: Node) -> Any:
    """The key in JSON; a number is appended to a text that stands for several keys."""
    name, number = key_of(key), 1
    while name in taken:
        number += 1
        name = f"{key_of(key)}-{number}"
    return name


def _word(key: Any) -> str:
    return key.text if isinstance(key, Thing) else str(key)


def _walk(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.get("children", ()))


def _prune_layers(root: Node) -> None:
    for node in _walk(root):
        children = node.get("children")
        if children:
            layers = [child for child in children if _is_layer(child)]
            dropped = {id(child) for child in layers[1:-1]} if len(layers) > 2 else set()
            node["children"] = [child for child in children if id(child) not in dropped]


def _is_layer(node: Node) -> bool:
    match = _LAYER.match(node["module_path"])
    if not match or not node.get("children"):
        return False
    return any(f".{match.group(2)}." in child["module_path"] for child in node["children"])


# Entries -----------------------------------------------------------------------------------------


def described(value: Value) -> Node:
    """Shape and dtype, as the reference writes them."""
    return {"shape": f"torch.Size({list(value.shape)})", "dtype": f"torch.{value.dtype}"}


def statistics(words: tuple[str, str, str, str] | None) -> Node:
    """Mean, std, min and max under the reference's keys."""
    return {} if words is None else dict(zip(("mean", "std", "min", "max"), words))


def words_of(value: Value, precision: int = 4, default_dtype: str = "float32") -> tuple[str, str, str, str] | None:
    """The four statistics as the reference would print them, from ours: NaN and Inf spread as torch spreads them."""
    stats = value.stats
    if value.dtype not in MEASURED or (stats is None and value.device != "meta"):
        return None
    suffix = "" if value.device == "cpu" else f", device='{value.device}'"
    suffix += ", size=()" if value.device == "meta" else ""
    if value.dtype != default_dtype:
        suffix += f", dtype=torch.{value.dtype}"
    if stats is None:
        text = f"tensor(...{suffix})"
        return text, text, text, text
    mean, std, low, high = (rounded(x, value.dtype) for x in spread(stats))
    return (
        _scalar(mean, precision, suffix), _scalar(std, precision, suffix),
        _scalar(low, precision, suffix), _scalar(high, precision, suffix),
    )  # fmt: skip


def spread(stats: Stats) -> tuple[float, float, float, float]:
    """Mean, std, min and max with NaN and Inf where torch has them."""
    nan = math.nan
    if stats.nan or not stats.count:
        return nan, nan, nan, nan
    low = -math.inf if stats.neginf else stats.min if stats.min is not None else math.inf
    high = math.inf if stats.posinf else stats.max if stats.max is not None else -math.inf
    if stats.posinf or stats.neginf:
        return (nan if stats.posinf and stats.neginf else low if stats.neginf else high), nan, low, high
    assert isinstance(stats.mean, float) and stats.std is not None
    return stats.mean, stats.std if stats.count > 1 else nan, low, high


def rounded(number: float, dtype: str) -> float:
    """The nearest number that ``dtype`` (float16, bfloat16 or float32) can hold."""
    if not math.isfinite(number):
        return number
    try:
        if dtype == "float16":
            return float(struct.unpack("e", struct.pack("e", number))[0])
        (bits,) = struct.unpack("I", struct.pack("f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    if dtype == "bfloat16":  # the upper half of a float32, rounded to even
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("f", struct.pack("I", bits))[0])


def _scalar(number: float, precision: int, suffix: str) -> str:
    """A zero-dimensional tensor as torch prints it in scientific mode."""
    if number and math.isfinite(number):
        return f"tensor({number:.{precision}e}{suffix})"
    return f"tensor({f'{number:.0f}.' if number == 0 else number}{suffix})"


# Writing -----------------------------------------------------------------------------------------


class Lines(list[str]):
    """The printed lines of one value, read when they are written out: never all in memory."""

    def __init__(self, read: Callable[[], list[str]]) -> None:
        super().__init__()
        self._read = read
        self._ready: list[str] | None = None

    def __bool__(self) -> bool:  # json asks this right before it goes through the lines
        self._ready = self._read()
        return bool(self._ready)

    def __iter__(self) -> Iterator[str]:
        lines, self._ready = self._ready, None
        return iter(self._read() if lines is None else lines)


def write_full(tree: Node, file: TextIO) -> None:
    """``…_FULL_TENSORS.json``."""
    _write(tree, file, short=False)


def write_summary(tree: Node, file: TextIO) -> None:
    """``…_SUMMARY.json``: the tree without any key ``value`` in inputs and outputs, as the reference has it."""
    _write(tree, file, short=True)


def _write(tree: Node, file: TextIO, short: bool) -> None:
    """What ``json.dump(tree, file, indent=2)`` writes, in a tenth of the time: that goes letter by letter in Python."""

    def anew() -> None:  # where it was too deep at first, part of it stands there
        file.seek(0)
        file.truncate()
        pieces = _Pieces(file)
        if short:
            _put_summary(tree, "\n", pieces)
        else:
            _put(tree, "\n", pieces, short=False)
        pieces.write()

    deeply(anew)


class _Pieces(list[str]):
    """Text on its way to a file: gathered, since handing over each word would take most of the time."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file

    def write(self) -> None:
        """Hand over what there is."""
        self._file.write("".join(self))
        self.clear()


_quoted = json.encoder.encode_basestring_ascii


def _put_summary(node: Node, line: str, pieces: _Pieces) -> None:
    inner, between = line + "  ", "{"
    for key, content in node.items():
        pieces.append(f"{between}{inner}{_quoted(key)}: ")
        between = ","
        if key == "children" and content:
            bracket, deeper = "[", inner + "  "
            for child in content:
                pieces.append(bracket + deeper)
                _put_summary(child, deeper, pieces)
                bracket = ","
            pieces.append(inner + "]")
        else:
            _put(content, inner, pieces, short=key in ("inputs", "outputs"))
    pieces.append(line + "}")


def _put(content: Any, line: str, pieces: _Pieces, short: bool) -> None:
    """Add something that begins in the line whose break and indentation is ``line``; ``short``: without values."""
    if isinstance(content, str):
        pieces.append(_quoted(content))
    elif isinstance(content, dict):
        if short:
            content = _without_value(content)
        inner, between = line + "  ", "{"
        for key, value in content.items():
            name = f"{between}{inner}{_quoted(key if type(key) is str else _as_json_key(key))}: "
            between = ","
            if type(value) is str:
                pieces.append(name + _quoted(value))
            else:
                pieces.append(name)
                _put(value, inner, pieces, short)
        pieces.append(line + "}" if content else "{}")
    elif isinstance(content, (list, tuple)) and content:
        inner, bracket = line + "  ", "["
        items = list(content)
        if set(map(type, items)) == {str}:
            pieces.append(f"[{inner}{_quoted_each(items, inner)}{line}]")
            if isinstance(content, Lines):
                pieces.write()
            return
        for item in items:
            pieces.append(bracket + inner)
            _put(item, inner, pieces, short)
            bracket = ","
        pieces.append(line + "]")
    else:
        pieces.append(json.dumps(content))


def _quoted_each(items: list[str], line: str) -> str:
    """Texts in quotation marks with ``,`` and ``line`` between them; as one text, where nothing else is escaped."""
    whole = _quoted("\n".join(items))
    if whole.count("\\") == len(items) - 1 == whole.count("\\n"):
        return whole.replace("\\n", f'",{line}"')
    return f",{line}".join(map(_quoted, items))


def _without_value(content: Node) -> Node:
    """A dict of inputs or outputs as the summary has it."""
    if set(map(type, content)) <= {str}:
        return {key: inner for key, inner in content.items() if key != "value"} if "value" in content else content
    kept: Node = {}  # keys that are one in JSON are one here: the reference read its JSON back
    for key, inner in content.items():
        text = _as_json_key(key)
        if text != "value":
            kept[text] = inner
    return kept


def _as_json_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return int.__repr__(key) if isinstance(key, int) else json.dumps(key)


def deeply(work: Callable[[], Any]) -> Any:
    """Run something recursive on data nested deeper than Python's limit allows here: on a thread with a large stack."""
    try:
        return work()
    except RecursionError:
        pass
    result: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 200_000))
        try:
            result.append(work())
        except BaseException as error:
            raised.append(error)
        finally:
            sys.setrecursionlimit(limit)  # here: the thread that waits may be deeper than it was allowed to be

    with _deep:  # the limit and the stack's size are the process's
        stack = threading.stack_size(512 * 1024 * 1024)
        try:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        finally:
            threading.stack_size(stack)
    if raised:
        raise raised[0]
    return result[0]
