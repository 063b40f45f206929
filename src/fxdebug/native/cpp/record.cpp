// Records: instances of frozen dataclasses with slots, made of their fields by position, by the thousand.
#include "core.h"
#include "python_object.h"

namespace fxdebug {

namespace {

// What a constructor needs: the class, the descriptors of its fields in order, and the defaults of the last of them.
struct Needs {
  PyObject *kind, *fields, *defaults;
};

bool set_field(PyObject* record, PyObject* field, PyObject* content) {
  return Py_TYPE(field)->tp_descr_set(field, record, content) == 0;
}

PyObject* record(PyObject* self, PyObject* const* arguments, Py_ssize_t given) {
  const auto& needs = *reinterpret_cast<const Needs*>(&PyTuple_GET_ITEM(self, 0));
  const Py_ssize_t count = PyTuple_GET_SIZE(needs.fields), defaults = PyTuple_GET_SIZE(needs.defaults);
  if (given > count || given < count - defaults) {
    PyErr_Format(PyExc_TypeError, "%R has %zd fields, not %zd", needs.kind, count, given);
    return nullptr;
  }
  Object made = new_object(needs.kind);
  for (Py_ssize_t index = 0; made && index < count; ++index) {
    PyObject* content = index < given ? arguments[index] : PyTuple_GET_ITEM(needs.defaults, index - (count - defaults));
    if (!set_field(made.get(), PyTuple_GET_ITEM(needs.fields, index), content)) return nullptr;
  }
  if (made) is_in_no_cycle(made.get());
  return made.release();
}

PyMethodDef record_way = {"record", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(record)), METH_FASTCALL,
                          "Return a record with these fields."};

}  // namespace

bool add_records(PyObject* module) { return add_way(module, &record_way); }

}  // namespace fxdebug
