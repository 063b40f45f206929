"""Every reason that users read is in ``capture/reasons.py``, and the page about statuses has an example of each.

``test_docs`` runs the examples of the page and compares what they print. The tests here check that no reason is
missing on the page, and that no other file words one.
"""

from __future__ import annotations

import ast
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture import reasons
from fxdebug.capture.reasons import REASONS, Reason

ROOT = Path(__file__).parents[2]
SOURCES = [path for path in sorted((ROOT / "src" / "fxdebug").rglob("*.py")) if path.name != "reasons.py"]
PAGE = (ROOT / "docs" / "what-a-status-means.md").read_text(encoding="utf-8")

# Reasons that no program on one CPU produces: where they are tested instead, or why nobody sees them.
WITHOUT_EXAMPLE = {
    "communicates": "it takes a process group: below",
    "not-explained": "a failure of ours: test_fitting makes one",
    "nothing-noted": "a failure of ours: every call that begins has a tape",
    "returned-unseen": "needs dynamo of torch 2.9; tests/capture/tape/test_compiled_regions.py stands for it",
    "runs-compiled-unnoted": "a failure of ours, in recording what compiled code returned",
    "version-lacks": "needs a torch without that part; tests/capture/torch_state/test_internals.py runs without each",
    "graph-differs": "a failure of ours: the trace was checked step by step before",
    "earlier-state-lost": "a failure of ours: what cannot be copied is call-unnoted before",
    "other-calls": "checked after the steps are compared, which differ first (call-runs-other)",
    "other-module": "checked after the steps are compared, which differ first (call-runs-other)",
    "call-given-other": "checked after the steps are compared, which differ first (call-runs-other)",
}


def pattern_of(reason: Reason) -> re.Pattern[str]:
    """Return a pattern for the text of a reason, with anything for its parts; their article is that which they take."""
    pieces = [
        re.escape(text) + ("" if part is None else ".*") for text, part, _, _ in string.Formatter().parse(reason.text)
    ]
    return re.compile(re.sub(r"\ba\\ (?=\.\*)", "an? ", "".join(pieces)))


def parts_of(reason: Reason) -> set[str]:
    return {part for _, part, _, _ in string.Formatter().parse(reason.text) if part is not None}


def examples() -> dict[str, str]:
    """Return what the examples on the page print, by reason."""
    outputs = re.findall(r"^```text\n(.*?)^```$", PAGE.partition("\n## Every reason\n")[2], re.MULTILINE | re.DOTALL)
    lines = [re.fullmatch(r"([a-z-]+): (.*)", line) for output in outputs for line in output.splitlines()]
    assert all(lines)
    return {line[1]: line[2] for line in lines if line}


# The list ----------------------------------------------------------------------------------------


def test_a_reason_is_named_after_its_key_and_no_two_have_the_same_text() -> None:
    named = {name: thing for name, thing in vars(reasons).items() if isinstance(thing, Reason)}
    assert {name: reason.key for name, reason in named.items()} == {
        name: name.lower().replace("_", "-") for name in named
    }
    assert len({reason.text for reason in named.values()}) == len(named) == len(REASONS)


def test_reasons_are_imported_without_torch() -> None:
    source = "import sys, fxdebug.capture.reasons; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


# The page ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", REASONS)
def test_the_page_has_each_reason_with_its_text_and_its_meaning(key: str) -> None:
    (row,) = re.findall(rf"^\| `{key}` \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert row[0] == REASONS[key].text and len(row[1]) > 3


def test_the_page_has_no_row_for_a_reason_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \|", PAGE.partition("\n## Every reason\n")[2], re.MULTILINE)) == set(
        REASONS
    )


def test_each_reason_is_produced_by_an_example_on_the_page() -> None:
    found = examples()
    assert set(found) == set(REASONS) - set(WITHOUT_EXAMPLE)
    for key, line in found.items():
        reason = REASONS[key]
        assert pattern_of(reason).search(line), (key, line)
        if reason.where in ("recorded", "opaque"):
            assert line.startswith(f"{reason.where}: "), (key, line)


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch was built without gloo")
def test_a_body_that_waits_for_other_processes_is_recorded() -> None:
    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.distributed.barrier()
            return x * 2

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        root = fx_debug(Waits(), torch.ones(2, 3)).root
        assert (root.status, root.reason.partition(" (")[0]) == ("recorded", reasons.COMMUNICATES())
    finally:
        torch.distributed.destroy_process_group()


# The sources -------------------------------------------------------------------------------------

TAKE_REASONS = {
    "CannotTrace", "GuardFailed", "with_line", "mark_not_replayable", "_refuse", "_Blocker", "debugger_failure",
    "ReasonText",
}  # fmt: skip
HOLD_REASONS = {
    "callers_modes", "cannot_restore", "change_around_call", "not_reusable", "problem", "unobserved", "untraceable",
}  # fmt: skip
MAY_MAKE_WORDS = {"source_line.py"}  # a reason and the line it is about


def texts_in(node: ast.AST) -> list[str]:
    """Return the texts in an expression that do not fill in a part of a reason."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "reasons"
    ):
        return []
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return [ast.unparse(node)]
    inside = [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)
    return [text for inner in inside for text in texts_in(inner)]


def reasons_in(tree: ast.AST) -> Iterator[tuple[int, ast.AST]]:
    """Yield each expression that stands where a reason is expected, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in TAKE_REASONS:
                yield from ((node.lineno, argument) for argument in node.args)
            if name == "VerifiedCall":
                yield from ((node.lineno, argument) for argument in node.args[2:3])
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {getattr(each, "attr", getattr(each, "id", "")) for target in targets for each in ast.walk(target)}
            if names & HOLD_REASONS:
                yield node.lineno, node.value


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if "capture" in path.parts], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_no_other_file_words_a_reason(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    worded = [(line, texts_in(node)) for line, node in reasons_in(tree)]
    assert [each for each in worded if each[1]] == [] or path.name in MAY_MAKE_WORDS


def test_the_check_looks_for_names_that_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    assert [name for name in sorted(TAKE_REASONS | HOLD_REASONS) if not re.search(rf"\b{name}\b", text)] == []


def test_the_check_finds_a_reason_that_is_worded_elsewhere() -> None:
    tree = ast.parse(
        'raise CannotTrace(f"it does {this}")\n'
        'tape.untraceable = tape.untraceable or "that"\n'
        'with_line(reasons.A(b="c"), d)'
    )
    found = sorted(text for _, node in reasons_in(tree) for text in texts_in(node))
    assert found == ["'that'", "f'it does {this}'"]


def test_each_reason_is_used_and_gets_exactly_its_parts() -> None:
    used: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "reasons":
                used.add(node.attr)
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("reasons."):
                reason: Reason = getattr(reasons, ast.unparse(node.func).removeprefix("reasons."))
                names = {keyword.arg for keyword in node.keywords}
                assert names == parts_of(reason) and not node.args, f"{path.name}:{node.lineno}"
    assert used == {reason.key.upper().replace("-", "_") for reason in REASONS.values()}
