"""Operations of a recorded graph as lines of Python that need torch alone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fxdebug.data.graphs import Operand, Ref, arguments_text, text_of
from fxdebug.data.values import Group, Thing, rebuilt
from fxdebug.errors import UsageError
from fxdebug.features.repro.region import Line
from fxdebug.repair.rerun.torch_functions import head_of, public_function

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "matmul": "@", "floordiv": "//", "mod": "%",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and_": "&", "or_": "|", "xor": "^",
}  # fmt: skip
_OF_TENSORS = ("add", "sub", "mul", "div", "matmul")  # methods that have a sign
_IN_PLACE = {"iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_"}
_PREFIX = {"neg": "-", "invert": "~"}
# their arguments are sizes, dimensions or places: names would say nothing, and some take any number of them
_UNNAMED = frozenset(
    "view reshape expand repeat permute transpose swapaxes movedim size to type squeeze unsqueeze flatten unflatten "
    "t chunk split cat stack einsum arange zeros ones full getitem roll new_zeros new_ones expand_as "
    "add add_ sub sub_ mul mul_ div div_ pow eq ne lt le gt ge matmul".split()
)


def line_text(line: Line) -> str:
    """Return an operation as a line of Python (``x[…] = y`` as two), with the names that its schema has for constants.

    Raises ``UsageError`` for an operation that is no call of torch.

    >>> from fxdebug.data.graphs import Op
    >>> op = Op("gelu", "call_function", "gelu", "torch._C._nn.gelu", (Ref("x"),), {"approximate": "tanh"})
    >>> line_text(Line("gelu", op, None, ""))
    "gelu = F.gelu(x, approximate='tanh')"
    """
    op = line.op
    # the tensors of the file are on the CPU
    kwargs = {name: arg for name, arg in op.kwargs.items() if not name.startswith("_") and name != "device"}
    if op.target.startswith("_operator.") or (op.kind == "call_method" and op.target in _OF_TENSORS):
        text = _with_sign(line.name, op.target.rpartition(".")[2], [_plain(arg, line) for arg in op.args], kwargs)
        if text is not None:
            return text
    if op.kind == "call_method":
        head, name, function = "", op.target, getattr(torch.Tensor, op.target, None)
    else:
        head = _head(line)
        name, function = op.op, public_function(head)
    given, named = _named(name, function, op.args, kwargs)
    args, kwargs = [_plain(arg, line) for arg in given], {key: _plain(arg, line) for key, arg in named.items()}
    if op.kind == "call_method":
        return f"{line.name} = {_operand(args[0])}.{op.target}({arguments_text(args[1:], kwargs)})"
    return f"{line.name} = {head}({arguments_text(args, kwargs)})"


def _with_sign(name: str, op: str, args: Sequence[Operand], kwargs: Mapping[str, Operand]) -> str | None:
    """Return an operation that Python has a sign for; ``None`` for any other."""
    texts = [_operand(arg) for arg in args]
    if kwargs:
        return None
    if op == "getitem":
        return f"{name} = {texts[0]}[{_index(args[1])}]"
    if op == "setitem":
        return f"{name} = {texts[0]}.clone()\n{name}[{_index(args[1])}] = {texts[2]}"
    if op in _PREFIX and len(args) == 1:
        return f"{name} = {_PREFIX[op]}{texts[0]}"
    if op in _IN_PLACE:
        return f"{name} = {texts[0]}.{_IN_PLACE[op]}({texts[1]})"
    return f"{name} = {texts[0]} {_INFIX[op]} {texts[1]}" if op in _INFIX and len(args) == 2 else None


def _index(operand: Operand) -> str:
    text = text_of(operand)
    if text.startswith("(") and text.endswith(",)"):
        return text[1:-2]
    return text[1:-1] if isinstance(operand, Group) and operand.type == "tuple" else text


def _operand(operand: Operand) -> str:
    text = text_of(operand)
    return f"({text})" if text.startswith("-") else text


def _head(line: Line) -> str:
    """Return the public name of a function of torch."""
    target = line.op.target
    head = head_of(target)
    if head is None or public_function(head) is None:
        raise UsageError(
            f"no script can be written: {line.node} runs {target}, which is no call of torch: only operations of torch "
            "can be shown without the code that defines them"
        )
    return head


def _named(
    name: str, function: Any, args: tuple[Operand, ...], kwargs: Mapping[str, Operand]
) -> tuple[tuple[Operand, ...], dict[str, Operand]]:
    """Return arguments with constants by name, as the signature or the schema has them, without those by default."""
    if name in _UNNAMED or function is None:
        return args, dict(kwargs)
    known = _parameters(name, function, args, kwargs)
    if known is None:
        return args, dict(kwargs)
    names = list(known)
    first = next((at for at, arg in enumerate(args) if at and not _has_refs(arg)), len(args))
    if first < len(args) and not all(n.isidentifier() for n in names[: len(args)]):
        return args, dict(kwargs)
    named = dict(zip(names[first:], args[first:])) | dict(kwargs)
    return args[:first], {key: arg for key, arg in named.items() if not _is_silent(key, arg, known.get(key, _NONE))}


_NONE = object()


def _is_silent(name: str, operand: Operand, default: object) -> bool:
    """Is an argument its default, so that it may be left out? Numbers such as an epsilon and words are always shown."""
    plain = operand.items if isinstance(operand, Group) else operand
    is_shown = isinstance(plain, (float, str)) and name not in ("norm_type", "momentum")
    return type(plain) is type(default) and plain == default and not is_shown


def _parameters(
    name: str, function: Any, args: Sequence[Operand], kwargs: Mapping[str, Operand]
) -> dict[str, object] | None:
    """Return the parameters of a function of torch with their defaults, which take so many arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return _of_schema(name, args, kwargs)
    if any(p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) for p in parameters):
        return _of_schema(name, args, kwargs)
    return {p.name: _NONE if p.default is p.empty else p.default for p in parameters}


def _of_schema(name: str, args: Sequence[Operand], kwargs: Mapping[str, Operand]) -> dict[str, object] | None:
    """Return the arguments of the first overload that takes these; ``None`` where none does."""
    packet = getattr(torch.ops.aten, name, None)
    for overload in () if packet is None else packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        positional = [x for x in arguments if not x.kwarg_only]
        names = {x.name for x in arguments}
        if len(positional) < len(args) or not kwargs.keys() <= names or "out" in names:
            continue
        if all(_fits(arg, str(x.type)) for arg, x in zip(args, positional)):
            return {x.name: x.default_value if x.has_default_value() else _NONE for x in arguments}
    return None


def _fits(operand: Operand, kind: str) -> bool:
    """May an operand be given for an argument of this type?"""
    if isinstance(operand, Ref):
        return "Tensor" in kind
    if operand is None:
        return kind.startswith("Optional")
    words = {bool: "bool", int: "int", float: "float", str: "str"}
    word = next((text for type, text in words.items() if isinstance(operand, type)), None)
    if word is not None:
        return word in kind.lower() or (word in ("int", "float") and "number" in kind)
    return isinstance(operand, Group) == ("List" in kind)


def _has_refs(operand: Operand) -> bool:
    if isinstance(operand, Group):
        return any(_has_refs(item) for item in operand.items)
    return isinstance(operand, Ref)


def _plain(operand: Operand, line: Line) -> Operand:
    """Return an operand that reads as Python: numbers that are not finite, dtypes and devices by their names."""

    def group(one: Group, items: tuple[Any, ...]) -> Any:
        if one.type == "slice":
            return replace(one, items=items, text=None)
        if one.kind != "sequence":
            raise _unknown(one.type, line)
        if one.type != "list" and len(items) == 1:  # text_of writes a tuple of one without its comma
            return Ref(f"({text_of(items[0])},)")
        return replace(one, type="list" if one.type == "list" else "tuple", items=items, text=None)

    return rebuilt(operand, lambda leaf: _leaf(leaf, line), group)  # type: ignore[no-any-return, arg-type]


def _leaf(leaf: Any, line: Line) -> Operand:
    if isinstance(leaf, float) and not math.isfinite(leaf):
        sign = "-" if leaf < 0 else ""
        return Ref(f"{sign}torch.{'nan' if math.isnan(leaf) else 'inf'}")
    if isinstance(leaf, Thing) and leaf.type == "device":
        return "cpu"  # where the tensors of the file are
    if isinstance(leaf, Thing) and not (leaf.text == "..." or leaf.text.startswith("torch.") or leaf.type == "slice"):
        raise _unknown(leaf.type, line)
    return leaf  # type: ignore[no-any-return]


def _unknown(kind: str, line: Line) -> UsageError:
    return UsageError(
        f"no script can be written: {line.node} is given an object of class {kind}, of which a run keeps a text alone: "
        "compare inside the call that makes it"
    )
