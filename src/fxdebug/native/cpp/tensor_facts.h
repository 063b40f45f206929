// Facts about one tensor that are read without calling torch: its layout, its memory and its version.
#pragma once

#include "core.h"
#include "python_object.h"

namespace fxdebug {

// Is a tensor dense and strided, with its data in the memory of the CPU or of a CUDA device? Not so: sparse, nested,
// quantised and meta tensors, those inside a transform of functorch, freed memory, and copies that are not made yet.
bool is_ordinary(const at::Tensor& tensor);

// How often a tensor has been written to; -1 for an inference tensor, which does not count writes.
int64_t version_of(const at::Tensor& tensor);

// Python's TensorLayout of an ordinary tensor, the same object for the same layout; `kind` is that class. No reference:
// Python has raised an error.
Object layout_of(const at::Tensor& tensor, PyObject* object, PyObject* kind);

// A TensorState, `kind` being that class: of this layout, and with what the tensor's memory is now. `version` may be
// -1.
Object new_state(PyObject* kind, const at::Tensor& tensor, Object layout, int64_t version);

}  // namespace fxdebug
