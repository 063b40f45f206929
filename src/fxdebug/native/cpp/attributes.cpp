// The attributes of a module before and after its call (capture/tape/earlier_attributes.py).
#include "core.h"
#include "python_object.h"

namespace fxdebug {

namespace {

constexpr Py_ssize_t kMostItems = 1000;  // of a container

bool is_container(PyObject* thing) {
  return (PyDict_CheckExact(thing) && PyDict_GET_SIZE(thing) < kMostItems) ||
         (PyList_CheckExact(thing) && PyList_GET_SIZE(thing) < kMostItems);
}

Object copy_of(PyObject* container) {
  const bool is_dict = PyDict_CheckExact(container);
  return Object(is_dict ? PyDict_Copy(container) : PyList_GetSlice(container, 0, PyList_GET_SIZE(container)));
}

// The lists and dicts among attributes, each with a copy; not those that every module has.
Object containers_in(PyObject* attributes, PyObject* of_all) {
  Object found(PyList_New(0));
  PyObject *name, *thing;
  for (Py_ssize_t at = 0; found && PyDict_Next(attributes, &at, &name, &thing);) {
    if (!is_container(thing)) continue;
    const int is_of_all = PySet_Contains(of_all, name);
    if (is_of_all > 0) continue;
    const Object copy = copy_of(thing);
    const Object pair(copy ? PyTuple_Pack(2, thing, copy.get()) : nullptr);
    if (is_of_all < 0 || !pair || PyList_Append(found.get(), pair.get()) < 0) return {};
  }
  return found;
}

// attributes_now(module); needs (Noted, the attributes of all modules).
PyObject* attributes_now(PyObject* needs, PyObject* module) {
  static const Name buffers_name("_buffers"), module_name("__module__");
  static PyObject* const of_torch = PyUnicode_InternFromString("torch.nn.modules.");
  const Object place = module_name.of(reinterpret_cast<PyObject*>(Py_TYPE(module)));
  const Object attributes(PyObject_GenericGetDict(module, nullptr));
  if (!place || !PyUnicode_Check(place.get()) || !attributes || !PyDict_CheckExact(attributes.get())) {
    return not_mine_unless_interrupted();
  }
  const Object kept = Object::borrowed(PyDict_GetItemWithError(attributes.get(), buffers_name.text()));
  PyObject* buffers = kept.get();
  if (!buffers || !PyDict_CheckExact(buffers) ||
      PyUnicode_Tailmatch(place.get(), of_torch, 0, PY_SSIZE_T_MAX, -1) == 1) {
    Py_RETURN_NONE;
  }
  const Object copy(PyDict_Copy(attributes.get())), buffers_copy(PyDict_Copy(buffers));
  const Object containers = copy ? containers_in(copy.get(), PyTuple_GET_ITEM(needs, 1)) : Object();
  if (!buffers_copy || !containers) return nullptr;
  auto* kind = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(needs, 0));  // a named tuple
  Object noted(kind->tp_alloc(kind, 3));
  if (!noted) return nullptr;
  PyObject* parts[] = {copy.get(), buffers_copy.get(), containers.get()};
  for (Py_ssize_t index = 0; index < 3; ++index) {
    PyTuple_SET_ITEM(noted.get(), index, Object::borrowed(parts[index]).release());
  }
  return noted.release();
}

// Have two dicts the same objects in the same order? `with_keys`: under the same names, too.
bool are_same(PyObject* before, PyObject* now, bool with_keys) {
  if (PyDict_GET_SIZE(before) != PyDict_GET_SIZE(now)) return false;
  PyObject *name, *thing, *name_now, *thing_now;
  Py_ssize_t at = 0, at_now = 0;
  while (PyDict_Next(before, &at, &name, &thing)) {
    if (!PyDict_Next(now, &at_now, &name_now, &thing_now) || thing != thing_now) return false;
    if (with_keys && name != name_now) return false;
  }
  return true;
}

bool are_same_lists(PyObject* before, PyObject* now) {
  if (PyList_GET_SIZE(before) != PyList_GET_SIZE(now)) return false;
  for (Py_ssize_t index = 0; index < PyList_GET_SIZE(now); ++index) {
    if (PyList_GET_ITEM(before, index) != PyList_GET_ITEM(now, index)) return false;
  }
  return true;
}

bool are_same_containers(PyObject* containers) {
  for (Py_ssize_t index = 0; index < PyList_GET_SIZE(containers); ++index) {
    PyObject* pair = PyList_GET_ITEM(containers, index);
    PyObject *now = PyTuple_GET_ITEM(pair, 0), *before = PyTuple_GET_ITEM(pair, 1);
    if (PyDict_CheckExact(now) ? !are_same(before, now, true) : !are_same_lists(before, now)) return false;
  }
  return true;
}

// is_unchanged(module, noted). Python looks once more where something differs: names may be equal, and not the same.
PyObject* is_unchanged(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  static const Name buffers_name("_buffers");
  PyObject* noted = count == 2 ? arguments[1] : nullptr;
  if (!noted || !PyTuple_Check(noted) || PyTuple_GET_SIZE(noted) != 3) return not_mine();
  const Object attributes(PyObject_GenericGetDict(arguments[0], nullptr));
  const bool is_dict = attributes && PyDict_CheckExact(attributes.get());
  PyObject* buffers = is_dict ? PyDict_GetItemWithError(attributes.get(), buffers_name.text()) : nullptr;
  PyErr_Clear();
  if (!buffers || !PyDict_CheckExact(buffers)) return not_mine();
  if (are_same(PyTuple_GET_ITEM(noted, 0), attributes.get(), false) &&
      are_same(PyTuple_GET_ITEM(noted, 1), buffers, false) && are_same_containers(PyTuple_GET_ITEM(noted, 2))) {
    Py_RETURN_TRUE;
  }
  return not_mine();
}

PyMethodDef attributes_now_way = {"attributes_now", attributes_now, METH_O,
                                  "Return the attributes and buffers of a module."};
PyMethodDef is_unchanged_way = {"is_unchanged",
                                reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(is_unchanged)),
                                METH_FASTCALL, "Has a module the attributes that were noted?"};

}  // namespace

bool add_attributes(PyObject* module) {
  return add_way(module, &attributes_now_way) && add_way(module, &is_unchanged_way);
}

}  // namespace fxdebug
