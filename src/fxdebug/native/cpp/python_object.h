// Python objects in C++: references that are let go of at the end of their scope, and attributes by name.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <utility>

namespace fxdebug {

// A counted reference, or none. Hold what a dict or a list has by one of these across any call that may run Python:
// another thread, or a finalizer, may take it out of there. A bare PyObject* is an argument of ours, whose caller holds
// it, or is used before anything else runs.
class Object {
 public:
  Object() = default;
  explicit Object(PyObject* owned) : object_(owned) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }

  static Object borrowed(PyObject* object) {
    Py_XINCREF(object);
    return Object(object);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// What a weak reference refers to; nullptr once that is gone, or for any other object.
inline Object referent(PyObject* ref) {
  if (!PyWeakref_Check(ref)) return {};
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  PyWeakref_GetRef(ref, &found);
  return Object(found);
#else
  PyObject* found = PyWeakref_GET_OBJECT(ref);
  return found == Py_None ? Object() : Object::borrowed(found);
#endif
}

// An object of a Python class, without the help of its __init__.
inline Object new_object(PyObject* kind) {
  static PyObject* const nothing = PyTuple_New(0);
  auto* type = reinterpret_cast<PyTypeObject*>(kind);
  return Object(type->tp_new(type, nothing, nullptr));
}

// Has the garbage collector pass over an object that refers to nothing that could refer to it. Records are made by the
// thousand, and looking through them for cycles takes a tenth of a run.
inline void is_in_no_cycle(PyObject* object) {
  if (PyObject_GC_IsTracked(object)) PyObject_GC_UnTrack(object);
}

// The name of an attribute. Make one where it is used, as a static variable: Python runs by then.
class Name {
 public:
  explicit Name(const char* text) : text_(PyUnicode_InternFromString(text)) {}

  Object of(PyObject* object) const { return Object(PyObject_GetAttr(object, text_)); }
  // As object.__setattr__ does, so that a frozen dataclass can be filled.
  bool set(PyObject* object, PyObject* content) const { return PyObject_GenericSetAttr(object, text_, content) == 0; }
  Object call(PyObject* object) const { return Object(PyObject_CallMethodNoArgs(object, text_)); }
  PyObject* text() const { return text_; }

 private:
  PyObject* text_;
};

// A field of a class that has it among its __slots__: one of ours, by the thousand. Python's own descriptor says where
// in the object it lies; a look-up by name would read the class and its bases, which the model has pushed out of the
// caches.
class Slot {
 public:
  Slot() = default;
  Slot(PyObject* kind, const char* name) : kind_(reinterpret_cast<PyTypeObject*>(kind)), name_(name) {
    const Object found(PyType_Check(kind) ? PyObject_GetAttr(kind, name_.text()) : nullptr);
    PyErr_Clear();
    if (!found || Py_TYPE(found.get()) != &PyMemberDescr_Type) return;
    const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(found.get())->d_member;
    if (member->type == T_OBJECT_EX && !(member->flags & READONLY)) offset_ = member->offset;
  }

  // A borrowed reference; nullptr, without an error, for what is empty or an object of another class.
  PyObject* peek(PyObject* object) const { return offset_ && Py_TYPE(object) == kind_ ? *place(object) : nullptr; }
  Object of(PyObject* object) const {
    PyObject* content = peek(object);
    return content ? Object::borrowed(content) : name_.of(object);
  }
  bool set(PyObject* object, PyObject* content) const {
    if (!offset_ || Py_TYPE(object) != kind_) return name_.set(object, content);
    Py_INCREF(content);
    Object before(std::exchange(*place(object), content));
    return true;
  }

 private:
  PyTypeObject* kind_ = nullptr;
  Name name_{""};
  Py_ssize_t offset_ = 0;

  PyObject** place(PyObject* object) const {
    return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
  }
};

// Holds a lock of Python's to the end of the scope; an error that is set stays so. Not held: acquiring it raised.
class Locked {
 public:
  explicit Locked(PyObject* lock) : lock_(lock) {
    static const Name acquire("acquire");
    is_held_ = static_cast<bool>(acquire.call(lock_));
  }
  ~Locked() {
    static const Name release("release");
    if (!is_held_) return;
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    if (!release.call(lock_)) PyErr_Clear();
    PyErr_Restore(kind, error, trace);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  bool is_held() const { return is_held_; }

 private:
  PyObject* lock_;
  bool is_held_;
};

}  // namespace fxdebug
