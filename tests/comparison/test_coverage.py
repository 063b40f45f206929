"""The verdict: runs are equal only if what they return was compared, and half of the calls have a counterpart."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch._tensor_str import get_printoptions
from transformers.model_debugging_utils import model_addition_debugger_context as their_context

import fxdebug
from faults.bench import EQUAL, FAULTS
from faults.case import Pair
from faults.judge import traced
from fxdebug import compare, fx_debug
from fxdebug.api.comparison import Comparison
from fxdebug.comparison.result import Counts
from support.blocks import model, run

KINDS = ("FULL_TENSORS", "SUMMARY")
WRITERS = {"theirs": their_context, "ours": fxdebug.model_addition_debugger_context}

# Ports without common names. Of the last two the tree does not have what they return: it is computed behind all calls.
FOUND = ("bert", "gpt2", "llama", "vit", "t5", "resnet")
NOT_FOUND = ("gemma2", "unet")
PLANTED = (
    "port-bert/swapped-query-and-key", "port-gpt2/causal-mask-missing", "port-llama/swapped-gate-and-up",
    "port-llama/kv-heads-tiled", "port-vit/swapped-query-and-key", "port-vit/pooled-by-mean",
    "port-t5/swapped-keys-and-values", "port-gemma2/norm-epsilon", "port-bert/tanh-missing", "port-resnet/epsilon",
)  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write the debug tree of the original of a port, once."""
    transformers.logging.set_verbosity_error()
    written: dict[tuple[str, str], Path] = {}

    def write(name: str, kind: str = "FULL_TENSORS", writer: str = "theirs") -> Path:
        if (name, writer) not in written:
            folder = tmp_path_factory.mktemp("tree")
            pair = EQUAL[f"port/{name}"].build()
            quiet, options = contextlib.redirect_stdout(io.StringIO()), get_printoptions()
            with (
                quiet,
                torch.no_grad(),
                WRITERS[writer](pair.a, debug_path=str(folder), do_prune_layers=False, use_repr=False),
            ):
                pair.a(**pair.inputs)
            torch.set_printoptions(**options)  # theirs changes them for good
            written[(name, writer)] = folder
        return next(written[(name, writer)].glob(f"*_{kind}.json"))

    return write


def _run_of_b(pair: Pair, values: str = "tensors") -> fxdebug.Trace:
    return traced(pair.b, pair.inputs if pair.inputs_b is None else pair.inputs_b, values)


# Debug trees of transformers -----------------------------------------------------------------------


@pytest.mark.parametrize("name", FOUND)
def test_a_right_port_is_equal_to_a_tree_as_far_as_the_tree_goes(name: str, tree: Callable[..., Path]) -> None:
    port = _run_of_b(EQUAL[f"port/{name}"].build())
    kinds = [("FULL_TENSORS", "theirs"), ("SUMMARY", "ours" if name in ("bert", "gpt2") else "theirs")]
    for kind, writer in kinds:
        for found in (compare(tree(name, kind, writer), port), compare(port, tree(name, kind, writer))):
            assert (found.verdict, found.missing, len(found.coverage.stand_in)) == ("equal", (), 1)
            assert "as far as the file of" in str(found) and "in place of what was returned" in " ".join(
                str(found).split()
            )


@pytest.mark.parametrize("name", NOT_FOUND)
def test_no_verdict_is_given_where_nothing_in_a_tree_was_returned(name: str, tree: Callable[..., Path]) -> None:
    found = compare(tree(name), _run_of_b(EQUAL[f"port/{name}"].build()))
    assert (found.verdict, found.equal, bool(found), found.findings) == ("could not compare", False, False, ())
    assert found.missing[0].startswith(
        "the file of a does not have what the model returned, and what b returned is not"
    )


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_never_equal_to_a_tree(name: str, tree: Callable[..., Path]) -> None:
    port = _run_of_b(FAULTS[name].build())
    for kind in KINDS:
        path = tree(name.removeprefix("port-").partition("/")[0], kind)
        for found in (compare(path, port), compare(port, path)):
            assert found.verdict != "equal" and not found


def test_two_trees_of_one_model_are_compared_by_what_their_last_calls_returned(tree: Callable[..., Path]) -> None:
    found = compare(tree("bert"), tree("bert", "SUMMARY"))
    assert (found.verdict, found.coverage.stand_in) == ("equal", "ab")
    assert "as far as the files go" in str(found)


# What is returned ----------------------------------------------------------------------------------


class Returns(nn.Module):
    """A layer, and what is returned of it."""

    def __init__(self, end: Callable[[Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.end = nn.Linear(8, 8), end

    def forward(self, x: Tensor) -> object:
        return self.end(self.layer(x))


class Other(Returns):
    """Another implementation, which may return more, less and under other names."""


X = torch.linspace(-1, 1, 32).view(4, 8)


def _both(one: Callable[[Tensor], object], other: Callable[[Tensor], object]) -> Comparison:
    return compare(fx_debug(Returns(one), X), fx_debug(Other(other), X))


EQUALLY_RETURNED = {
    "another place": (lambda y: (y, y[:, :2] * 3), lambda y: {"head": y[:, :2] * 3, "body": y}),
    "another container": (lambda y: {"logits": y}, lambda y: {"output": {"logits": y}}),
    "another shape first": (lambda y: (y.mean(), y), lambda y: (y, y.mean())),
    "one less": (lambda y: {"y": y, "z": y * 2}, lambda y: (y,)),
    "with a dimension": (lambda y: (y, y.sum()), lambda y: (y.sum(), y[None])),
}


@pytest.mark.parametrize("name", EQUALLY_RETURNED)
def test_returned_values_are_paired_by_place_name_and_shape(name: str) -> None:
    found = _both(*EQUALLY_RETURNED[name])
    assert found.equal, str(found)
    assert found.coverage.returned.compared == min(found.coverage.returned[1:])


UNLIKE = {
    "nothing by one": (lambda y: None, lambda y: y),
    "a mask and a number": (lambda y: {"kept": y > 0}, lambda y: {"score": y}),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_cannot_be_paired_is_named(name: str) -> None:
    found = _both(*UNLIKE[name])
    assert found.verdict == "could not compare", str(found)
    assert any(word in found.missing[0] for word in ("without a counterpart", "no numbers are known"))


def test_a_result_that_differs_is_different_even_if_no_pair_of_steps_says_so() -> None:
    class Untouched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    for one, other in ((Doubled(), Untouched()), (Untouched(), Doubled())):
        found = compare(fx_debug(one, X), fx_debug(other, X))
        assert found.verdict == "different", str(found)


def test_a_hook_that_replaces_what_the_model_returns_is_seen() -> None:
    one, other = Returns(lambda y: y), Returns(lambda y: y)
    other.register_forward_hook(lambda module, args, output: output + 1)
    found = compare(fx_debug(one, X), fx_debug(other, X))
    assert found.verdict == "different", str(found)


# Coverage ------------------------------------------------------------------------------------------


def test_coverage_counts_calls_operations_and_returned_values() -> None:
    found = compare(run(model()), run(model()))
    assert found.coverage.calls == Counts(14, 14, 14)
    assert found.coverage.returned == Counts(1, 1, 1)
    assert found.coverage.operations == Counts(16, 16, 16)
    assert found.coverage.share == 1.0
    assert "compared   all 14 calls; all 16 operations; the returned value" in str(found)


def test_operations_without_a_counterpart_are_named() -> None:
    found = _both(lambda y: y * 1.5, lambda y: (y * 1.5, torch.fft.fft(y).abs() > 9)[0])
    assert [side.op for side in found.coverage.operations_b] == ["fft_fft", "abs", "gt"]
    assert "only in b: 3 operations" in str(found) and "fft_fft, abs, gt" in str(found)


def test_equal_outputs_of_models_with_nothing_else_in_common_are_no_verdict() -> None:
    class Zero(nn.Module):
        def __init__(self, seed: int, depth: int) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.inner = nn.ModuleDict({f"part_{seed}_{i}": nn.Linear(8, 8) for i in range(depth)})

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.inner.values():
                x = layer(x).tanh()
            return x * 0

    found = compare(fx_debug(Zero(1, 6), X, graph=False), fx_debug(Zero(2, 9), X, graph=False))
    assert found.verdict != "equal", str(found)


def test_pairs_that_are_unsure_are_neither_the_worst_nor_in_the_table(tmp_path: Path) -> None:
    for name in ("port/unet", "port/bert", "port/gemma2", "port/llama"):
        pair = EQUAL[name].build()
        found = compare(traced(pair.a, pair.inputs, "tensors"), _run_of_b(pair))
        assert found.equal and found.worst is not None and found.worst.error < 1e-4
        lines = found.export(tmp_path / "rows.csv").read_text().splitlines()
        assert len(lines) == 1 + sum(row.certain for row in found.rows)
        assert not any(row.how == "order" for row in found.rows if row.certain)


def test_the_hint_to_keep_tensors_is_given_only_where_a_run_lacks_them() -> None:
    hint = 'values="tensors"'
    kept, not_kept = run(model(), values="tensors"), run(model())
    changed = model()
    with torch.no_grad():
        changed.blocks[1].norm.eps = 0.3
    different = run(changed, values="tensors")
    assert hint not in str(compare(kept, kept)) and hint not in str(compare(kept, different))
    assert f"{hint} shows" in str(compare(not_kept, not_kept))
    assert f"{hint} in b, too, shows" in " ".join(str(compare(different, not_kept)).split())
