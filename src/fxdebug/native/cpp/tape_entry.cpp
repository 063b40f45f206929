// One operation of a tape: its arguments as codes, the call, its result, and the entry that is made of them.
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>

#include "codes.h"
#include "own_time.h"
#include "python_error.h"
#include "tensor_facts.h"
#include "user_line.h"
#include "value_table.h"

namespace fxdebug {

namespace {

// What an operation needs of its run, in the order in which Python passes it (capture/tape/tape_mode.py).
struct Needs {
  PyObject *stacks, *metadata, *values, *kinds, *is_unusual, *refs, *entry, *atoms, *contexts, *context_now, *no_kwargs,
      *elsewhere, *as_called_there, *lines;
  LineSearch search;

  static const Needs& in(PyObject* tuple) {
    return *reinterpret_cast<const Needs*>(&PyTuple_GET_ITEM(tuple, 0));  // the items of a tuple lie in a row
  }
};
constexpr Py_ssize_t kNeeds = sizeof(Needs) / sizeof(PyObject*);

// An operation while it runs.
struct Operation {
  const Needs& needs;
  PyObject* call_tape;  // of the innermost open call
  Coding coding;
};

// Is every tensor among the arguments as it was when an operation last saw it?
bool are_as_noted(const Operation& operation) {
  const bool with_gradients = c10::GradMode::is_enabled();
  for (Py_ssize_t index = 0; index < PyList_GET_SIZE(operation.coding.refs.get()); ++index) {
    PyObject* ref = PyList_GET_ITEM(operation.coding.refs.get(), index);
    const Object object = referent(ref);
    const at::Tensor* tensor = object ? plain_tensor(object.get()) : nullptr;
    if (!tensor || !has_version(operation.coding.values, ref, *tensor)) return false;
    if (with_gradients && !has_flag(operation.coding.values, ref, *tensor)) return false;
  }
  return true;
}

// Notes the gradient flags of the arguments after the operation. False if it wrote to one of them, or on an error.
bool note_unwritten(const Operation& operation) {
  const Slot& requires_grad = operation.coding.values->slots.requires_grad;
  for (Py_ssize_t index = 0; index < PyList_GET_SIZE(operation.coding.refs.get()); ++index) {
    PyObject* ref = PyList_GET_ITEM(operation.coding.refs.get(), index);
    const Object object = referent(ref);
    if (!object) continue;  // an iterator gave it, and it is gone
    const at::Tensor* tensor = plain_tensor(object.get());
    if (!tensor || !has_version(operation.coding.values, ref, *tensor)) return false;
    if (!requires_grad.set(ref, tensor->requires_grad() ? Py_True : Py_False)) return false;
  }
  return true;
}

// Is it a line of Python's import system? Then the operation belongs to a library, not to the body.
bool is_of_import(PyObject* line) {
  static const Name code_name("code"), file_name("co_filename");
  static PyObject* const beginning = PyUnicode_InternFromString("<frozen importlib");
  if (line == Py_None) return false;
  const Object code = code_name.of(line), file = code ? file_name.of(code.get()) : Object();
  return file && PyUnicode_Check(file.get()) && PyUnicode_Tailmatch(file.get(), beginning, 0, PY_SSIZE_T_MAX, -1) == 1;
}

// The entry -------------------------------------------------------------------------------------------------------

// The entry of a result that the table has, if its layout and its gradient flag are those of its first value.
bool is_as_at_first(Values* values, PyObject* ref, PyObject* id, PyObject* object, const at::Tensor& tensor) {
  static const Name requires_grad("requires_grad");
  const Object state = values->slots.state.of(ref), value = values->slots.value.of(ref);
  if (!state || !value || !PyTuple_Check(state.get())) return false;
  const Py_ssize_t number = PyLong_AsSsize_t(id);
  if (number < 0 || number >= PyList_GET_SIZE(values->first_values)) return false;
  return PyList_GET_ITEM(values->first_values, number) == value.get() && is_ordinary(tensor) &&
         PyTuple_GET_ITEM(state.get(), 0) == layout_of(tensor, object, values->layout).get() &&
         requires_grad.of(value.get()).get() == (tensor.requires_grad() ? Py_True : Py_False);
}

// Notes an operation that ran, in the usual case. 0: not the usual case; -1: an error.
int note(Operation& operation, PyObject* func, PyObject* args, PyObject* kwargs, PyObject* result, PyObject* frame) {
  static const Name code_name("code"), line_name("line"), entries_name("entries");
  const Slots& slots = operation.coding.values->slots;
  const Needs& needs = operation.needs;
  const at::Tensor* tensor = plain_tensor(result);
  if (!tensor || !operation.coding.is_plain || !note_unwritten(operation)) return PyErr_Occurred() ? -1 : 0;
  const Object inside = code_name.of(operation.call_tape), called = line_name.of(operation.call_tape);
  const Object line = inside && called
                          ? user_line(needs.search, needs.lines, Object::borrowed(frame), inside.get(), called.get())
                          : Object();
  if (!line) return -1;
  if (is_of_import(line.get())) return 0;
  const Object known = known_ref(operation.coding.values, result);
  if (PyErr_Occurred()) return -1;
  const Object ref = known ? Object::borrowed(known.get()) : ref_of(operation.coding.values, result);
  const Object out = ref ? slots.tensor_id.of(ref.get()) : Object();
  if (!out) return PyErr_Occurred() ? -1 : 0;
  if (known && !is_as_at_first(operation.coding.values, known.get(), out.get(), result, *tensor))
    return PyErr_Occurred() ? -1 : 0;
  const Object context = context_now(needs.contexts, needs.context_now);
  const Object value = context ? slots.value.of(ref.get()) : Object();
  const Object entries = value ? entries_name.of(operation.call_tape) : Object();
  if (!entries) return -1;
  const Object entry =
      new_entry(needs.entry, {func, args, kwargs, out.get(), context.get(), line.get(), value.get(), Py_None});
  if (!entry) return -1;
  return PyList_Append(entries.get(), entry.get()) < 0 ? -1 : 1;
}

enum class Kind { kUsual, kByArguments, kWarns, kNotedByPython, kRunByPython };

// How the tape treats a function; Python is asked once for each function of a run.
Kind kind_of(const Needs& needs, PyObject* func) {
  PyObject* known = PyDict_GetItemWithError(needs.kinds, func);
  const Object kind =
      known || PyErr_Occurred() ? Object::borrowed(known) : Object(PyObject_CallOneArg(needs.is_unusual, func));
  if (!kind || (!known && PyDict_SetItem(needs.kinds, func, kind.get()) < 0)) return Kind::kRunByPython;
  if (kind.get() == Py_Ellipsis) return Kind::kWarns;
  if (PyCallable_Check(kind.get())) return Kind::kByArguments;
  return kind.get() == Py_False ? Kind::kUsual : kind.get() == Py_True ? Kind::kNotedByPython : Kind::kRunByPython;
}

// May an operation be noted here, by its kind? For some kinds a function tells which arguments it writes to unseen.
bool is_noted_here(const Needs& needs, Kind kind, PyObject* func, const Object& codes, const Object& named) {
  if (kind != Kind::kByArguments) return kind == Kind::kUsual || kind == Kind::kWarns;
  const Object written_by = Object::borrowed(PyDict_GetItemWithError(needs.kinds, func));
  PyObject* arguments[] = {func, codes.get(), named.get()};
  const Object written(written_by ? PyObject_Vectorcall(written_by.get(), arguments, 3, nullptr) : nullptr);
  if (!written && !is_interrupted()) PyErr_Clear();
  return written && PyTuple_CheckExact(written.get()) && !PyTuple_GET_SIZE(written.get());
}

// Notes an operation that raised, for a body that catches the exception, and leaves the exception set.
void note_raised(const Operation& operation, PyObject* func, const Object& codes, const Object& named) {
  static const Name name("note_raised");
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return;
  const Object error = caught(), both(PyTuple_Pack(2, codes.get(), named.get()));
  const Object done(both ? PyObject_CallMethodObjArgs(operation.coding.tape, name.text(), operation.call_tape, func,
                                                      both.get(), error.get(), nullptr)
                         : nullptr);
  if (!done && is_interrupted()) return;
  put_back(error);  // in the place of what our own call may have raised
}

PyObject* run(PyObject* func, PyObject* args, PyObject* kwargs) { return PyObject_Call(func, args, kwargs); }

// The operation that this thread runs, while it does.
class Running {
 public:
  explicit Running(PyObject* func) : before_(std::exchange(now, func)) {}
  ~Running() { now = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  static thread_local PyObject* now;  // borrowed

 private:
  PyObject* before_;
};
thread_local PyObject* Running::now = nullptr;

// A function that warns of its caller is run as if that called it (capture/torch_state/callers_frame.py).
PyObject* run_noted(const Needs& needs, Kind kind, PyObject* func, PyObject* args, PyObject* kwargs) {
  const Running running(func);
  if (kind != Kind::kWarns) return run(func, args, kwargs);
  return PyObject_CallFunctionObjArgs(needs.as_called_there, func, args, kwargs ? kwargs : Py_None, nullptr);
}

// As run_op, for an operation that came to the core at a time.
PyObject* run_op_since(double came, PyObject* self, PyObject* const* arguments, Py_ssize_t given) {
  static const Name own_time_name("own_time"), note_name("_note"), failed_name("note_failed"), plain_name("plain"),
      items_left("items_left");
  const Needs& needs = Needs::in(self);
  const auto elsewhere = [&needs]() -> PyObject* {
    if (is_interrupted()) return nullptr;
    PyErr_Clear();
    return Object::borrowed(needs.elsewhere).release();
  };
  if (given != 4 || PyTuple_GET_SIZE(self) != kNeeds) {
    PyErr_SetString(PyExc_TypeError, "run_op takes a tape, a function, args and kwargs");
    return nullptr;
  }
  PyObject *tape = arguments[0], *func = arguments[1], *args = arguments[2];
  PyObject* kwargs = arguments[3] == Py_None ? nullptr : arguments[3];
  const int is_query = PySet_Contains(needs.metadata, func);
  if (is_query > 0) return run(func, args, kwargs);
  if (is_query < 0) PyErr_Clear();
  Values* values = values_in(needs.values);
  const bool is_ready = values && PyTuple_CheckExact(args) && is_unobserved() &&
                        !at::impl::PythonTorchFunctionTLS::stack_len();  // inside ours, ours is not on it
  const Kind kind_of_func = is_ready ? kind_of(needs, func) : Kind::kRunByPython;
  if (kind_of_func == Kind::kRunByPython) return elsewhere();
  const Object thread(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
  PyObject* open = thread ? PyDict_GetItemWithError(needs.stacks, thread.get()) : nullptr;
  if (!open || !PyList_Check(open) || !PyList_GET_SIZE(open)) {
    return elsewhere();
  }
  const Object calls = Object::borrowed(open);
  const Object call_tape = Object::borrowed(PyList_GET_ITEM(open, PyList_GET_SIZE(open) - 1));
  const Object own_time = own_time_name.of(open);
  Operation operation{needs, call_tape.get(), {tape, needs.atoms, needs.no_kwargs, values, new_object(needs.refs)}};
  if (!own_time || !operation.coding.refs) {
    return elsewhere();
  }
  Object codes, named;
  bool is_usual = false;
  try {
    codes = codes_of(operation.coding, args);
    if (codes) named = codes_of_named(operation.coding, kwargs);
    is_usual = named && are_as_noted(operation);
  } catch (const std::exception&) {
    return elsewhere();
  }
  if (is_usual && !operation.coding.is_plain) {
    const Object plain = plain_name.of(operation.coding.refs.get()), left = items_left.of(operation.coding.refs.get());
    is_usual = plain && left && PyLong_AsLong(left.get()) >= 0;
    operation.coding.is_plain = is_usual && plain.get() == Py_True;
  }
  if (!is_usual || PyErr_Occurred() || !add_seconds(own_time.get(), seconds_now() - came)) {
    return elsewhere();
  }

  Object result(run_noted(needs, kind_of_func, func, args, kwargs));
  if (!result) {
    note_raised(operation, func, codes, named);
    return nullptr;
  }
  const double returned = seconds_now();
  const Object frame = innermost_frame();
  int noted = 0;
  if (frame && is_noted_here(needs, kind_of_func, func, codes, named)) {
    try {
      noted = note(operation, func, codes.get(), named.get(), result.get(), frame.get());
    } catch (const std::exception&) {
      noted = 0;
    }
  }
  if (noted == 0 && !is_interrupted()) {
    const Object both(PyTuple_Pack(2, codes.get(), named.get()));
    const Object done(both ? PyObject_CallMethodObjArgs(tape, note_name.text(), call_tape.get(), func, both.get(),
                                                        operation.coding.refs.get(), result.get(),
                                                        frame ? frame.get() : Py_None, nullptr)
                           : nullptr);
    if (!done) noted = -1;
  }
  if (is_interrupted()) return nullptr;
  if (noted < 0) {
    const Object error = caught();
    const Object done(PyObject_CallMethodObjArgs(tape, failed_name.text(), call_tape.get(), error.get(), nullptr));
    if (is_interrupted()) return nullptr;
    PyErr_Clear();
  }
  if (!add_seconds(own_time.get(), seconds_now() - returned) && !is_interrupted()) PyErr_Clear();
  return PyErr_Occurred() ? nullptr : result.release();
}

// run_op(tape, func, args, kwargs): runs an operation and notes it; `elsewhere`, before it has run, for a case that is
// not the usual one. (NotImplemented may be the operation's own result.)
PyObject* run_op(PyObject* self, PyObject* const* arguments, Py_ssize_t given) {
  return run_op_since(seconds_now(), self, arguments, given);
}

// torch_function(tape, func, types, args, kwargs): the method of a tape, which has no frame: a warning of torch's C++
// names the innermost one, which called the operation.
PyObject* torch_function(PyObject* self, PyObject* const* arguments, Py_ssize_t given) {
  static const Name run_op_name("_run_op"), stepper_name("stepper");
  const double came = seconds_now();
  PyObject *in_python = PyTuple_GET_ITEM(self, 0), *elsewhere = PyTuple_GET_ITEM(self, 1);
  if (given == 4 || given == 5) {
    const Object run = run_op_name.of(arguments[0]), stepper = run ? stepper_name.of(arguments[0]) : Object();
    if (stepper && stepper.get() == Py_None && PyCFunction_Check(run.get())) {
      PyObject* const passed[] = {arguments[0], arguments[1], arguments[3], given == 5 ? arguments[4] : Py_None};
      Object result(run_op_since(came, PyCFunction_GET_SELF(run.get()), passed, 4));
      if (result.get() != elsewhere) return result.release();
    }
    if (is_interrupted()) return nullptr;
    PyErr_Clear();
  }
  return PyObject_Vectorcall(in_python, arguments, given, nullptr);
}

// as_method(function): the function as a method of the classes that have it as an attribute.
PyObject* as_method(PyObject*, PyObject* const* arguments, Py_ssize_t given) {
  return given == 1 ? PyInstanceMethod_New(arguments[0]) : nullptr;
}

// running_op(): the operation that this thread runs and notes in the core; None where it runs none.
PyObject* running_op(PyObject*, PyObject* const*, Py_ssize_t) {
  return Object::borrowed(Running::now ? Running::now : Py_None).release();
}

PyCFunction as_function(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef run_op_way = {"run_op", as_function(run_op), METH_FASTCALL, "Run an operation and note it on the tape."};
PyMethodDef torch_function_way = {"torch_function", as_function(torch_function), METH_FASTCALL,
                                  "Run and note an operation without a frame."};
PyMethodDef as_method_way = {"as_method", as_function(as_method), METH_FASTCALL, "Make a method of a function."};
PyMethodDef running_op_way = {"running_op", as_function(running_op), METH_FASTCALL, "Return the running operation."};

}  // namespace

bool add_tape_entry(PyObject* module) {
  return add_way(module, &run_op_way) && add_way(module, &torch_function_way) && add_way(module, &as_method_way) &&
         add_way(module, &running_op_way);
}

}  // namespace fxdebug
