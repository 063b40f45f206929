"""JSON of any depth: Python's own ``json`` while its recursion suffices, else read and written without recursion.

``json`` recurses in C once per level, and the limit differs between versions of Python.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

PairsHook = Callable[[list[tuple[str, Any]]], Any]

_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_quoted = json.encoder.encode_basestring_ascii
_REFUSED = "NaN and infinities are no JSON"


def _refuse(text: str) -> float:
    raise json.JSONDecodeError(f"{_REFUSED}: {text}", text, 0)


_decoder = json.JSONDecoder(parse_constant=_refuse)
_space = re.compile(r"[ \t\n\r]*").match
_CLOSES = {"[": "]", "{": "}"}
_MOST_LEVELS = 1_000_000  # no model nests deeper; a file of nothing but brackets would fill the memory with lists


def _one_line() -> Callable[[Any], str]:
    """Return the encoder of ``json`` in C, made once: ``JSONEncoder.encode`` makes one for every text."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    in_pieces = make(None, _encoder.default, _quoted, None, ":", ",", False, False, False)
    return lambda content: "".join(in_pieces(content, 0))


_encode = _one_line()


# Writing -----------------------------------------------------------------------------------------
# ``json.dump(…, indent=2)`` encodes piece by piece in Python: writing the tree files of tiny GPT-2 and of 1,000 calls
# with it takes 12 to 24 % of a traced and saved run; ``write_indented`` takes 2 to 8 percentage points less.


def dumps(content: Any) -> str:
    """Return JSON in one line without spaces. Raises ``ValueError`` for NaN and infinities."""
    try:
        return _encode(content)
    except RecursionError:
        pieces: list[str] = []
        with contextlib.suppress(RecursionError):
            return _encoder.encode(content)  # says so where something is inside itself
        write_indented(content, pieces.append, newline="", step="", colon=":", encode=_encode)
        return "".join(pieces)


def write_indented(
    content: Any,
    write: Callable[[str], object],
    *,
    newline: str = "\n",
    step: str = "  ",
    colon: str = ": ",
    encode: Callable[[Any], str] = json.dumps,
) -> None:
    """Pass the text of ``json.dump(content, file, indent=2)`` to ``write`` in pieces.

    A list of strings (the printed lines of a tensor) is written as soon as it is complete, so that the lines of all
    tensors are never in memory at once. ``newline``, ``step`` and ``colon`` change the layout. ``encode`` gives the
    JSON of numbers, ``None`` and empty containers.
    """
    pieces: list[str] = []
    add = pieces.append
    outer: list[tuple[Iterator[Any], bool, str, str]] = []  # open containers except the innermost
    items: Iterator[Any] = iter((content,))
    named, line, close, before = False, newline, "", ""  # the innermost container: has it keys, its line break, its end
    while True:
        for item in items:
            if named:
                key, item = item
                before += f"{_quoted(key if type(key) is str else json_key(key))}{colon}"
            if type(item) is str or isinstance(item, str):
                add(before + _quoted(item))
            elif isinstance(item, dict) and item:
                add(before + "{")
                outer.append((items, named, line, close))
                items, named, close = iter(item.items()), True, line + "}"
                line = before = line + step
                break
            elif isinstance(item, (list, tuple)) and item:
                each = list(item)
                inner = line + step
                if set(map(type, each)) == {str}:
                    add(f"{before}[{inner}{_quoted_each(each, inner)}{line}]")
                    write("".join(pieces))
                    pieces.clear()
                else:
                    add(before + "[")
                    outer.append((items, named, line, close))
                    items, named, close = iter(each), False, line + "]"
                    line = before = inner
                    break
            else:
                add(before + encode(item))
            before = "," + line
        else:
            add(close)
            if not outer:
                break
            items, named, line, close = outer.pop()
            before = "," + line
    write("".join(pieces))


def _quoted_each(items: list[str], line: str) -> str:
    """Return texts in quotation marks with ``,`` and ``line`` between them.

    They are encoded as one text, which is faster, if nothing but the line breaks between them needs an escape.
    """
    whole = _quoted("\n".join(items))
    if whole.count("\\") == len(items) - 1 == whole.count("\\n"):
        return whole.replace("\\n", f'",{line}"')
    return f",{line}".join(map(_quoted, items))


def json_key(key: Any) -> str:
    """Return the text that ``json`` writes for a key."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return int.__repr__(key) if isinstance(key, int) else json.dumps(key)


# Reading -----------------------------------------------------------------------------------------


def loads(text: str, object_pairs_hook: PairsHook | None = None) -> Any:
    """Return the content, as ``json.loads`` does. Raises ``json.JSONDecodeError`` (a ``ValueError``) for bad JSON."""
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook, parse_constant=_refuse)
    except RecursionError:
        return _loads_deep(text, object_pairs_hook or dict)


def _loads_deep(text: str, pairs: PairsHook) -> Any:
    opened: list[tuple[str, list[Any], list[str]]] = []  # of each open container: its closing bracket, items, keys
    at = _skip_space(text, 0)
    while True:
        begins = text[at : at + 1]
        if begins in _CLOSES:
            at = _skip_space(text, at + 1)
            if text[at : at + 1] != _CLOSES[begins]:
                if len(opened) == _MOST_LEVELS:
                    raise json.JSONDecodeError(f"Nested more than {_MOST_LEVELS:,} levels deep", text, at)
                opened.append((_CLOSES[begins], [], []))
                at = _read_key(text, at, opened[-1])
                continue
            content: Any = pairs([]) if begins == "{" else []
            at += 1
        else:
            content, at = _decoder.raw_decode(text, at)
        while opened:
            closes, items, keys = opened[-1]
            items.append(content)
            at = _skip_space(text, at)
            follows = text[at : at + 1]
            if follows == ",":
                at = _read_key(text, _skip_space(text, at + 1), opened[-1])
                break
            if follows != closes:
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            content = pairs(list(zip(keys, items))) if closes == "}" else items
            opened.pop()
            at += 1
        else:
            at = _skip_space(text, at)
            if at != len(text):
                raise json.JSONDecodeError("Extra data", text, at)
            return content


def _read_key(text: str, at: int, container: tuple[str, list[Any], list[str]]) -> int:
    """Read the key of the next item if the container has keys; return the position of the item."""
    closes, _, keys = container
    if closes == "]":
        return at
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    key, at = _decoder.raw_decode(text, at)
    keys.append(key)
    at = _skip_space(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return _skip_space(text, at + 1)


def _skip_space(text: str, at: int) -> int:
    match = _space(text, at)
    assert match is not None  # the empty text matches, too
    return match.end()
