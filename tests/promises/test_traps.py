"""Traps of ``zoo/traps.py``: in none of them does a verified graph compute something else, or leave anything behind."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.graphs.placeholder_tensor import count_placeholders
from fxdebug.capture.graphs.verify import GraphVerifier
from fxdebug.capture.runs.build_trace import Options
from fxdebug.capture.runs.run_once import SingleRun
from support import audit
from support.same import difference
from zoo import traps

# Executing alone cannot judge this one.
NOT_ALONE = {"generator_": "works on a torch.Generator it makes"}


def seed() -> None:
    torch.manual_seed(1)
    random.seed(1)


@pytest.mark.parametrize("grad", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("name", traps.TRAPS)
def test_a_trap_changes_nothing_and_its_verified_graphs_are_right(name: str, grad: bool) -> None:
    """Output, state and random numbers equal the native ones, and an executed verified graph gives the same bits."""
    forget_templates()
    kind, train = traps.TRAPS[name]
    torch.manual_seed(0)
    module, x = kind().train(train), torch.randn(3, 8)
    native = copy.deepcopy(module)
    with torch.set_grad_enabled(grad):
        seed()
        traps.fresh_globals()
        expected = native(x)
        after = torch.get_rng_state(), random.getstate()
        seed()
        traps.fresh_globals()
        with audit.keeping() as kept, SingleRun(module, Options(graph=True)) as run:
            output = module(x)
    assert difference(expected, output) is None
    recorder = run._recorder
    assert recorder.tape is not None
    state = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    attributes = dict(vars(module))
    bodies = [recorder.tape.call_tapes[index] for index in sorted(recorder.tape.call_tapes)]
    explained = GraphVerifier(module, list(module.modules()), recorder.values, frozenset()).verify(bodies)
    assert (torch.equal(torch.get_rng_state(), after[0]), random.getstate() == after[1]) == (True, True)
    assert vars(module).keys() == attributes.keys()
    assert all(vars(module)[key] is held for key, held in attributes.items())
    assert difference(state, dict(module.state_dict())) is None
    for each in explained:
        assert each.status in ("verified", "recorded")
        assert each.status == "verified" or each.reason
        if each.status == "verified" and name not in NOT_ALONE:
            assert audit.problem_with(each, kept) is None


# These keep what they compute where a placeholder would stay: their bodies must not be run again.
KEEPS = ("global_list", "closure_state", "obj_state", "list_mut_arg")


@pytest.mark.parametrize("name", traps.TRAPS)
def test_no_placeholder_survives(name: str) -> None:
    """None of our objects is left in objects of the program after graphs were made."""
    import gc

    from fxdebug import fx_debug

    forget_templates()
    gc.collect()
    before = count_placeholders()
    kind, train = traps.TRAPS[name]
    torch.manual_seed(0)
    module = kind().train(train)
    traps.fresh_globals()
    trace = fx_debug(module, torch.randn(3, 8))
    assert trace.root.status in ("verified", "recorded")
    del trace
    gc.collect()
    assert count_placeholders() == before


def test_the_audit_notices_a_wrong_graph() -> None:
    """Test of the audit itself: it finds a verified template in which one constant was changed."""

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2.0 + 1.0

    module, x = Scaled(), torch.randn(3, 8)
    with audit.keeping() as kept, SingleRun(module, Options(graph=True)) as run:
        module(x)
    tape = run._recorder.tape
    assert tape is not None
    (explained,) = GraphVerifier(module, [module], run._recorder.values, frozenset()).verify([tape.call_tapes[0]])
    assert explained.status == "verified" and explained.template is not None
    assert audit.problem_with(explained, kept) is None
    first = explained.template.entries[0]
    explained.template.entries[0] = first._replace(args=(first.args[0], 3.0))
    assert audit.problem_with(explained, kept) is not None
