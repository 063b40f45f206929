"""Run the pages and the examples: every Python block, every output that is shown, every command that is named.

A Python or console block that prints is followed by a block with its output. A Python block that begins with a file
name in a comment (``# model.py``) is also written to this file. A page makes the pictures that it shows.
``--update-golden`` writes the present output into the pages, and the pictures beside them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from PIL import Image

from fxdebug.api.trace import Trace
from fxdebug.apps.cli import main
from fxdebug.data.calls import Call, Failure, Note, Parameter
from fxdebug.data.graphs import CallGraph, Graph, Guard, Op, Ref, RunGraphs
from fxdebug.data.values import Group, Inputs, Outputs, Sharding, Stats, Thing, Value
from support.printed import same_but_rounding

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = {  # what stands in their shell blocks is typed, too; others name runs and checkpoints of the reader's
    f"{name}.md"
    for name in "README activations attention comparing cost-of-a-model gradients memory page profile training".split()
}
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "demo.py")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\b\d+(\.\d+)? (ms|s)\b|\bulp [\d.e+]+")  # the last bits are the processor's
_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)([^)]+\.(?:png|svg))\)")
PROGRAMS = tuple(  # pages of other programs
    f"{name}.png" for name in "tensorboard projector netron model-explorer perfetto speedscope mlflow mermaid".split()
)
MADE_ELSEWHERE = (  # by examples/demo.py, and by tools: floors, page_screenshots, those for other programs
    "docs/floors.svg", "docs/minilm.png", "minilm.png", "docs/page.png", "page.png", "page-dark.png",
    "page-diff.png", *PROGRAMS,
)  # fmt: skip
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


@dataclass
class Block:
    """A fenced block of a page; ``shown`` is the block of output directly after it."""

    language: str
    text: str
    line: int
    start: int  # of the text, in the page
    end: int
    shown: Block | None = None


def blocks(page: str) -> list[Block]:
    """The blocks of a page, without those that show the output of the block before."""
    found: list[Block] = []
    above = 0
    for match in _FENCE.finditer(page):
        block = Block(match[1], match[2], page[: match.start(2)].count("\n") + 1, *match.span(2))
        follows = found and found[-1].shown is None and page[above : match.start()].strip() == ""
        if follows and found[-1].language in ("python", "console") and block.language in ("text", "json"):
            found[-1].shown = block
        else:
            found.append(block)
        above = match.end()
    return found


def without_times(text: str) -> str:
    """A text without what differs between runs."""
    return _TIME.sub("‹time›", text).rstrip()


# Running a page ----------------------------------------------------------------------------------


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> str:
    """Run a Python block and return what it printed; line numbers are those of the page."""
    named = re.match(r"# (\w+\.py)\n", block.text)
    if named:
        Path(named[1]).write_text(block.text, encoding="utf-8")
    lines = block.text if named else "\n" * (block.line - 1) + block.text
    code = compile(lines, named[1] if named else str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_commands(block: Block) -> str:
    """Run the ``$ fxdebug …`` lines of a console block and return their output."""
    printed = io.StringIO()
    for line in block.text.splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "))
        assert line.startswith("$ ") and program == "fxdebug", f"only '$ fxdebug …' can be run here: {line}"
        with contextlib.redirect_stdout(printed):
            assert main.main(arguments) == 0, f"{line} failed"
    return printed.getvalue()


def check_line(line: str) -> None:
    """Check that a line of a shell block names a target, command, option or file that exists."""
    program, *arguments = shlex.split(line, comments=True) or ["#"]
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(arguments) <= set(targets), f"no such target: {line}"
    elif program == "fxdebug":
        main.parser().parse_args(arguments)
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"\[(\w+)\]", line)) <= set(extras), f"no such extra: {line}"
    elif program == "pytest":
        plugin = (ROOT / "src" / "fxdebug" / "features" / "golden" / "pytest_plugin.py").read_text(encoding="utf-8")
        assert [a for a in arguments if a.startswith("--") and f'"{a}"' not in plugin] == [], f"no such option: {line}"
    elif program.endswith("python"):
        assert (ROOT / next(a for a in arguments if a.endswith(".py"))).is_file(), f"no such file: {line}"
    else:
        assert program in ("#", "torchrun", "git", "cd"), f"no check for this line: {line}"


# their exit status 1 is an answer, not a failure
JUDGES = "check compare find activations attention gradients weights watch profile memory".split()
SERVES = ("serve", "open")


def type_line(line: str) -> None:
    """Type a command of a shell block: it must work as it stands, in the folder where the page's code has run."""
    program, *arguments = shlex.split(line, comments=True) or ["#"]
    if program != "fxdebug":
        return
    if arguments[0] in ("debug", "mcp", *SERVES):
        type_in_a_shell(arguments)
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        status = main.main(arguments)
    assert status in ((0, 1) if arguments[0] in JUDGES else (0,)), f"{line}: {said.getvalue()}"


def type_in_a_shell(arguments: list[str]) -> None:
    """Start a command that asks or serves: the first is told that nobody answers, the other ended as by Ctrl-C."""
    if arguments[0] == "serve":
        arguments = [*arguments, "--port", "0"]  # another test may have the usual one
    command = [sys.executable, "-m", "fxdebug", *arguments]
    environment = {**os.environ, "BROWSER": "true", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True
    ) as running:
        assert running.stdout is not None
        said = ""
        while arguments[0] in SERVES and "http://" not in said and (line := running.stdout.readline()):
            said += line
        if arguments[0] in SERVES:
            assert "http://" in said, said
            running.send_signal(signal.SIGINT)
        rest = running.communicate(timeout=120)[0]
    assert running.returncode in (0, -signal.SIGINT, 130), f"{arguments}: {said}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs_and_shows_what_it_prints(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = page.read_text(encoding="utf-8")
    update = request.config.getoption("--update-golden")
    namespace: dict[str, object] = {"__name__": "__main__"}
    outputs: list[tuple[Block, str]] = []
    pictures: dict[str, bytes] = {}  # as the first block made them: a command further down may write the same file
    for block in blocks(text):
        where = f"{page.name}:{block.line}"
        if block.language in ("python", "console"):
            printed = run_python(block, page, namespace) if block.language == "python" else run_commands(block)
            if block.shown is not None and update:
                outputs.append((block.shown, printed.rstrip() + "\n"))
            else:
                shown = "" if block.shown is None else block.shown.text
                if not same_but_rounding(without_times(printed), without_times(shown)):
                    assert without_times(printed) == without_times(shown), f"{where} prints something else"
        elif block.language == "sh":
            for line in block.text.splitlines():
                check_line(line)
                if page.name in TYPED:
                    type_line(line)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "diff":  # both sides of a change run
            for side in "-+":
                lines = [line[1:].strip() for line in block.text.splitlines() if line.startswith(side)]
                exec("\n".join(lines), {})
        else:
            assert block.language == "text", f"{where}: no check for a block of {block.language or 'no language'}"
        for made in map(tmp_path.joinpath, {Path(picture).name for picture in _PICTURE.findall(text)} - {*pictures}):
            if made.is_file():
                pictures[made.name] = made.read_bytes()
    for picture in _PICTURE.findall(text):
        if picture not in MADE_ELSEWHERE:
            assert Path(picture).name in pictures, f"{page.name} shows {picture}, and does not make it"
            if update:
                with Image.open(
                    io.BytesIO(pictures[Path(picture).name])
                ) as drawn:  # in few colours: a picture in the repository stays small
                    drawn.convert("RGB").quantize(96).save(page.parent / picture, optimize=True)
            assert (page.parent / picture).stat().st_size < 150_000, f"{picture} is too large to be kept"
    for shown, printed in reversed(outputs):
        text = text[: shown.start] + printed + text[shown.end :]
    if update:
        page.write_text(text, encoding="utf-8")


def test_output_that_is_not_what_comes_out_is_noticed(tmp_path):
    (block,) = blocks("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    assert block.shown is not None and block.shown.text == "3\n"
    assert run_python(block, tmp_path / "page.md", {}) == "2\n"


def test_only_times_may_differ_from_run_to_run():
    assert without_times("Net  3 calls · 1.25 ms\n") == without_times("Net  3 calls · 40 ms")
    assert without_times("std 1.25") != without_times("std 1.26")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files(page):
    missing = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert missing == []


ROOMS = sorted(path.name for path in (ROOT / "src" / "fxdebug").iterdir() if path.is_dir() and path.name[0] != "_")
_FILE = re.compile(rf"(?<![\w./])(?:src/fxdebug/)?((?:{'|'.join(ROOMS)})/[\w/]+\.py)\b")


def test_files_that_a_page_names_exist():
    named = {(page.name, name) for page in PAGES for name in _FILE.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 40
    assert [(page, name) for page, name in sorted(named) if not (ROOT / "src" / "fxdebug" / name).is_file()] == []


def test_the_way_into_the_code_is_short_and_the_same_in_both_pages():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Dive into the code\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\d+\. \[([\w/.]+)\]\(src/fxdebug/\1\): ", readme, re.MULTILINE)
    assert 10 <= len(listed) <= 15
    table = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8").split("\n## The main road\n")[1]
    assert re.findall(r"^\| `([\w/.]+)` \|", table.split("\n## ")[0], re.MULTILINE) == listed


# Completeness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [Trace, Call, Value, Stats, Parameter, Failure, Note, Sharding, Group, Thing, Inputs, Outputs]
    + [RunGraphs, CallGraph, Graph, Op, Ref, Guard],
)
def test_every_field_of_a_record_is_described(record):
    page = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
    section = next(
        part for part in re.split(r"^#+ ", page, flags=re.MULTILINE) if part.startswith(f"{record.__name__}\n")
    )
    public = [field.name for field in fields(record) if not field.name.startswith("_")]
    assert [name for name in public if f"| `{name}` |" not in section] == []
    assert [name for name in re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) if name not in public] == []


def test_the_readme_names_every_command():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [c.function.__name__ for c in main.commands() if f"fxdebug {c.function.__name__}" not in text] == []


def test_the_readme_says_what_ci_runs():
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in script if line.startswith("make ")]
    assert commands == ["make setup", "make test"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "`make setup` and `make test` are what CI runs" in " ".join(text.split())


def test_the_changelog_begins_with_this_version():
    from fxdebug.version import __version__

    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading in headings if heading != "Unreleased"][:1] == [__version__]
    assert headings.index(__version__) <= 1, "only 'Unreleased' may stand above"


# Examples ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_printed_before(example, tmp_path, monkeypatch, capsys, golden):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    golden(f"example_{example.stem}.txt", without_times(capsys.readouterr().out) + "\n")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(example):
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    assert ast.get_docstring(ast.parse(text)), "it says what it shows"


def test_the_demo_traces_a_trained_model_and_says_what_it_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo.py", "out"])
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].startswith("BertModel  113 calls")
    assert any("layer.0 … layer.5 ×6" in line for line in lines)
    assert any(line.startswith("The two sentences are ") for line in lines)
    named = sorted(Path(line.split()[0]).name for line in lines if line.endswith(" MB"))
    assert named == sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_file())
    assert {"trace.json", "tensors-0001.safetensors", "graph.svg", "graph.png"} <= set(named)
    assert "113 of 113 calls have a verified graph, " in shown
    for command in re.findall(r"^  fxdebug (.*)$", shown, re.MULTILINE):  # what to try next works
        assert main.main(shlex.split(command)) == 0, command


@pytest.mark.parametrize(
    "found, expected, same",
    [
        ("std=0.513067, min=-1.", "std=0.513066, min=-1.", True),
        ("x  0.0077932  y", "x  0.00779321 y", True),  # a trailing zero was left out
        ("mean -1.3e-08  std 1", "mean -1.9e-08  std 1", True),  # what rounding left of a sum that is 0
        ("std 1.25", "std 1.28", False),
        ("error 3.1e-05", "error 3.6e-05", False),
        ("nan=4", "nan=5", False),
        ("1.5 a", "1.5 b", False),
        ("min=1.50, max=2", "min=1.5,\n  max=2", True),  # a longer number breaks its line elsewhere
        ("1.0 a b", "1.0 ab", False),
    ],
)
def test_outputs_may_differ_in_the_last_bits_which_are_the_processors(found, expected, same):
    assert same_but_rounding(found, expected) is same
