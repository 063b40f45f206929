"""What a plain tensor is, in one look at its memory by machine code (the extra ``fast``).

Torch has a function for each question. While a model runs, its operations push their code out of the processor's
caches, and each of a dozen questions then costs two microseconds instead of a tenth of one. So torch is asked once
for each *kind* of tensor: sizes, strides, dtype, device and dispatch keys lie side by side in a tensor, and their bytes
are what the answers are remembered by. Only versions, addresses and the gradient flag are read as what they are.

Where torch keeps them is known for some of its versions, and tried on tensors before it is relied upon. Everywhere
else, and for whatever is not plain, :func:`glance` gives ``None``: torch has to be asked.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.aside import aside
from fxdebug.stats import machine

Glance = tuple[bytes, int, int, int, int]
"""What a kind of tensors is remembered by; storage, its data, its bytes; the version, above two flags."""
GRADIENT, VIEW = 1, 2  # it requires gradients; it is a view of another tensor, whose versions it shares
VERSIONS = ("2.13.",)  # of torch, whose tensors lie in memory as is written here

_MOST_DIMS = 5  # sizes of more dimensions lie elsewhere


@functools.cache
def glance() -> Callable[[Tensor], Glance | None] | None:
    """What looks at a tensor, a ``Tensor`` or ``Parameter`` by type, which must hold throughout; or ``None``.

    >>> look = glance()
    >>> x = torch.ones(2, 3)
    >>> look is None or look(x)[0] == look(torch.zeros(2, 3))[0] != look(x.T)[0]
    True
    """
    if not is_memory_known():
        return None
    try:
        engine = machine.Engine(_PROGRAM)
    except Exception:  # without the extra; a system that lets nobody make code, a processor unknown to llvmlite
        return None
    look: Any = engine.function("glance", machine.ONE_ARGUMENT)
    return look if _tells_the_truth(look) else None


def is_memory_known() -> bool:
    """Is this a torch whose objects are as is written down, and a CPython of 64 bits with its lock?"""
    is_usual = sys.implementation.name == "cpython" and sys.maxsize == 2**63 - 1 and object.__basicsize__ == 16
    return is_usual and torch.__version__.startswith(VERSIONS)


def _tells_the_truth(look: Callable[[Tensor], Glance | None]) -> bool:
    """Does it find in tensors what torch says of them?"""
    with aside(), torch.inference_mode(False), torch.enable_grad():
        base = torch.ones(4, 6)
        leaf = torch.ones(2, 3, requires_grad=True)
        written = torch.zeros(3, dtype=torch.bfloat16)
        written.add_(1).add_(1)
        plain = [base, base.T, base[1:, ::2], written, torch.tensor(1), torch.zeros(0, 3), torch.ones(1, 2, 1, 2, 1)]
        asked = [*plain, leaf, leaf * 2, leaf.detach(), torch.nn.Parameter(torch.ones(2)), leaf[0], base[0][1:]]
        with torch.no_grad():
            asked += [leaf[0], leaf.T[1:], leaf.detach()[0], leaf * 2, base.view(-1)]
        other = [torch.ones(1, 1, 1, 1, 1, 1)]
        with torch.inference_mode():
            other.append(torch.ones(2))
        found = [look(tensor) for tensor in asked]
        if not all(_is_true(tensor, seen) for tensor, seen in zip(asked, found)) or any(map(look, other)):
            return False
        keys = [seen[0] for seen in found[: len(plain)] if seen is not None]
        again = look(torch.ones(4, 6))
    return len(set(keys)) == len(plain) and again is not None and again[0] == keys[0]


def _is_true(tensor: Tensor, found: Glance | None) -> bool:
    if found is None:
        return False
    key, storage, data, size, state = found
    memory = tensor.untyped_storage()
    return (
        len(key) == _KEY_BYTES
        and (storage, data, size) == (memory._cdata, memory.data_ptr(), memory.nbytes())
        and state == tensor._version << 2 | VIEW * tensor._is_view() | GRADIENT * tensor.requires_grad
    )


# Where things are, in bytes from the beginning of what holds them, by their names in torch's source: THPVariable,
# TensorImpl, StorageImpl, VersionCounter, AutogradMeta. A view requires gradients if its base does.

_KEY_BYTES = 120  # sizes_and_strides_, storage_offset_, numel_, data_type_, device_opt_, flags, key_set_

_PROGRAM = f"""
define internal i1 @wishes(ptr %autograd) alwaysinline {{
  %at.function = getelementptr i8, ptr %autograd, i64 48
  %function = load ptr, ptr %at.function
  %has.function = icmp ne ptr %function, null
  %at.wish = getelementptr i8, ptr %autograd, i64 128
  %wish = load i8, ptr %at.wish
  %wished = icmp ne i8 %wish, 0
  %requires = or i1 %has.function, %wished
  ret i1 %requires
}}

define ptr @glance(ptr %self, ptr %tensor) {{
start:
  %at.impl = getelementptr i8, ptr %tensor, i64 16
  %impl = load ptr, ptr %at.impl
  %at.storage = getelementptr i8, ptr %impl, i64 16
  %storage = load ptr, ptr %at.storage
  %at.autograd = getelementptr i8, ptr %impl, i64 24
  %autograd = load ptr, ptr %at.autograd
  %at.extra = getelementptr i8, ptr %impl, i64 32
  %extra = load ptr, ptr %at.extra
  %at.counter = getelementptr i8, ptr %impl, i64 40
  %counter = load ptr, ptr %at.counter
  %key = getelementptr i8, ptr %impl, i64 56
  %dims = load i64, ptr %key
  %few = icmp ule i64 %dims, {_MOST_DIMS}
  %nothing.extra = icmp eq ptr %extra, null
  %has.storage = icmp ne ptr %storage, null
  %has.counter = icmp ne ptr %counter, null
  %usual = and i1 %few, %nothing.extra
  %has.both = and i1 %has.storage, %has.counter
  %plain = and i1 %usual, %has.both
  br i1 %plain, label %looked, label %other
other:
  %none = inttoptr i64 {id(None)} to ptr
  call void @Py_IncRef(ptr %none)
  ret ptr %none
looked:
  %has.autograd = icmp ne ptr %autograd, null
  br i1 %has.autograd, label %asked, label %found
asked:
  %own = call i1 @wishes(ptr %autograd)
  %at.view = getelementptr i8, ptr %autograd, i64 130
  %view = load i8, ptr %at.view
  %is.view = icmp ne i8 %view, 0
  br i1 %is.view, label %of.view, label %found
of.view:
  %at.info = getelementptr i8, ptr %autograd, i64 232
  %info = load i8, ptr %at.info
  %has.base = icmp ne i8 %info, 0
  br i1 %has.base, label %of.base, label %found
of.base:
  %at.base = getelementptr i8, ptr %autograd, i64 184
  %base = load ptr, ptr %at.base
  %at.theirs = getelementptr i8, ptr %base, i64 24
  %theirs = load ptr, ptr %at.theirs
  %has.theirs = icmp ne ptr %theirs, null
  br i1 %has.theirs, label %of.theirs, label %found
of.theirs:
  %bases = call i1 @wishes(ptr %theirs)
  %either = or i1 %own, %bases
  br label %found
found:
  %gradient = phi i1 [ 0, %looked ], [ %own, %asked ], [ %own, %of.view ], [ %own, %of.base ], [ %either, %of.theirs ]
  %viewed = phi i1 [ 0, %looked ], [ 0, %asked ], [ 1, %of.view ], [ 1, %of.base ], [ 1, %of.theirs ]
  %flag.1 = select i1 %gradient, i64 {GRADIENT}, i64 0
  %flag.2 = select i1 %viewed, i64 {VIEW}, i64 0
  %flags = or i64 %flag.1, %flag.2
  %at.version = getelementptr i8, ptr %counter, i64 16
  %version = load i32, ptr %at.version
  %version.wide = zext i32 %version to i64
  %version.above = shl i64 %version.wide, 2
  %state = or i64 %version.above, %flags
  %at.data = getelementptr i8, ptr %storage, i64 16
  %data = load i64, ptr %at.data
  %at.size = getelementptr i8, ptr %storage, i64 48
  %size = load i64, ptr %at.size
  %storage.number = ptrtoint ptr %storage to i64
  %found.tuple = call ptr @PyTuple_New(i64 5)
  %item.0 = call ptr @PyBytes_FromStringAndSize(ptr %key, i64 {_KEY_BYTES})
  %item.1 = call ptr @PyLong_FromLongLong(i64 %storage.number)
  %item.2 = call ptr @PyLong_FromLongLong(i64 %data)
  %item.3 = call ptr @PyLong_FromLongLong(i64 %size)
  %item.4 = call ptr @PyLong_FromLongLong(i64 %state)
  %set.0 = call i32 @PyTuple_SetItem(ptr %found.tuple, i64 0, ptr %item.0)
  %set.1 = call i32 @PyTuple_SetItem(ptr %found.tuple, i64 1, ptr %item.1)
  %set.2 = call i32 @PyTuple_SetItem(ptr %found.tuple, i64 2, ptr %item.2)
  %set.3 = call i32 @PyTuple_SetItem(ptr %found.tuple, i64 3, ptr %item.3)
  %set.4 = call i32 @PyTuple_SetItem(ptr %found.tuple, i64 4, ptr %item.4)
  ret ptr %found.tuple
}}
"""
