"""The page's layout in an embedded JavaScript engine: ``web/src/picture.ts``, as ``make page`` built it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from fxdebug.errors import MissingExtra, UsageError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

ADDRESSES = 1 << 39  # bytes that V8 reserves, not memory: it ends the process where it does not get them


class LayoutEngine:
    """Lays out one run: ``begin`` folds it and chooses what is open, ``draw`` returns the SVG text."""

    def __init__(self) -> None:
        try:
            from py_mini_racer import MiniRacer
        except ImportError as error:
            raise MissingExtra(
                "drawing a run needs the extra draw: pip install 'fxdebug[draw]'; with layout='dot', Graphviz draws it"
            ) from error
        _require_addresses()
        self._engine = MiniRacer()
        code = resources.files("fxdebug.exports.page").joinpath("built", "picture.js").read_text(encoding="utf-8")
        self._engine.eval(code)

    def begin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the drawn boxes as ``Begun`` of picture.ts has them."""
        found: dict[str, Any] = json.loads(self._call("begin", request))
        return found

    def draw(self, looks: dict[str, Any]) -> str:
        """Return the picture of what was begun."""
        return self._call("draw", looks)

    def _call(self, function: str, argument: dict[str, Any]) -> str:
        # A JSON text inside of a JavaScript string: nothing in a name can end it.
        text = self._engine.call(f"fxdebugPicture.{function}", json.dumps(argument))
        assert isinstance(text, str)
        return text


def _require_addresses() -> None:
    """Raise ``UsageError`` where the engine would end the process, because its address space is limited."""
    most = -1 if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
    if resource is not None and most != resource.RLIM_INFINITY and most < ADDRESSES:
        raise UsageError(
            f"drawing a run reserves {ADDRESSES >> 30} GiB of addresses, and this process is limited to "
            f"{most >> 30} GiB: lift the limit with ulimit -v unlimited, or draw by Graphviz with layout='dot'"
        )
