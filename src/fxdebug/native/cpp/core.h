// What all files of the core share: tensors behind Python objects, ways that Python can ask for, and errors.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <exception>

namespace fxdebug {

// The tensor of an object whose class is torch.Tensor or Parameter itself; nullptr for any other object.
// The object keeps it alive.
const at::Tensor* plain_tensor(PyObject* object);

// The Python objects of a tensor and of its storage: new references.
PyObject* tensor_object(const at::Tensor& tensor);
PyObject* storage_object(const at::Tensor& tensor);

// The case is not the core's: Python handles it.
inline PyObject* not_mine() {
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
}

// Has the program raised what is no failure of ours, such as an interrupt (Ctrl-C)? That passes on.
inline bool is_interrupted() { return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception); }

// The case is Python's after a failure of ours, unless an interrupt is set: that is no failure, and nullptr.
inline PyObject* not_mine_unless_interrupted() {
  if (is_interrupted()) return nullptr;
  PyErr_Clear();
  return not_mine();
}

// Runs the body of a function that Python calls. Where torch throws, Python asks torch itself and sees its error.
template <class Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (const std::exception&) {
    return not_mine_unless_interrupted();
  }
}

// Adds a factory to the module, of the function's name: called with what the function needs, such as Python's classes,
// it returns the function. The function has these needs, a tuple, as its `self`. False if Python has raised an error.
bool add_way(PyObject* module, PyMethodDef* function);

// Each subject adds its ways to the module.
bool add_tensor_facts(PyObject* module);
bool add_statistics(PyObject* module);
bool add_checksums(PyObject* module);
bool add_value_table(PyObject* module);
bool add_tape_entry(PyObject* module);
bool add_weight_states(PyObject* module);
bool add_calls(PyObject* module);
bool add_module_call(PyObject* module);
bool add_records(PyObject* module);
bool add_attributes(PyObject* module);
bool add_match(PyObject* module);

}  // namespace fxdebug
