"""What the tools share: many entries in a few processes, the way of recording, and text between the marks of a page."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["each", "put_between", "way_of_recording"]

PER_PROCESS = 25  # entries: then a fresh process takes over, so that memory stays bounded

Found = TypeVar("Found")


def each(
    one: Callable[[Any], Found],
    names: Sequence[Any],
    jobs: int,
    prepare: Callable[..., None],
    arguments: tuple[Any, ...] = (),
) -> Iterator[Found]:
    """``one`` of every name, in order, in processes that ``prepare`` has set up; in this one where there is one job."""
    if jobs < 2 or len(names) < 2:
        yield from map(one, names)
        return
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(min(jobs, len(names)), prepare, arguments, maxtasksperchild=PER_PROCESS) as pool:
        yield from pool.imap(one, names)


def way_of_recording() -> str:
    """Say whether runs are recorded with the native core; ``FXDEBUG_NATIVE=0`` has Python do it alone."""
    import torch

    from fxdebug.native import core

    found = core.loaded()
    if found.module is None:
        return f"recorded without the native core: {found.why}"
    return f"recorded with the native core, built for torch {torch.__version__}"


def put_between(path: Path, mark: str, text: str) -> None:
    """Put ``text`` between ``<!-- mark -->`` and ``<!-- /mark -->`` of a Markdown file."""
    marked = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    found = path.read_text(encoding="utf-8")
    assert marked.search(found), f"{path} has no place for the {mark}"
    path.write_text(marked.sub(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", found), encoding="utf-8")
