"""Let the modules of a room tell which of their blocks run: a part of ``mutate.py`` that started processes import, too.

A block is what runs as a whole: a function without its docstring, a branch, the body of a loop.
"""

from __future__ import annotations

import ast
import builtins
import os
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType


def blocks_of(tree: ast.AST, inside: bool = False) -> Iterator[list[ast.stmt]]:
    """Yield the statements of each function, branch and loop inside functions, without docstrings."""
    for name, inner in ast.iter_fields(tree):
        function = isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)) and name == "body"
        within = inside or function
        block = isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt)
        if within and block and not isinstance(tree, ast.ClassDef):
            if function and ast.get_docstring(tree) is not None:
                if len(inner) > 1:
                    rest = inner[1:]
                    yield rest
                    inner[1:] = rest
            else:
                yield inner
        for each in inner if isinstance(inner, list) else [inner]:
            if isinstance(each, ast.AST):
                yield from blocks_of(each, within)


def block_name(path: str, block: list[ast.stmt]) -> str:
    """Return the name of a block: where it begins."""
    return f"{path}:{block[0].lineno}:{block[0].col_offset}"


def mark(package: str, room: str, note: str, blocks: set[str] | None = None) -> None:
    """Let modules of a room, as they are imported from now on, tell which of their blocks run.

    They add the names to ``blocks``, and where there are none, or in a fork, write them to the file ``note``.
    """
    folder = f"{package}/{room}/"
    written: set[str] = set()

    def write(name: str) -> None:
        if name not in written:
            written.add(name)
            with Path(note).open("a") as file:
                file.write(f"{name}\n")

    def into_the_file() -> None:
        builtins._fxdebug_block = write  # type: ignore[attr-defined]

    builtins._fxdebug_block = write if blocks is None else blocks.add  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=into_the_file)
    compiled = SourceFileLoader.source_to_code

    def marked(self: SourceFileLoader, data: bytes, path: str, *, _optimize: int = -1) -> CodeType:
        if not path.startswith(folder):
            return compiled(self, data, path, _optimize=_optimize)
        tree = ast.parse(data)
        name = Path(path).relative_to(package).as_posix()
        for block in blocks_of(tree):
            first = ast.parse(f"_fxdebug_block({block_name(name, block)!r})").body[0]
            for node in ast.walk(first):
                ast.copy_location(node, block[0])
            block.insert(0, first)
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    SourceFileLoader.source_to_code = marked  # type: ignore[method-assign, assignment]
