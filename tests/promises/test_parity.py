"""The drop-in and ``fx_debug`` write the same files as transformers' debugger, byte for byte.

``make zoo`` runs the same comparison on every architecture, in every mode.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import torch
from torch import nn

from support import reference
from support.digits import digits
from support.parity import DROP_IN, FEW_MODES, FX_DEBUG, KNOWN, MODES, NEITHER, NUMBERS, TENSORS, Report, compared
from support.reference import Written, differences, of_drop_in, of_reference, unequal_trees
from support.sweep import sampled, whole
from zoo import zoo, zoo_sample

# Thousands of calls, half a minute each in the reference, and a third compiled model: ``make zoo`` has them.
SLOW = frozenset({"scale/calls-3000", "scale/layers-500", "scale/wide-2000", "modes/compiled-submodule"})
# One of each kind of text and of files.
ARCHITECTURES = ("hf/bert/", "hf/bart/", "hf/clip_text_model/", "hf/whisper/", "hf/mamba/", "hf/convnext/", "hf/xlnet/")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "entry" in metafunc.fixturenames:
        names = [name for name, _ in zoo_sample.entries(whole()) if whole() or chosen(name)]
        metafunc.parametrize("entry", names, scope="module")  # the tests of an entry in a row: one report for all


def chosen(name: str) -> bool:
    """Does an entry take part in a run of a part of the zoo?"""
    return name not in SLOW and (not name.startswith("hf/") or name.startswith(ARCHITECTURES))


@functools.cache
def _builds(whole: bool) -> dict[str, Any]:
    return dict(zoo_sample.entries(whole))


@functools.cache
def _report(name: str) -> Report:
    """Return the comparison of an entry, made once for all tests; a third, and no slow one, runs in all modes."""
    few = not whole() and (name.startswith(("hf/", "scale/", "modes/compiled")) or name not in _in_all_modes())
    return compared(name, _builds(whole())[name], FEW_MODES if few else MODES)


@functools.cache
def _in_all_modes() -> frozenset[str]:
    return frozenset(sampled(_builds(False), 3, tuple(KNOWN)))


@pytest.fixture
def report(entry: str) -> Report:
    """Comparison of this test's entry."""
    return _report(entry)


def differs(report: Report, where: str) -> bool:
    """Is a difference there expected?"""
    return report.known is not None and where in report.known.where


# The zoo -----------------------------------------------------------------------------------------


def test_the_drop_in_writes_the_files_of_the_reference(report: Report) -> None:
    if not differs(report, DROP_IN):
        assert [
            what for what in report.drop_in if not (differs(report, TENSORS) and what.endswith("other bytes"))
        ] == []
    elif not report.known.sometimes:  # type: ignore[union-attr]
        assert report.drop_in, "the reference is right here now: take the entry out of KNOWN"


def test_fx_debug_writes_the_tree_of_the_reference(report: Report) -> None:
    if not differs(report, FX_DEBUG):
        assert report.fx_debug == []
    elif not report.known.sometimes:  # type: ignore[union-attr]
        assert report.fx_debug, "the reference is right here now: take the entry out of KNOWN"


def test_our_own_statistics_have_the_digits_of_the_reference(report: Report) -> None:
    if not differs(report, NUMBERS):
        assert report.digits.unexplained == []
        assert report.digits.widest < 1e-7


def test_every_known_difference_is_an_entry_of_the_zoo() -> None:
    assert set(KNOWN) <= {name for name, _ in zoo.zoo(zoo_sample.PLAIN)}


def test_the_drop_in_runs_models_on_which_the_reference_fails(report: Report) -> None:
    """All of them except models that need gradients, which the context disables by definition."""
    assert report.both_stopped == differs(report, NEITHER)


def test_the_reference_still_fails_on_the_same_models() -> None:
    stopped = {report.name for name, _ in zoo.zoo(["tensors"]) if (report := _report(name)).stopped}
    assert {"tensors/empty", "tensors/nested", "tensors/sparse-coo", "tensors/quantized"} <= stopped


# Subclasses of Tensor ----------------------------------------------------------------------------


class Counting(torch.Tensor):
    """Counts the operations on it, as a subclass may, and passes its class on."""

    operations = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Counting.operations += 1
        return super().__torch_function__(func, types, args, kwargs)


class Labelled(torch.Tensor):
    """Has a ``repr`` that needs an attribute, which a mean of it does not have."""

    def __repr__(self, **_: Any) -> str:
        return f"{self.label}: {self.as_subclass(torch.Tensor)}"  # type: ignore[attr-defined]


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def model_of(kind: type[torch.Tensor], **attributes: Any) -> Any:
    def build() -> Any:
        x = torch.arange(6.0).reshape(2, 3).as_subclass(kind)
        vars(x).update(attributes)
        return nn.Sequential(Doubles()), {"input": x}

    return build


@pytest.mark.parametrize("use_repr", [True, False])
def test_statistics_of_a_subclass_are_printed_with_its_name(use_repr: bool) -> None:
    build = model_of(Counting)
    theirs = of_reference(build, prune=False, use_repr=use_repr)
    ours = of_drop_in(build, prune=False, use_repr=use_repr)
    assert '"mean": "Counting(5.0000e+00)"' in ours.trees()["Sequential_debug_tree_SUMMARY.json"]
    assert differences(theirs, ours) == []


def test_a_subclass_does_not_see_our_operations() -> None:
    build = model_of(Counting)
    model, inputs = build()
    Counting.operations = 0
    model(**inputs)
    heard = Counting.operations
    Counting.operations = 0
    assert of_drop_in(build, prune=False, use_repr=True).error is None
    assert Counting.operations == heard == 1


def test_statistics_of_a_subclass_that_cannot_print_them_are_those_of_a_tensor() -> None:
    build = model_of(Labelled, label="mine")
    assert isinstance(of_reference(build, prune=False, use_repr=True).error, AttributeError)
    ours = of_drop_in(build, prune=False, use_repr=True)
    tree = json.loads(ours.files["Sequential_debug_tree_FULL_TENSORS.json"])
    entry = tree["inputs"]["kwargs"]["input"]
    assert entry["mean"] == "tensor(2.5000e+00)"
    assert entry["value"][0].startswith("mine: tensor(")
    assert tree["children"][0]["outputs"]["value"] == [
        "tensor([[0.0000e+00, 2.0000e+00, 4.0000e+00],",
        "        [6.0000e+00, 8.0000e+00, 1.0000e+01]])",
    ]


# The comparison itself ---------------------------------------------------------------------------


FULL = '{"inputs": {"value": "./M_in.safetensors", "mean": "tensor(1.5000e+00)"}, "again": "./M_in.safetensors"}'
OURS = FULL.replace('again": "./M_in', 'again": "./M_in-2')


def written(full: str = FULL, **tensors: bytes) -> Written:
    tree = {"M_debug_tree_FULL_TENSORS.json": full.encode()}
    return Written(tree | {f"{name}.safetensors": data for name, data in tensors.items()})


def test_a_repeated_name_is_expected_with_a_number() -> None:
    theirs = written(M_in=b"second")
    assert differences(theirs, written(OURS, M_in=b"first", **{"M_in-2": b"second"})) == []
    assert "line 1 is" in differences(theirs, written(FULL, M_in=b"second"))[0]


def test_a_changed_digit_a_missing_file_and_a_changed_byte_are_differences() -> None:
    theirs = written(M_in=b"second")
    ours = {"M_in": b"first", "M_in-2": b"second"}
    assert "1.5001e+00" in differences(theirs, written(OURS.replace("1.5000", "1.5001"), **ours))[0]
    assert "lacks" in differences(theirs, written(OURS, M_in=b"first"))[0]
    assert "lacks" in differences(theirs, written(OURS, **ours, more=b""))[0]
    assert differences(theirs, written(OURS, **{**ours, "M_in-2": b"other"})) == ["M_in-2.safetensors: other bytes"]
    assert differences(theirs, Written({}, ValueError("no"))) == ["raises ValueError: no"]
    assert "instead of" in differences(theirs, Written({}))[0]


def test_texts_that_differ_in_addresses_only_are_equal() -> None:
    at = "<function f at 0x{}>"
    assert unequal_trees(*({"a": reference.without_addresses(at.format(x))} for x in ("7f01", "55aa"))) == []
    assert unequal_trees({"a": at.format("7f01")}, {"a": at.format("55aa")}) != []


@pytest.mark.parametrize(
    ("ours", "counted"),
    [
        ("tensor(1.5000e+00)", (0, 0, 0, 0)),
        ("tensor(1.5001e+00)", (1, 0, 0, 0)),
        ("tensor(1.5003e+00)", (0, 0, 0, 1)),
        ("tensor(nan)", (0, 0, 0, 1)),
        ("tensor(1.5000e+00, dtype=torch.float16)", (0, 0, 0, 1)),
    ],
)
def test_numbers_are_compared_to_the_last_digit(ours: str, counted: tuple[int, ...]) -> None:
    def summary(mean: str) -> Written:
        rest = {"std": "tensor(1.)", "min": "tensor(-2.0000e+00)", "max": "tensor(2.0000e+00)"}
        entry = {"shape": "torch.Size([2])", "dtype": "torch.float32", "mean": mean, **rest}
        return Written({"M_debug_tree_SUMMARY.json": json.dumps({"inputs": [entry]}).encode()})

    found = digits(summary("tensor(1.5000e+00)"), summary(ours))
    assert (found.last_digit, found.rounding, found.overflow, len(found.unexplained)) == counted
    assert found.strings == 4
