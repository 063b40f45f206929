// The module that Python imports. It is the only file that includes torch's Python bindings, which are slow to compile.
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>

#include "core.h"

namespace fxdebug {

const at::Tensor* plain_tensor(PyObject* object) {
  return THPVariable_CheckExact(object) ? &THPVariable_Unpack(object) : nullptr;
}

PyObject* tensor_object(const at::Tensor& tensor) { return THPVariable_Wrap(tensor); }

PyObject* storage_object(const at::Tensor& tensor) { return THPStorage_Wrap(tensor.storage()); }

namespace {

PyObject* make_way(PyObject* function, PyObject* needs) {
  auto* definition = static_cast<PyMethodDef*>(PyCapsule_GetPointer(function, nullptr));
  return definition ? PyCFunction_NewEx(definition, needs, nullptr) : nullptr;
}

PyMethodDef factory = {"make", make_way, METH_VARARGS, "Make the native way of one function of Python's."};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "fxdebug_core",
                          "The native core of fxdebug.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

bool add_way(PyObject* module, PyMethodDef* function) {
  PyObject* capsule = PyCapsule_New(function, nullptr, nullptr);
  PyObject* made = capsule ? PyCFunction_NewEx(&factory, capsule, nullptr) : nullptr;
  Py_XDECREF(capsule);
  const bool is_added = made && PyObject_SetAttrString(module, function->ml_name, made) == 0;
  Py_XDECREF(made);
  return is_added;
}

}  // namespace fxdebug

PyMODINIT_FUNC PyInit_fxdebug_core() {
  PyObject* module = PyModule_Create(&fxdebug::definition);
  if (module && fxdebug::add_tensor_facts(module) && fxdebug::add_statistics(module) &&
      fxdebug::add_checksums(module) && fxdebug::add_value_table(module) && fxdebug::add_tape_entry(module) &&
      fxdebug::add_weight_states(module) && fxdebug::add_calls(module) && fxdebug::add_module_call(module) &&
      fxdebug::add_records(module) && fxdebug::add_attributes(module) && fxdebug::add_match(module)) {
    return module;
  }
  Py_XDECREF(module);
  return nullptr;
}
