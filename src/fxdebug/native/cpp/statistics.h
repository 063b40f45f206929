// The statistics of one tensor.
#pragma once

#include "core.h"

namespace fxdebug {

// Python's Stats of a plain tensor, made by `make`: a new reference; NotImplemented where Python must measure it, and
// nullptr if Python has raised an error.
PyObject* statistics_of(const at::Tensor& tensor, PyObject* make);

}  // namespace fxdebug
