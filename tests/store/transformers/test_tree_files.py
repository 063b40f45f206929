"""The text of the debug tree is the one that ``json`` writes."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fxdebug.store.transformers.tree_files import write_full_tree
from support.sweep import examples

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(st.text(max_size=3), max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(0, 9), st.booleans(), st.none()), inner, max_size=4),
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
@settings(max_examples=examples(80, 200), deadline=None)
def test_the_debug_tree_is_written_as_json_writes_it(tree: dict[str, Any]) -> None:
    ours, theirs = io.StringIO(), io.StringIO()
    write_full_tree(tree, ours)
    json.dump(tree, theirs, indent=2)
    assert ours.getvalue() == theirs.getvalue()
