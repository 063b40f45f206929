#include "codes.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace fxdebug {

namespace {

constexpr int kDeepest = 4;        // containers in containers; Python walks what nests deeper
constexpr Py_ssize_t kMost = 100;  // items of a container; Python counts those of large ones

Object code_of(Coding& coding, PyObject* argument, int depth);

Object coded_by_python(Coding& coding, PyObject* argument) {
  static const Name name("_code");
  coding.is_plain = false;
  return Object(PyObject_CallMethodObjArgs(coding.tape, name.text(), argument, coding.refs.get(), nullptr));
}

// The code of a list or a tuple: one of the same kind, or the tuple itself if nothing in it has another code.
Object code_of_sequence(Coding& coding, PyObject* sequence, bool is_tuple, int depth) {
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  Object made(is_tuple ? PyTuple_New(count) : PyList_New(count));
  if (!made) return made;
  bool is_same = is_tuple;
  for (Py_ssize_t index = 0; index < count; ++index) {
    if (index >= PySequence_Fast_GET_SIZE(sequence)) return {};
    const Object item = Object::borrowed(PySequence_Fast_GET_ITEM(sequence, index));
    Object code = code_of(coding, item.get(), depth + 1);
    if (!code) return code;
    is_same = is_same && code.get() == item.get();
    if (is_tuple) {
      PyTuple_SET_ITEM(made.get(), index, code.release());
    } else {
      PyList_SET_ITEM(made.get(), index, code.release());
    }
  }
  return is_same ? Object::borrowed(sequence) : std::move(made);
}

Object code_of(Coding& coding, PyObject* argument, int depth) {
  static const Name start("start"), stop("stop"), step("step");
  if (plain_tensor(argument)) {
    const Object ref = ref_of(coding.values, argument);
    if (!ref) return PyErr_Occurred() ? Object() : coded_by_python(coding, argument);
    if (PyList_Append(coding.refs.get(), ref.get()) < 0) return {};
    return coding.values->slots.tensor_id.of(ref.get());
  }
  auto* kind = reinterpret_cast<PyObject*>(Py_TYPE(argument));
  const int is_atom = PySet_Contains(coding.atoms, kind);
  if (is_atom) return is_atom < 0 ? Object() : Object::borrowed(argument);
  const bool is_tuple = PyTuple_CheckExact(argument);
  if ((is_tuple || PyList_CheckExact(argument)) && depth < kDeepest && PySequence_Fast_GET_SIZE(argument) <= kMost) {
    return code_of_sequence(coding, argument, is_tuple, depth);
  }
  if (PySlice_Check(argument) && depth < kDeepest) {
    Object bounds[] = {start.of(argument), stop.of(argument), step.of(argument)};
    for (Object& bound : bounds) {
      if (bound) bound = code_of(coding, bound.get(), depth + 1);
      if (!bound) return {};
    }
    return Object(PySlice_New(bounds[0].get(), bounds[1].get(), bounds[2].get()));
  }
  return coded_by_python(coding, argument);
}

}  // namespace

Object codes_of(Coding& coding, PyObject* args) {
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  Object codes(PyTuple_New(count));
  for (Py_ssize_t index = 0; codes && index < count; ++index) {
    Object code = code_of(coding, PyTuple_GET_ITEM(args, index), 0);
    if (!code) return code;
    PyTuple_SET_ITEM(codes.get(), index, code.release());
  }
  if (codes && coding.is_plain) is_in_no_cycle(codes.get());
  return codes;
}

Object codes_of_named(Coding& coding, PyObject* kwargs) {
  if (!kwargs || !PyDict_GET_SIZE(kwargs)) return Object::borrowed(coding.no_kwargs);
  Object codes(PyDict_New());
  PyObject *name, *argument;
  for (Py_ssize_t at = 0; codes && PyDict_Next(kwargs, &at, &name, &argument);) {
    const Object kept = Object::borrowed(argument), kept_name = Object::borrowed(name);
    const Object code = code_of(coding, argument, 0);
    if (!code || PyDict_SetItem(codes.get(), name, code.get()) < 0) return {};
  }
  return codes;
}

Object context_now(PyObject* contexts, PyObject* in_python) {
  const c10::DispatchKeySet autocast = c10::autocast_dispatch_keyset;
  const bool is_any_autocast = !(autocast - c10::impl::tls_local_dispatch_key_set().excluded_).empty();
  if (is_any_autocast) return Object(PyObject_CallNoArgs(in_python));
  PyObject* by_inference = PyTuple_GET_ITEM(contexts, c10::GradMode::is_enabled());
  return Object::borrowed(PyTuple_GET_ITEM(by_inference, c10::InferenceMode::is_enabled()));
}

namespace {

// Is it a function or method that C defines? Such a one refers to nothing of the program's.
bool is_of_c(PyObject* function) {
  return PyCFunction_CheckExact(function) || Py_IS_TYPE(function, &PyMethodDescr_Type) ||
         Py_IS_TYPE(function, &PyWrapperDescr_Type);
}

}  // namespace

Object new_entry(PyObject* kind, const Entry& entry) {
  const Object nothing_written(PyTuple_New(0)), values(PyTuple_Pack(1, entry.value));
  if (values) is_in_no_cycle(values.get());
  PyObject* facts[] = {entry.what,    entry.args, entry.kwargs, entry.out,
                       entry.context, entry.line, Py_None,      nothing_written.get(),
                       values.get(),  entry.tape, Py_None};
  constexpr Py_ssize_t count = sizeof(facts) / sizeof(PyObject*);
  auto* type = reinterpret_cast<PyTypeObject*>(kind);  // a named tuple: its items are those of a tuple
  Object made(nothing_written && values ? type->tp_alloc(type, count) : nullptr);
  if (!made) return made;
  for (Py_ssize_t index = 0; index < count; ++index) {
    Py_INCREF(facts[index]);
    PyTuple_SET_ITEM(made.get(), index, facts[index]);
  }
  if (entry.tape == Py_None && is_of_c(entry.what)) is_in_no_cycle(made.get());
  return made;
}

}  // namespace fxdebug
