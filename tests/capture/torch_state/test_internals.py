"""Private names of torch's and Python's stand in one file; without one a run is a tree that says what it lost."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fxdebug.capture.torch_state import internals
from support.counted import calls_of

PACKAGE = Path(internals.__file__).parents[2]
PRIVATE = re.compile(r"(?<!\")\btorch(?:\.\w+)*\._(?!_)\w+|\bfrom torch[\w.]* import _\w+|\btorch\._C\b")
ELSEWHERE = {  # capture's file is above these; each is the text or the bits that torch itself prints and makes
    "api/run_model.py": {"torch._tensor_str"},  # print options, for the settings of a run
    "repair/rerun/torch_functions.py": {"torch._C"},  # where records say that functions are
    "features/repro/plain_calls.py": {"torch._C"},  # the same, in an example
    "capture/graphs/fx_targets.py": {"from torch.fx.node import _get_qualified_name"},  # fx's name of a function
    "store/transformers/print_tensor.py": {
        "torch._C._disabled_torch_function_impl", "torch._C._functorch",
        "torch.autograd.forward_ad._current_level", "torch._C._get_default_device",
    },  # what decides how torch prints a tensor: a text that is the same to the last character
    "store/transformers/print_options.py": {"torch._tensor_str"},  # the options it prints with, for one thread
    "features/profile/wasted/forms.py": {"torch._foreach_lerp_"},  # in an advice
    "features/profile/wasted/loops.py": {"torch._foreach_lerp_"},  # in an advice: torch's documentation lists it
    "store/tensors/encode.py": {
        "torch._make_per_channel_quantized_tensor", "torch._make_per_tensor_quantized_tensor",
    },  # a quantised tensor from its parts
}  # fmt: skip
INSTEAD = {  # what older torch has instead, and this one has not
    "torch._C._dynamo.eval_frame.set_code_exec_strategy": "torch._C._dynamo.eval_frame.skip_code",
}
NOW = [one for one in internals.LISTED.values() if one.is_there]


def test_no_other_file_uses_a_private_name_of_torch_s() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): set(PRIVATE.findall(text))
        for path in PACKAGE.rglob("*.py")
        if PRIVATE.search(text := path.read_text(encoding="utf-8")) and path != Path(internals.__file__)
    }
    assert found == ELSEWHERE


def test_what_is_used_is_there() -> None:
    assert internals.notes() == []
    assert not any(map(internals.missing_for, ("a detail", "verification", "graphs")))


def test_looking_them_up_is_little_work() -> None:
    spec = importlib.util.spec_from_file_location("internals_again", str(internals.__file__))
    assert spec is not None and spec.loader is not None

    module = importlib.util.module_from_spec(spec)
    sys.modules["internals_again"] = module
    code = spec.loader.get_code("internals_again")  # type: ignore[attr-defined]
    try:
        assert calls_of(lambda: exec(code, vars(module))) < 10_000  # a millisecond or two
    finally:
        sys.modules.pop("internals_again", None)


WITHOUT_EACH = """
import importlib, json, operator, os, sys
import torch
from torch import nn
import fxdebug

fxdebug.fx_debug(nn.ReLU(), torch.ones(1)).calls[0].status  # torch's own lazy parts are there from now on

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
    def forward(self, x):
        return self.inner(x).relu() + x

def run(hidden):
    look = operator.attrgetter
    def attrgetter(path):
        def found(home):
            if home.__name__ + "." + path in hidden:
                raise AttributeError(path)
            return look(path)(home)
        return found
    operator.attrgetter = attrgetter
    for name in [name for name in sys.modules if name.split(".")[0] == "fxdebug"]:
        del sys.modules[name]
    from fxdebug.capture.torch_state import internals
    operator.attrgetter = look
    import fxdebug
    model = nn.Sequential(Block(), nn.ReLU())
    x = torch.ones(2, 3)
    with torch.no_grad():
        expected = model(x)
        trace = fxdebug.fx_debug(model, x)
        text = str(trace.tree() if hasattr(trace, "tree") else trace)
    return {
        "calls": [call.path for call in trace.calls],
        "statuses": sorted({call.status for call in trace.calls}),
        "equal": bool(torch.equal(trace.output, expected)),
        "notes": [note.what for note in trace.notes],
    }

def apart(hidden):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            told = run(hidden)
        except BaseException as error:
            told = {"raised": f"{type(error).__name__}: {error}"}
        os.write(write, json.dumps(told).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text or '{"raised": "it died"}')

print(json.dumps({name: apart({name}) for name in json.load(sys.stdin)}))
"""


@pytest.fixture(scope="module")
def without_each() -> dict[str, dict[str, object]]:
    """What a run of a small model comes to without each of the names, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EACH],
        input=json.dumps([one.name for one in NOW]), capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("one", NOW, ids=lambda one: one.name)
def test_without_it_a_run_is_a_tree_and_says_what_it_lost(
    one: internals.Internal, without_each: dict[str, dict[str, object]]
) -> None:
    found = without_each[one.name]
    assert found.get("raised") is None
    assert found["calls"] == ["", "0", "0.inner", "1"]
    assert found["equal"]
    statuses = {"graphs": [None], "verification": ["recorded"]}
    assert found["statuses"] == statuses.get(one.loses, ["verified"])
    notes = found["notes"]
    assert isinstance(notes, list)
    other = INSTEAD.get(one.name)
    assert all(one.name in note or (other is not None and other in note) for note in notes)
    assert len(notes) == bool(one.without or other)
