// Python's errors in C++: taking one off, and setting it again.
#pragma once

#include "core.h"
#include "python_object.h"

namespace fxdebug {

// The exception that is set, taken off.
inline Object caught() {
  PyObject *kind, *error, *trace;
  PyErr_Fetch(&kind, &error, &trace);
  PyErr_NormalizeException(&kind, &error, &trace);
  if (trace) PyException_SetTraceback(error, trace);
  Py_XDECREF(kind);
  Py_XDECREF(trace);
  return Object(error);
}

// Sets an exception again, with its traceback and its context as they are.
inline void put_back(const Object& error) {
  auto* kind = reinterpret_cast<PyObject*>(Py_TYPE(error.get()));
  Py_INCREF(kind);
  Py_INCREF(error.get());
  PyErr_Restore(kind, error.get(), PyException_GetTraceback(error.get()));
}

}  // namespace fxdebug
