"""Text that does harm where it leaves raw, put into one field of a file at a time, and what is wrong with an output."""

from __future__ import annotations

import copy
import html.parser
import json
import re
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.page_data import data_in

# Escapes of terminals in both forms, marks of direction, half a pair; ends of scripts, attributes and comments; code.
HARM = "\x1b[31m\x1b]0;t\x07\x9b1m\u202e\u2066\ud800\r</script><img src=x onerror=alert(1)>--><!--\"'`|$x_{$\\{{7*7}}"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FENCED = re.compile(r"^(`{3,})text\n.*?\n\1$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?:(?!\1).)*\1")


def fields(content: Any) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    """Yield the name of each field that holds texts, and its places: (container, key). Keys of objects are fields too.

    All rows of a table have the same fields, named after its columns.
    """
    found: dict[str, list[tuple[Any, Any]]] = {}
    pending: list[tuple[Any, str, list[str]]] = [(content, "", [])]
    while pending:
        node, name, columns = pending.pop()
        if isinstance(node, dict):
            inner = node["columns"] if set(node) == {"columns", "rows"} else []
            for key, item in node.items():
                if key not in ("columns",) or not inner:
                    pending.append((item, f"{name}.{key}", inner if key == "rows" else []))
                    if isinstance(item, str):
                        found.setdefault(f"{name}.{key}", []).append((node, key))
            if node and not inner:
                found.setdefault(f"{name} (key)", []).append((node, None))
        elif isinstance(node, list):
            for place, item in enumerate(node):
                each = f"{name}[{columns[place] if len(columns) == len(node) else ''}]"
                below = columns if columns and isinstance(item, list) and len(columns) != len(node) else []
                pending.append((item, name if below else each, below))
                if isinstance(item, str):
                    found.setdefault(each, []).append((node, place))
    yield from found.items()


def poisoned(content: Any, name: str) -> Any:
    """Return the content with harm in one field, at its first places."""
    changed = copy.deepcopy(content)
    for holder, key in dict(fields(changed))[name][:3]:
        if key is not None:
            holder[key] += HARM
            continue
        first = next(iter(holder))
        renamed = {f"{one}{HARM}" if one == first else one: item for one, item in holder.items()}
        holder.clear()
        holder.update(renamed)
    return changed


def wrong_with(name: str, text: str) -> list[str]:
    """Return what is wrong with an output, by its suffix."""
    if name.endswith(".color"):
        text = _COLOR.sub("", text)
    if name.endswith(".csv"):
        text = text.replace("\r\n", "\n")
    kept = "\n\t" if name.endswith((".dot", ".gv", ".tsv", ".page")) else "\n"
    wrong = sorted({f"raw {c!r}" for c in text if not c.isprintable() and c not in kept})
    if name.endswith((".svg", ".graphml", ".gexf")):
        wrong += _of_xml(text)
    elif name.endswith((".json", ".jsonl")):
        try:
            json.loads(text)
        except ValueError as error:
            wrong.append(f"no JSON: {error}")
    elif name.endswith((".html", ".page")):
        wrong += _of_html(text)
        if name.endswith(".page"):
            wrong += [f"in its data: {one!r}" for one in _texts(data_in(text)) if wrong_with("", one)]
    elif name.endswith(".md") and "<img" in _CODE.sub("", _FENCED.sub("", text)):
        wrong.append("HTML in Markdown")
    elif name.endswith(".mmd") and "<img" in text:
        wrong.append("HTML in Mermaid")
    return wrong


def _of_xml(text: str) -> list[str]:
    try:
        root = xml.etree.ElementTree.fromstring(text)
    except xml.etree.ElementTree.ParseError as error:
        return [f"no XML: {error}"]
    nodes = list(root.iter())
    harm = [node.tag for node in nodes if str(node.tag).rpartition("}")[2] in ("script", "img", "foreignObject")]
    return harm + [key for node in nodes for key in node.attrib if key.startswith("on")]


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script"
        if tag == "script":
            self.scripts.append("")
        self.wrong += [f"<{tag}>"] * (tag in ("img", "iframe", "object", "embed", "base"))
        self.wrong += [f"<{tag} {key}>" for key, _ in attributes if key.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self._inside and self.scripts:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = False


def _of_html(text: str) -> list[str]:
    tags = _Tags()
    tags.feed(text)
    if text.startswith("<!doctype") and "Content-Security-Policy" not in text and "/run/" not in text:  # has a header
        tags.wrong.append("no policy")
    return tags.wrong + ["a script of the file's"] * any("alert(1)" in one and "<img" in one for one in tags.scripts)


def _texts(node: Any) -> Iterator[str]:
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            pending += [*one.values(), *map(str, one)]
        elif isinstance(one, list):
            pending += one


def contents(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file that an exporter wrote; files of bytes are left out."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            try:
                yield file.name, file.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
