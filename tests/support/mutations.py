"""Saved runs that somebody has damaged: seeds, mutations of their files, and commands that read them."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

import fxdebug
from fxdebug import flops, fx_debug, model_addition_debugger_context, save_golden
from fxdebug.api import save_measures
from fxdebug.apps.cli.main import main
from fxdebug.errors import FxDebugError
from fxdebug.store.trace_json import journal
from support.stored import Small

SECRET = "the-content-of-a-file-outside"
MARKS = "\x1b[31m\x1b]0;title\x07\u202e\u2066\r"  # escapes of terminals, marks that reverse the order of letters


class Raising(nn.Module):
    """A model that raises inside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x)[:, :3])


# Seeds -------------------------------------------------------------------------------------------


def make_seeds(folder: Path) -> list[Path]:
    """Save runs of every kind; return what to load of each: folders and files."""
    torch.manual_seed(0)
    x, model = torch.arange(8.0).view(2, 4), Small()
    for values in ("stats", "tensors", "repr", "samples"):
        trace = fx_debug(model, x, {"scale": 0.5}, values=values, save=folder / values)  # type: ignore[arg-type]
        save_measures(trace.with_measures(flops(trace)))
    with contextlib.suppress(RuntimeError):
        fx_debug(Raising(), x, save=folder / "raised")
    trace = fx_debug(model, x, values="samples")
    for name in ("golden.json", "packed.json.gz"):
        (folder / name).mkdir()
        save_golden(trace, folder / name / name)
    with model_addition_debugger_context(model, debug_path=str(folder / "tree"), do_prune_layers=False):
        model(x)
    with model_addition_debugger_context(model, debug_path=str(folder / "tree_files"), use_repr=False):
        model(x)
    _leave_journal(folder / "killed", model, x)
    names = ["stats", "tensors", "repr", "samples", "raised", "tree", "tree_files", "killed"]
    return [*(folder / name for name in names), *(folder / name / name for name in ("golden.json", "packed.json.gz"))]


def _leave_journal(folder: Path, model: nn.Module, x: torch.Tensor) -> None:
    """Leave the folder that a run leaves when its process is killed."""
    close = journal.Journal.close
    kept: list[bytes] = []

    def closed(self: journal.Journal) -> None:
        close(self)
        kept.append(Path(self._file.name).read_bytes())

    journal.Journal.close = closed  # type: ignore[method-assign]
    try:
        fx_debug(model, x, save=folder / "whole")
    finally:
        journal.Journal.close = close  # type: ignore[method-assign]
    shutil.rmtree(folder / "whole")
    (folder / ".fxdebug-killed").mkdir()
    lines = kept[0].splitlines(keepends=True)
    (folder / ".fxdebug-killed" / journal.FILE).write_bytes(b"".join(lines[: len(lines) * 3 // 4]))


# Mutations ---------------------------------------------------------------------------------------

STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**6, -(10**9), 2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, 10**4000, 0.5,
    -0.0, 1e308, -1e300, 1e-320, "", "x", "0", "nan", "../../outside/secret", "/etc/passwd:1", "/dev/zero:1",
    "outside/pipe:1", f"a{MARKS}b", "\0", "\ud800", "x" * 100_000, "a." * 5_000, "((((((((((", "{0.__class__}", "%s%n",
    "torch.Size([1111111111111111111111111111111111111x", "1" * 30_000, [], [[]], [None], [0], ["x"], [1, 2, 3], {},
    {"value": 0}, {"value": -1}, {"value": 10**6}, {"value": "0"}, {"value": None}, {"sequence": "list", "items": []},
    {"sequence": 3, "items": 4}, {"mapping": "dict", "items": [1], "keys": []}, {"float": "nan"}, {"float": "1e5"},
    {"complex": [1.0]}, {"complex": [1.0, 2.0]}, {"bytes": "zz"}, {"thing": "T", "text": MARKS}, {"node": "x"},
    {"object": "O", "items": [{"value": 0}], "keys": [{"value": 0}], "text": None, "number": -5},
]  # fmt: skip


def mutate(target: Path, rng: Random, outside: Path) -> str:
    """Damage one file of a seed in one to three ways; return what was done."""
    files = sorted(p for p in ([target] if target.is_file() else target.rglob("*")) if p.is_file())
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        file = rng.choice([f for f in files if f.suffix != ".safetensors"] if rng.random() < 0.85 else files)
        change = rng.choice(_CHANGES)
        if file.is_symlink() or not file.is_file():  # an earlier change has made it a link or a pipe
            continue
        try:
            done.append(f"{change.__name__.strip('_')} {file.name}: {change(file, rng, outside) or ''}"[:160])
        except (OSError, ValueError, IndexError, zlib.error, RecursionError, MemoryError):  # it is no JSON any more
            continue
    return "; ".join(done)


def _read(file: Path) -> bytes:
    data = file.read_bytes() if file.is_file() and file.stat().st_size < 1 << 24 else b""
    return zlib.decompressobj(wbits=31).decompress(data, 1 << 24) if data[:2] == b"\x1f\x8b" else data


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)


def _flipped_bytes(file: Path, rng: Random, outside: Path) -> str:
    data = bytearray(file.read_bytes() if rng.random() < 0.5 else _read(file))
    places = [rng.randrange(len(data)) for _ in range(rng.choice((1, 3, 30)))] if data else []
    for place in places:
        data[place] = rng.randrange(256)
    file.write_bytes(bytes(data))
    return str(places[:3])


def _cut(file: Path, rng: Random, outside: Path) -> str:
    data = file.read_bytes()
    length = rng.randrange(len(data) + 1)
    file.write_bytes(data[:length])
    return str(length)


def _doubled(file: Path, rng: Random, outside: Path) -> str:
    data = _read(file)
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    _write(file, data[:end] + data[start:end] + data[end:])
    return f"{start}:{end}"


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    pending = [content]
    while pending:
        holder = pending.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], (dict, list)):
                pending.append(holder[key])


def _in_json(change: Callable[[Any, Any, Random], str], name: str) -> Callable[[Path, Random, Path], str]:
    def changed(file: Path, rng: Random, outside: Path) -> str:
        text = _read(file).decode()
        lines = text.splitlines() if file.suffix == ".jsonl" else [text]
        number = rng.randrange(len(lines))
        content = json.loads(lines[number])
        places = list(_places(content))
        holder, key = rng.choice(places)
        for _ in range(rng.randrange(3)):  # places in large tables would nearly always be chosen
            if rng.random() < 0.5 and isinstance(holder[key], (dict, list)) and holder[key]:
                inner = holder[key]
                holder, key = inner, rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        done = change(holder, key, rng)
        lines[number] = json.dumps(content)
        _write(file, "\n".join(lines).encode("utf-8", "surrogatepass"))
        return done

    changed.__name__ = name
    return changed


def _replace(holder: Any, key: Any, rng: Random) -> str:
    old, holder[key] = holder[key], rng.choice(STRANGE)
    return f"{key!r}: {old!r:.40} → {holder[key]!s:.40}"


def _replace_by_neighbour(holder: Any, key: Any, rng: Random) -> str:
    other = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]
    return f"{key!r} ↔ {other!r}"


def _nudge(holder: Any, key: Any, rng: Random) -> str:
    old = holder[key]
    if isinstance(old, bool) or not isinstance(old, (int, float)):
        holder[key] = f"{old}{MARKS}" if isinstance(old, str) else [old]
    else:
        holder[key] = rng.choice((old + 1, old - 1, -old, old * 1000, float(old), str(old), not old))
    return f"{key!r}: {old!r:.40} nudged"


def _remove(holder: Any, key: Any, rng: Random) -> str:
    del holder[key]
    return f"{key!r} removed"


def _nest(holder: Any, key: Any, rng: Random) -> str:
    levels = rng.choice((3, 300, 3_000))
    inner = holder[key]
    for _ in range(min(levels, 300)):
        inner = {"sequence": "list", "items": [inner]} if rng.random() < 0.9 else [inner]
    holder[key] = inner
    return f"{key!r} nested {levels}"


def _nested_deep(file: Path, rng: Random, outside: Path) -> str:
    data, (opens, closes) = _read(file), rng.choice([(b"[", b"]"), (b'{"sequence":"list","items":[', b"]}")])
    place = data.find(rng.choice((b"null", b'{"value"', b"[", b"1")), rng.randrange(max(1, len(data))))
    if place < 0:
        return "nowhere"
    _write(file, data[:place] + opens * 30_000 + b"1" + closes * 30_000 + b"," + data[place:])
    return str(place)


def _number(file: Path, rng: Random, outside: Path) -> str:
    data = _read(file)
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    place, text = (
        rng.choice(digits),
        rng.choice((b"1e999", b"NaN", b"-Infinity", b"9" * 5_000, b"-0", b"1e-999", b"0x1")),
    )
    _write(file, data[:place] + text + data[place + 1 :])
    return f"{place}: {text[:9]!r}"


def _other_file(file: Path, rng: Random, outside: Path) -> str:
    file.unlink()
    kind = rng.choice(
        ("secret", "itself", "loop", "zero", "pipe", "to pipe", "folder", "nothing", "hole", "bomb", "missing")
    )
    if kind == "secret":
        file.symlink_to(outside / "secret")
    elif kind == "itself":
        file.symlink_to(file.name)
    elif kind == "loop":
        file.symlink_to("loop")
        (file.parent / "loop").unlink(missing_ok=True)
        (file.parent / "loop").symlink_to(file.name)
    elif kind == "zero":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "to pipe":
        file.symlink_to(outside / "pipe")
    elif kind == "folder":
        file.mkdir()
    elif kind == "nothing":
        file.touch()
    elif kind == "hole":
        with file.open("wb") as whole:
            whole.write(b'{"format": "fxdebug-trace", "version": 1, "module_path": "')
            whole.truncate(1 << rng.choice((28, 33, 40)))
    elif kind == "bomb":
        file.write_bytes(_bomb(rng.choice((b"[", b" ", b"\0"))))
    return kind


_bombs: dict[bytes, bytes] = {}


def _bomb(byte: bytes) -> bytes:
    if byte not in _bombs:
        _bombs[byte] = gzip.compress(b'{"format": "fxdebug-trace", "x": ' + byte * (1 << 26)) * 4
    return _bombs[byte]


def _sources(file: Path, rng: Random, outside: Path) -> str:
    place = rng.choice(
        (f"{outside}/secret:1", f"{outside}/pipe:1", "/dev/zero:1", "/etc/passwd:1", "/proc/self/environ:1")
    )
    data = _read(file)
    for name in (b"stored.py", b"module.py", b"container.py", b"mutations.py"):
        while (at := data.find(name)) >= 0:
            start, end = data.rfind(b'"', 0, at), data.find(b'"', at)
            data = data[: start + 1] + place.encode() + data[end:]
    _write(file, data)
    return place


def _slow_patterns(file: Path, rng: Random, outside: Path) -> str:
    data = _read(file)
    text = rng.choice((b"torch.Size([" + b"1" * 60 + b"x", b"layer." * 2_000, b"1" * 50_000 + b"x", b"a" * 50_000))
    for old in rng.sample(
        (b"torch.Size([1, 4", b"torch.Size([2, 4", b"tensor(", b'"layer', b'"block.0', b"torch.float32"), 3
    ):
        data = data.replace(old, b'"' + text if old.startswith(b'"') else text)
    _write(file, data)
    return text[:30].decode()


def _marked(file: Path, rng: Random, outside: Path) -> str:
    data, marks = _read(file), json.dumps(MARKS)[1:-1].encode()
    for old in rng.sample(
        (b"layer", b"Linear", b"Small", b"logits", b"float32", b"stored.py", b"text", b"hidden", b"cpu"), 4
    ):
        data = data.replace(old, old + marks)
    _write(file, data)
    return "texts"


_CHANGES = [
    _flipped_bytes, _cut, _doubled, _nested_deep, _number, _other_file, _other_file, _sources, _slow_patterns, _marked,
    *[_in_json(_replace, "replaced")] * 8,
    *[_in_json(_nudge, "nudged")] * 4,
    *[_in_json(_replace_by_neighbour, "exchanged")] * 2,
    *[_in_json(_remove, "removed")] * 2,
    _in_json(_nest, "nested"),
]  # fmt: skip


# Commands ----------------------------------------------------------------------------------------


def commands(run: str, other: str, out: Path) -> list[list[str]]:
    """Return every command that reads a saved run."""
    return [
        ["show", run, "--all", "--width", "120"],
        ["find", run, "*", "--where", "absmax > 1 or nan > 0"],
        ["find", run, "--ops", "*", "--source", "*.py"],
        ["find", run, "--where", "flops > 1 or flops.self > 1FLOP", "--csv"],
        ["show", run, "--columns", "flops,params,kernel,source"],
        ["show", run, "--json"],
        ["measures", run],
        ["graph", run, "--color", "flops", "-o", str(out / "flops.dot")],
        ["check", run],
        ["check", run, "--json"],
        *[
            ["graph", run, "-o", str(out / f"graph{suffix}")]
            for suffix in (".dot", ".graphml", ".json", ".html", ".txt")
        ],
        ["compare", run, other],
        ["compare", other, run, "-o", str(out / "comparison.csv")],
        ["compare", run, run, "-o", str(out / "comparison.html"), "--all"],
    ]


def run_command(arguments: list[str]) -> tuple[int, str]:
    """Run a command; return its exit status and all that it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue() + err.getvalue()


def ask_in_python(run: Path) -> str:
    """Load a run and ask it for its tensors, its texts and its parts."""
    trace = fxdebug.load(run)
    texts = [repr(trace.root), str(trace), *(call.code for call in trace.calls), *map(repr, trace.values)]
    texts += [repr(call) for call in trace.calls] + [str(node) for node in trace.ops()[:50]] if trace.graphs else []
    for value in trace.values:
        with contextlib.suppress(FxDebugError):
            trace.tensor(value)
    return "\n".join(texts)


def complaints(printed: str) -> list[str]:
    """Return what is wrong with a text for the terminal: content from outside, control characters, a traceback."""
    wrong = [f"prints {mark!r}" for mark in {*MARKS} - {*"[31m]0;titleTITLE"} if mark in printed]
    if SECRET in printed or "root:x:0:0" in printed:
        wrong.append("prints a file from outside the folder")
    return wrong
