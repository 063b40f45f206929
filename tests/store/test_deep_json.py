"""JSON of any depth: the text and the content are those of Python's own ``json``, which gives up far earlier."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fxdebug
from fxdebug.api.trace import Trace
from fxdebug.data.calls import Call
from fxdebug.data.values import Group, Inputs, Item, Outputs, Value
from fxdebug.store import deep_json
from fxdebug.store.trace_json import trace_file
from fxdebug.store.trace_json.records import item_from_json, item_to_json
from fxdebug.store.transformers import tree_files, write_tree

DEEP = 30_000  # levels: more than any version of Python recurses in C

CONTENT = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=4)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.lists(st.text(), max_size=3),
    ),
    max_leaves=20,
)  # fmt: skip

DAMAGED = [
    "", " ", "[", "{", "[1", "[1,", "[1,]", "[1 2]", "[1}", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{"a" 1}',
    "{1:2}",
    "[] []", "[]x", "nul", "'a'", '"a', "]", "[,1]", '{"a":1]', '["\n"]', "[[[1,2],[3]]", '{"a":{"b":[}}',
]  # fmt: skip


def nested(levels: int, kind: type) -> Any:
    content: Any = 1
    for _ in range(levels):
        content = [content] if kind is list else {"a": content}
    return content


# Reading -----------------------------------------------------------------------------------------


@given(CONTENT, st.sampled_from([None, 2]))
@settings(max_examples=200, deadline=None)
def test_what_is_read_without_recursion_is_what_json_reads(content: Any, indent: int | None) -> None:
    text = json.dumps(content, indent=indent)
    found = deep_json._loads_deep(text, dict)
    assert found == content and json.dumps(found) == json.dumps(content)
    assert deep_json._loads_deep(f" \n{text}\t", list) == json.loads(text, object_pairs_hook=list)


@pytest.mark.parametrize("text", DAMAGED)
def test_what_is_damaged_is_refused_as_json_refuses_it(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    with pytest.raises(json.JSONDecodeError):
        deep_json._loads_deep(text, dict)


@given(CONTENT, st.integers(0, 200), st.text(max_size=2))
@settings(max_examples=200, deadline=None)
def test_what_json_refuses_is_refused_and_the_rest_is_read(content: Any, at: int, instead: str) -> None:
    text = json.dumps(content)
    text = text[:at] + instead + text[at + 1 :]
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):
            deep_json._loads_deep(text, dict)
    else:
        assert json.dumps(deep_json._loads_deep(text, dict)) == json.dumps(expected)


def test_keys_that_stand_twice_reach_the_hook() -> None:
    assert deep_json._loads_deep('{"a": 1, "a": {"b": 2}}', tuple) == (("a", 1), ("a", (("b", 2),)))


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}"), (' [ {"a" :\n', "} ] ")])
def test_a_text_of_any_depth_is_read(opens: str, closes: str) -> None:
    content, levels = deep_json.loads(opens * DEEP + "1" + closes * DEEP), 0
    while content != 1:
        content, levels = content["a"] if isinstance(content, dict) else content[0], levels + 1
    assert levels == DEEP * (2 if "{" in opens and "[" in opens else 1)
    with pytest.raises(json.JSONDecodeError):
        deep_json.loads(opens * DEEP)


# Writing -----------------------------------------------------------------------------------------


@given(CONTENT)
@example([[], {}, [[]], {"a": {}}, [""], ["a\n", "b"], ["\\", '"'], ("x", 1), {1: 2, False: None, None: 0.5}])
@settings(max_examples=200, deadline=None)
def test_what_is_written_without_recursion_is_what_json_writes(content: Any) -> None:
    pieces: list[str] = []
    deep_json.write_indented(content, pieces.append)
    assert "".join(pieces) == json.dumps(content, indent=2)
    pieces.clear()
    deep_json.write_indented(content, pieces.append, newline="", step="", colon=":")
    assert "".join(pieces) == json.dumps(content, separators=(",", ":")) == deep_json.dumps(content)


@pytest.mark.parametrize("kind", [list, dict])
def test_content_of_any_depth_is_written(kind: type) -> None:
    opens, closes = ("[", "]") if kind is list else ('{"a":', "}")
    assert deep_json.dumps(nested(DEEP, kind)) == opens * DEEP + "1" + closes * DEEP


def test_what_is_no_number_is_refused_at_any_depth() -> None:
    for content in (float("nan"), [nested(DEEP, list), float("inf")]):
        with pytest.raises(ValueError, match="not JSON compliant"):
            deep_json.dumps(content)


# What is made of it ------------------------------------------------------------------------------


def deep_item(levels: int) -> Item:
    item: Item = Value(0, (2,), "float32", "cpu")
    for level in range(levels):
        item = Group("sequence", "list", (item, 1)) if level % 2 else Group("mapping", "dict", (item,), ("a",))
    return item


def test_an_item_of_any_depth_is_written_and_read() -> None:
    item = deep_item(DEEP)
    text = deep_json.dumps(item_to_json(item))
    again = item_from_json(deep_json.loads(text), (Value(0, (2,), "float32", "cpu"),))
    assert deep_json.dumps(item_to_json(again)) == text
    levels = 0
    while isinstance(again, Group):
        assert (again.kind, again.keys) == (("sequence", None) if len(again) == 2 else ("mapping", ("a",)))
        again, levels = again.items[0], levels + 1
    assert levels == DEEP and isinstance(again, Value)


@pytest.mark.parametrize("coded", [{"items": []}, {"sequence": "list"}, {}, {"thing": "x"}])
def test_what_is_no_item_raises_what_the_file_takes_for_damage(coded: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, IndexError, AttributeError)):
        item_from_json(coded, ())


def deep_trace(levels: int, inside: int) -> Trace:
    """``levels`` modules within one another, the innermost returning ``inside`` such containers."""
    item = deep_item(inside)
    calls = [
        Call(
            i, "m" if i else "", "M", i, depth=i,
            parent_index=i - 1 if i else None, has_submodules=i < levels - 1,
            inputs=Inputs(()), outputs=Outputs(item) if i == levels - 1 else Outputs(None), finished=levels - i,
        )
        for i in range(levels)
    ]  # fmt: skip
    return Trace("M", tuple(calls), (Value(0, (2,), "float32", "cpu"),))


@pytest.mark.parametrize("levels", [3, 1500])
def test_a_tree_of_modules_of_any_depth_is_written_and_read(levels: int, tmp_path: Path) -> None:
    trace = deep_trace(levels, inside=levels)
    tree = write_tree.debug_tree(
        trace, lambda value, path: {**write_tree.shape_and_dtype(value), "value": []}, prune=True
    )
    for write, name in ((tree_files.write_full_tree, "FULL_TENSORS"), (tree_files.write_summary_tree, "SUMMARY")):
        path = tmp_path / f"M_debug_tree_{name}.json"
        with path.open("w", encoding="utf-8") as file:
            write(tree, file)
        assert path.read_text().count('"value"') == (name == "FULL_TENSORS")
        loaded = fxdebug.load(path)
        assert [call.depth for call in loaded.calls] == list(range(levels))
        assert loaded.calls[-1].outputs is not None and len(loaded.values) == 1
    if levels < 100:
        path = tmp_path / "M_debug_tree_FULL_TENSORS.json"
        assert path.read_text() == json.dumps(tree, indent=2)


def test_a_trace_with_containers_of_any_depth_is_written_and_read(tmp_path: Path) -> None:
    text = io.StringIO()
    trace_file.write(deep_trace(1, DEEP), text)
    (tmp_path / "trace.json").write_text(text.getvalue())
    again = io.StringIO()
    trace_file.write(trace_file.read(tmp_path / "trace.json"), again)
    assert again.getvalue() == text.getvalue()
