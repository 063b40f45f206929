"""The package ``onnx``, the extra of that name: its messages, and how shapes and facts are written into them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from fxdebug.data.values import UNKNOWN, Value
from fxdebug.errors import SaveError, needs
from fxdebug.features.shared.programs import protobuf_wire as wire
from fxdebug.files.write_file import write_bytes

try:
    import onnx
except ImportError as error:
    raise needs("writing ONNX", "onnx", "onnx") from error

IR_VERSION = 10  # the first with metadata of nodes, shapes inside functions, and several functions of one name
OPSET = 21

_ELEMENTS = {
    "float32": "FLOAT", "uint8": "UINT8", "int8": "INT8", "uint16": "UINT16", "int16": "INT16", "int32": "INT32",
    "int64": "INT64", "bool": "BOOL", "float16": "FLOAT16", "float64": "DOUBLE", "uint32": "UINT32",
    "uint64": "UINT64", "complex64": "COMPLEX64", "complex128": "COMPLEX128", "bfloat16": "BFLOAT16",
    "float8_e4m3fn": "FLOAT8E4M3FN", "float8_e4m3fnuz": "FLOAT8E4M3FNUZ", "float8_e5m2": "FLOAT8E5M2",
    "float8_e5m2fnuz": "FLOAT8E5M2FNUZ",
}  # fmt: skip
ELEMENT_TYPES: dict[str, int] = {dtype: onnx.TensorProto.DataType.Value(name) for dtype, name in _ELEMENTS.items()}


_INT, _STRING = int(onnx.AttributeProto.INT), int(onnx.AttributeProto.STRING)


def opsets(field: int, versions: Mapping[str, int]) -> bytes:
    """Return the operators that a model or a function uses."""
    return b"".join(
        [wire.data(field, wire.text(1, domain) + wire.number(2, version)) for domain, version in versions.items()]
    )


@functools.lru_cache(maxsize=100_000)
def _tensor_type(dtype: str, shape: tuple[int, ...]) -> bytes:
    sizes = b"".join([wire.data(1, b"" if size == UNKNOWN else wire.number(1, size)) for size in shape])
    return wire.data(2, wire.data(1, wire.number(1, ELEMENT_TYPES[dtype]) + wire.data(2, sizes)))


def value_info(name: str, value: Value) -> bytes:
    """Return name, dtype and shape of a tensor; unknown sizes are left open."""
    return wire.text(1, name) + _tensor_type(value.dtype, value.shape)


@functools.lru_cache(maxsize=10_000)
def _key(key: str) -> bytes:
    return wire.text(1, key)


def metadata(field: int, facts: Mapping[str, str | int | float]) -> bytes:
    """Return facts as the metadata of a node, a function, a graph or a model."""
    return b"".join(
        [
            wire.data(field, _key(key) + wire.text(2, fact if isinstance(fact, str) else repr(fact)))
            for key, fact in facts.items()
        ]
    )


def attributes(constants: Mapping[str, str | int]) -> bytes:
    """Return the constants of an operation as attributes of its node."""
    return b"".join([wire.data(5, _attribute(name, constant)) for name, constant in constants.items()])


def _attribute(name: str, constant: str | int) -> bytes:
    if isinstance(constant, int):
        return _key(name) + wire.number(3, constant) + wire.number(20, _INT)
    return _key(name) + wire.text(4, constant) + wire.number(20, _STRING)


def node_proto(
    operation: str,
    domain: str,
    name: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    *,
    overload: str = "",
    rest: bytes = b"",
) -> bytes:
    """Return a node; ``rest`` are its attributes and metadata."""
    parts = [wire.texts(1, inputs), wire.texts(2, outputs), wire.text(3, name), wire.text(4, operation)]
    parts += [wire.text(7, domain), wire.text(8, overload) if overload else b"", rest]
    return b"".join(parts)


def check_file(path: Path) -> None:
    """Check a file by onnx's own rules; raises its ``ValidationError``."""
    onnx.checker.check_model(str(path))


def write_model(model: bytes, path: Path) -> Path:
    """Write a model, after onnx has read it: what it cannot read is not written."""
    if len(model) >= 2**31:
        raise SaveError(f"cannot write {path}: it has {len(model) / 2**30:.1f} GiB, and ONNX allows 2")
    onnx.ModelProto.FromString(model)
    return write_bytes(path, model)
