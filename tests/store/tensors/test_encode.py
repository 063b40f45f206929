"""Every kind of tensor is taken apart into dense ones that safetensors holds, and comes back bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.store.tensors.encode import Pieces, decode_tensor, digest_of, encode_tensor

X = torch.tensor([[0.0, 1.5, -2.0], [3.0, 0.0, 0.25]])
SPARSE = torch.tensor([[1.0, 0, 0, 0], [0, 2.0, 3.0, 0], [0, 0, 0, 4.0], [0, 0, 0, 0]])


def value_of(tensor: Tensor) -> Value:
    dtype, layout = str(tensor.dtype).removeprefix("torch."), str(tensor.layout).removeprefix("torch.")
    shape = (0,) if tensor.is_nested else tuple(tensor.shape)
    return Value(0, shape, dtype, "cpu", layout, None, 0, type(tensor).__name__, False)


def parts_of(tensor: Tensor) -> dict[str, Tensor]:
    """The parts of a tensor, written as safetensors and read back."""
    return load(save({f"value{name}": part for name, part in encode_tensor(tensor).items()}))


def came_back(tensor: Tensor) -> Tensor:
    return decode_tensor(value_of(tensor), {name[5:]: part for name, part in parts_of(tensor).items()})


DENSE: dict[str, Callable[[], Tensor]] = {
    "rows": lambda: X,
    "transposed": lambda: X.T,
    "no dimension": lambda: torch.tensor(7.5),
    "no element": lambda: torch.empty(0, 3),
    "a parameter": lambda: torch.nn.Parameter(X),
    "expanded": lambda: X[:, :1].expand(2, 5),
    "booleans": lambda: X > 0,
    "bfloat16": lambda: X.bfloat16(),
    "8 bits": lambda: X.to(torch.float8_e4m3fn),
    "unsigned": lambda: torch.tensor([1, 2**63], dtype=torch.uint64),
    "complex": lambda: torch.complex(X, X + 1),
    "complex of double width": lambda: torch.complex(X.double(), X.double() + 1),
    "conjugated": lambda: torch.complex(X, X + 1).conj(),
    "negated": lambda: torch.complex(X, X + 1).conj().imag,
    "not a number": lambda: torch.tensor([float("nan"), float("inf"), -0.0]),
}


@pytest.mark.parametrize("kind", DENSE)
def test_a_dense_tensor_is_one_part_and_comes_back_with_every_bit(kind: str) -> None:
    tensor = DENSE[kind]().detach()
    back = came_back(DENSE[kind]())
    assert list(parts_of(tensor)) == ["value"]
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert bits_of(back) == bits_of(tensor)


def bits_of(tensor: Tensor) -> list[int]:
    plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).tolist() if plain.numel() else []


def test_an_expanded_dimension_is_kept_once() -> None:
    assert encode_tensor(X[:, :1].expand(2, 5))[""].shape == (2, 1)
    assert encode_tensor(torch.ones(()).expand(4, 4))[""].shape == (1, 1)


SPREAD: dict[str, tuple[Callable[[], Tensor], list[str]]] = {
    "coo": (lambda: SPARSE.to_sparse(), [".indices", ".values"]),
    "csr": (lambda: SPARSE.to_sparse_csr(), [".compressed", ".plain", ".values"]),
    "csc": (lambda: SPARSE.to_sparse_csc(), [".compressed", ".plain", ".values"]),
    "bsr": (lambda: SPARSE.to_sparse_bsr((2, 2)), [".compressed", ".plain", ".values"]),
    "bsc": (lambda: SPARSE.to_sparse_bsc((2, 2)), [".compressed", ".plain", ".values"]),
    "complex coo": (lambda: torch.complex(SPARSE, 2 * SPARSE).to_sparse(), [".indices", ".values"]),
}


@pytest.mark.parametrize("layout", SPREAD)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_comes_back_in_its_layout(layout: str) -> None:
    make, names = SPREAD[layout]
    back = came_back(make())
    assert sorted(encode_tensor(make())) == names
    assert (back.layout, back.dtype, back.shape) == (make().layout, make().dtype, make().shape)
    assert torch.equal(back.to_dense(), make().to_dense())


@pytest.mark.filterwarnings("ignore:Sparse")
def test_indices_that_are_named_twice_are_added_up_first() -> None:
    twice = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 5.0], (3,))
    parts = encode_tensor(twice)
    assert (parts[".indices"].tolist(), parts[".values"].tolist()) == ([[0, 2]], [3.0, 5.0])


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_a_nested_tensor_comes_back_as_its_parts(layout: torch.layout) -> None:
    rows = [torch.ones(2, 3), torch.arange(12.0).view(4, 3)]
    nested = torch.nested.nested_tensor(rows, layout=layout)
    back = came_back(nested)
    assert encode_tensor(nested)[".sizes"].tolist() == [[2, 3], [4, 3]]
    assert back.layout is layout and [part.tolist() for part in back.unbind()] == [row.tolist() for row in rows]


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_a_quantised_tensor_comes_back_with_its_scale_and_zero_point() -> None:
    whole = torch.quantize_per_tensor(X, 0.25, 3, torch.qint8)
    by_row = torch.quantize_per_channel(X, torch.tensor([0.25, 0.5]), torch.tensor([3, 1]), 0, torch.qint8)
    assert sorted(encode_tensor(whole)) == [".scale", ".whole", ".zero"]
    assert sorted(encode_tensor(by_row)) == [".axis", ".scale", ".whole", ".zero"]
    for one in (whole, by_row):
        back = came_back(one)
        assert back.qscheme() == one.qscheme() and torch.equal(back.int_repr(), one.int_repr())
        assert torch.equal(back.dequantize(), one.dequantize())


def test_a_tensor_without_data_is_refused() -> None:
    with pytest.raises(ValueError, match="a meta tensor has no data"):
        encode_tensor(torch.empty(2, device="meta"))


def test_what_has_a_dimension_and_is_dense_can_be_written_in_pieces() -> None:
    assert [Pieces.can_hold(each) for each in (X, X.T, torch.nn.Parameter(X))] == [True] * 3
    others = [
        torch.tensor(1.0),
        SPARSE.to_sparse(),
        torch.empty(2, device="meta"),
        torch.quantize_per_tensor(X, 1, 0, torch.qint8),
    ]
    assert [Pieces.can_hold(each) for each in others] == [False] * 4


@pytest.mark.parametrize("most", [1, 4, 8, 12, 20, 24, 1000])
@pytest.mark.parametrize("kind", ["rows", "transposed", "expanded", "complex", "bfloat16"])
def test_pieces_are_the_whole_in_the_order_of_its_elements(kind: str, most: int) -> None:
    tensor = DENSE[kind]().detach()
    whole, pieces = encode_tensor(tensor)[""], Pieces(tensor, most)
    assert (pieces.dtype, tuple(pieces.shape)) == (whole.dtype, tuple(whole.shape))
    assert torch.equal(torch.cat([piece.reshape(-1) for piece in pieces]), whole.reshape(-1))
    largest = max(most, tensor.element_size())
    assert all(piece.nbytes <= largest for piece in pieces)
    assert digest_of(value_of(tensor), {"": pieces}) == digest_of(value_of(tensor), {"": whole})


def test_a_digest_tells_dtype_shape_layout_and_every_bit() -> None:
    value = value_of(X)
    others = [X + 0.0, X.clone(), -X]
    digests = [digest_of(value, encode_tensor(each)) for each in (X, *others)]
    assert len(digests[0]) == 32 and digests[0] == digests[1] == digests[2] != digests[3]
    assert digest_of(value_of(X.view(3, 2)), encode_tensor(X)) != digests[0]
    assert digest_of(value, {".values": X}) != digests[0]
