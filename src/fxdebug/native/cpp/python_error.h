// Python's errors in C++: which of them pass on to the program, and taking one off and setting it again.
#pragma once

#include "python_object.h"

namespace fxdebug {

// Has the program raised what is no failure of ours, such as an interrupt (Ctrl-C)? That passes on.
inline bool is_interrupted() { return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception); }

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
