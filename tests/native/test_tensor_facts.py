"""The core's look at one tensor, against Python's."""

from __future__ import annotations

import pytest
import torch

from fxdebug.capture.tensors.tensor_state import TensorLayout, TensorState, state_of
from fxdebug.native import dispatch


def facts(state: TensorState | None) -> object:
    """A state without the identity of its layout."""
    if state is None:
        return None
    layout = {name: getattr(state.layout, name) for name in TensorLayout.__slots__}
    return layout, state.storage, state.address, state.version


def tensors() -> dict[str, torch.Tensor]:
    x = torch.arange(24.0).view(2, 3, 4)
    written, freed = torch.ones(3), torch.ones(3)
    written.add_(1)
    freed.untyped_storage().resize_(0)
    with torch.inference_mode():
        inference = torch.ones(2)
    complex_ones = torch.ones(3, dtype=torch.complex64)
    return {
        "dense": x, "transposed": x.transpose(0, 2), "cut": x[:, 1:, ::2], "expanded": x[:, :1].expand(2, 5, 4),
        "a parameter": torch.nn.Parameter(x.clone()), "written to": written, "of bfloat16": x.bfloat16(),
        "an inference tensor": inference, "conjugated": complex_ones.conj(), "negated": complex_ones.conj().imag,
        "of 8 bits": x.to(torch.float8_e5m2), "a scalar": torch.tensor(3), "empty": x[:0], "freed": freed,
        "sparse": x.to_sparse(), "meta": x.to("meta"), "lazy": torch._lazy_clone(x),
    }  # fmt: skip


@pytest.mark.parametrize("kind", tensors())
def test_the_state_of_a_tensor_is_the_same_both_ways(kind, native_core) -> None:
    tensor = tensors()[kind]
    with dispatch.using(native_core):
        found = facts(state_of(tensor))
    with dispatch.using(None):
        assert facts(state_of(tensor)) == found


def test_tensors_of_one_form_share_their_layout_and_others_do_not(native_core) -> None:
    native = native_core.state_of(TensorLayout, TensorState)
    x, y = torch.ones(3, 4), torch.zeros(3, 4)
    assert native(x).layout is native(y).layout
    assert native(x).layout is not native(x.T).layout
    assert native(x).layout is not native(x.double()).layout
    assert type(native(x)) is TensorState and type(native(x).layout) is TensorLayout


def test_a_layout_that_two_threads_make_at_once_is_one(native_core) -> None:
    made: list[object] = []

    class Layout(TensorLayout):
        def __init__(self, tensor: torch.Tensor) -> None:
            super().__init__(tensor)
            made.append(self)
            if len(made) == 1:  # as another thread would, while Python runs here
                made.append(native(tensor).layout)

    native = native_core.state_of(Layout, TensorState)
    x = torch.ones(3, 5)
    assert native(x).layout is native(x).layout is made[-1]


def test_very_many_forms_do_not_stay(native_core) -> None:
    made = 0

    def layout(tensor: torch.Tensor) -> object:
        nonlocal made
        made += 1
        return object()

    native, x = native_core.state_of(layout, TensorState), torch.ones(200, 200)
    for count in (2, 1):
        for rows in range(1, 201):
            for columns in range(1, 102):
                native(x[:rows, :columns])
        assert made == 20_200 * (3 - count)  # 20,000 are kept, so the first are gone


def test_inside_vmap_the_state_is_pythons(native_core) -> None:
    native, seen = native_core.state_of(TensorLayout, TensorState), []
    torch.vmap(lambda x: (seen.append(native(x)), x)[1])(torch.ones(2, 3))
    assert seen == [NotImplemented]
