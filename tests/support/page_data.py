"""Reads the data of a page back, as web/src/payload.ts does: an unpacked head with lists in place of columns."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

_FORMATS = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "f32": "f", "f64": "d"}


def data_in(page: str | Path) -> dict[str, Any]:
    """Return the data of a page, given its text or its file."""
    text = page.read_text(encoding="utf-8") if isinstance(page, Path) else page
    found = re.findall(r'<script type="application/octet-stream" id="payload">([^<]*)</script>', text)
    assert len(found) == 1
    return unpacked(zlib.decompress(base64.b64decode(found[0])))


def unpacked(block: bytes) -> dict[str, Any]:
    """Return the head of a packed block with its columns as lists."""
    (size,) = struct.unpack_from("<I", block)
    start = (4 + size + 7) // 8 * 8

    def filled(node: Any) -> Any:
        if isinstance(node, list):
            return [filled(inner) for inner in node]
        if not isinstance(node, dict):
            return node
        if "column" in node and "at" in node:
            return _column(node, block[start + node["at"] :])
        return {key: filled(inner) for key, inner in node.items()}

    return filled(json.loads(block[4 : 4 + size]))


def _column(packed: dict[str, Any], data: bytes) -> list[float]:
    kind, n = _FORMATS[packed["column"]], packed["length"]
    width = struct.calcsize("<" + kind)
    if packed.get("planes"):
        planes = [data[p * n : (p + 1) * n] for p in range(width)]
        data = bytes(plane[i] for i in range(n) for plane in planes)
    numbers = list(struct.unpack_from(f"<{n}{kind}", data))
    if packed.get("delta"):
        for i in range(1, n):
            numbers[i] += numbers[i - 1]
    return numbers


class RunOfPage:
    """One run of a page, with its texts looked up."""

    def __init__(self, data: dict[str, Any], run: int = 0) -> None:
        self.data, self.texts = data["runs"][run], data["texts"]

    def text(self, position: float) -> str:
        return "" if position < 0 else self.texts[int(position)]

    def calls(self, column: str) -> list[str]:
        return [self.text(position) for position in self.data["calls"][column]]

    def body(self, index: int) -> dict[str, Any]:
        """Return a body with the names of its inputs and outputs, and its items as they are read."""
        all_ = self.data["bodies"]
        items = []
        for i in range(all_["firstItem"][index], all_["firstItem"][index + 1]):
            edges = range(all_["firstEdge"][i], all_["firstEdge"][i + 1])
            items.append(
                (
                    ("operation", "views", "structure", "call")[all_["kind"][i]],
                    self.text(all_["label"][i]),
                    self.text(all_["type"][i]),
                    self.text(all_["shape"][i]),
                    all_["body"][i],
                    [(all_["from"][e], all_["argument"][e], all_["output"][e]) for e in edges],
                )
            )
        inputs = range(all_["firstInput"][index], all_["firstInput"][index + 1])
        outputs = range(all_["firstOutput"][index], all_["firstOutput"][index + 1])
        return {
            "title": self.text(all_["title"][index]),
            "inputs": [(self.text(all_["inputName"][i]), self.text(all_["inputShape"][i])) for i in inputs],
            "items": items,
            "outputs": [
                (all_["outputFrom"][i], all_["outputOutput"][i], self.text(all_["outputName"][i])) for i in outputs
            ],
        }

    @property
    def root(self) -> dict[str, Any]:
        return self.body(self.data["bodies"]["root"])
