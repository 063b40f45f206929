#include "user_line.h"

namespace fxdebug {

namespace {

constexpr int kFrames = 64;         // that are searched for the user's line
constexpr int kCallingFrames = 32;  // that are searched for the line of a call

PyFrameObject* as_frame(const Object& frame) { return reinterpret_cast<PyFrameObject*>(frame.get()); }

Object code_of_frame(const Object& frame) {
  return Object(reinterpret_cast<PyObject*>(PyFrame_GetCode(as_frame(frame))));
}

Object line_at(const LineSearch& search, PyObject* known, const Object& frame, const Object& code) {
  const int instruction = PyFrame_GetLasti(as_frame(frame));
  const Object key(Py_BuildValue("(Ni)", PyLong_FromVoidPtr(code.get()), instruction));
  if (!key) return {};
  PyObject* noted = PyDict_GetItemWithError(known, key.get());
  if (noted || PyErr_Occurred()) return Object::borrowed(noted);
  Object line(PyObject_CallFunction(search.line, "Oi", code.get(), instruction));
  if (!line || PyDict_SetItem(known, key.get(), line.get()) < 0) return {};
  return line;
}

// Whose code this is: one of the numbers that the search has.
Object home_of(const LineSearch& search, const Object& code) {
  static const Name file_name("co_filename");
  const Object file = file_name.of(code.get());
  PyObject* known = file ? PyDict_GetItemWithError(search.homes, file.get()) : nullptr;
  if (PyErr_Occurred()) return {};
  return known ? Object::borrowed(known) : Object(PyObject_CallOneArg(search.home_of, file.get()));
}

bool is(const Object& home, PyObject* expected) {  // small integers: Python has one object of each
  return home.get() == expected;
}

}  // namespace

Object innermost_frame() { return Object::borrowed(reinterpret_cast<PyObject*>(PyEval_GetFrame())); }

Object frame_around(const Object& frame) {
  return Object(frame ? reinterpret_cast<PyObject*>(PyFrame_GetBack(as_frame(frame))) : nullptr);
}

Object user_line(const LineSearch& search, PyObject* known, Object frame, PyObject* inside, PyObject* called) {
  for (int count = 0; frame && count < kFrames; ++count) {
    const Object code = code_of_frame(frame), home = home_of(search, code);
    if (!home) return {};
    if (is(home, search.users)) return line_at(search, known, frame, code);
    if (code.get() == inside && called != Py_None) return Object::borrowed(called);
    const Object key(PyLong_FromVoidPtr(code.get()));
    const int is_entry = key ? PyDict_Contains(search.entry_points, key.get()) : -1;
    if (is_entry < 0) return {};
    if (is_entry || is(home, search.commands)) break;
    frame = frame_around(frame);
  }
  return Object::borrowed(Py_None);
}

Object users_line(const LineSearch& search, PyObject* known, PyObject* line, PyObject* inside, PyObject* called) {
  static const Name code_name("code");
  if (line != Py_None) {
    const Object code = code_name.of(line), home = code ? home_of(search, code) : Object();
    if (!home) return {};
    if (is(home, search.users)) return Object::borrowed(line);
    if (called != Py_None && code.get() == inside) return Object::borrowed(called);
  }
  return user_line(search, known, innermost_frame(), inside, called);
}

Object caller_line(const LineSearch& search, PyObject* known, Object frame) {
  for (int count = 0; frame && count < kCallingFrames; ++count) {
    const Object code = code_of_frame(frame), home = home_of(search, code);
    if (!home) return {};
    if (is(home, search.commands)) break;
    if (!is(home, search.calling)) return line_at(search, known, frame, code);
    frame = frame_around(frame);
  }
  return Object::borrowed(Py_None);
}

}  // namespace fxdebug
