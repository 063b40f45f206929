#include "recorded_call.h"

#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "own_time.h"
#include "python_error.h"
#include "taped_call.h"
#include "user_line.h"
#include "value_table.h"

namespace fxdebug {

namespace {

// What a call needs of its run, in the order in which Python passes it (capture/recorder/recorder.py).
struct Needs {
  PyObject *recorder, *stack, *frames, *counts, *sites, *values, *tape, *finish_order;  // of the recorder
  PyObject* lock;                                // of the recorder: other threads number calls, too
  PyObject* tape_parts;                          // what a call needs of the tape
  PyObject *frame, *inputs, *outputs;            // classes
  PyObject *called_as, *has_submodules, *clock;  // functions
  PyObject* has_listeners;                       // of the recorder: a bool
  PyObject* lines;
  LineSearch search;
};
constexpr Py_ssize_t kNeeds = sizeof(Needs) / sizeof(PyObject*);

struct Calls {
  PyObject_HEAD PyObject* needs;  // a tuple; nullptr: Python records what comes
  unsigned long owner;            // the thread of the run: calls in others are Python's
};
PyTypeObject* calls_type = nullptr;  // of the one module in the process

// A call while it runs. It holds references of its own: the program may end the recording meanwhile.
struct Call {
  Object held;
  const Needs& needs;
  PyObject* module;
  Object frame, own_time;
  TapedCall taped;        // where operations are recorded, too
  bool is_begun = false;  // is it among the tape's open calls? Else Python's run_taped is to run it
  bool is_on_stack = false;

  explicit Call(PyObject* tuple, PyObject* of_module)
      : held(Object::borrowed(tuple)),
        needs(*reinterpret_cast<const Needs*>(&PyTuple_GET_ITEM(tuple, 0))),  // the items of a tuple lie in a row
        module(of_module) {}
};

const Name& name_current() {
  static const Name name("current");
  return name;
}

// -1 with an error set, as PyFloat_AsDouble has it.
double seconds_of(const Object& number) { return number ? PyFloat_AsDouble(number.get()) : -1.0; }

// The clock is Python's, which an interrupt (Ctrl-C) may reach.
std::optional<double> now(const Needs& needs) {
  const double seconds = seconds_of(Object(PyObject_CallNoArgs(needs.clock)));
  return PyErr_Occurred() ? std::nullopt : std::optional<double>(seconds);
}

double own_seconds(const Call& call) {
  static const Name name("seconds");
  return seconds_of(name.of(call.own_time.get()));
}

bool add_own_seconds(const Call& call, double seconds) { return add_seconds(call.own_time.get(), seconds); }

bool set_seconds(PyObject* object, const Name& name, double seconds) {
  if (PyErr_Occurred()) return false;
  const Object number(PyFloat_FromDouble(seconds));
  return number && name.set(object, number.get());
}

// A failure of ours becomes a note of the recorder. False: an interrupt is set.
bool note_failure(const Call& call, const char* method) {
  if (!PyErr_Occurred()) return true;
  if (is_interrupted()) return false;
  const Object error = caught();
  const Object name(PyUnicode_FromString(method));
  const Object done(name ? PyObject_CallMethodOneArg(call.needs.recorder, name.get(), error.get()) : nullptr);
  if (done || is_interrupted()) return static_cast<bool>(done);
  PyErr_Clear();
  return true;
}

// Did a step of ours succeed, or became its failure a note? False: an interrupt is set.
bool is_noted(const Call& call, bool is_done, const char* method) { return is_done || note_failure(call, method); }

// Tells the listeners of the recorder, if there are some, that a call begins or is over.
bool tell(const Call& call, const Name& method) {
  if (call.needs.has_listeners != Py_True) return true;
  return static_cast<bool>(Object(PyObject_CallMethodOneArg(call.needs.recorder, method.text(), call.frame.get())));
}

// The frame of a call, numbered and in the list of all; its fields in the order of Frame.__init__. False: an error is
// set, and the frame is in no list.
bool open_frame(Call& call, PyObject* site, PyObject* parent) {
  static const Name site_name("site"), module_name("module"), index_name("index"), number_name("number"),
      parent_name("parent"), depth_name("depth"), path_name("path");
  const Needs& needs = call.needs;
  call.frame = new_object(needs.frame);
  PyObject* frame = call.frame.get();
  const Object path = path_name.of(site);
  const Object above = parent == Py_None ? Object() : depth_name.of(parent);
  const Object depth(PyLong_FromLong(above ? PyLong_AsLong(above.get()) + 1 : 0));
  if (!frame || !path || !depth || PyErr_Occurred()) return false;
  const Locked locked(needs.lock);  // another thread may be between the number of its frame and its place in the list
  if (!locked.is_held()) return false;
  PyObject* before = PyDict_GetItemWithError(needs.counts, path.get());
  if (PyErr_Occurred()) return false;
  const Object number = before ? Object::borrowed(before) : Object(PyLong_FromLong(0));
  const Object next(number ? PyLong_FromLong(PyLong_AsLong(number.get()) + 1) : nullptr);
  const Object index(PyLong_FromSsize_t(PyList_GET_SIZE(needs.frames)));
  const bool is_filled = next && index && site_name.set(frame, site) && module_name.set(frame, call.module) &&
                         index_name.set(frame, index.get()) && number_name.set(frame, number.get()) &&
                         parent_name.set(frame, parent) && depth_name.set(frame, depth.get());
  return is_filled && PyDict_SetItem(needs.counts, path.get(), next.get()) == 0 &&
         PyList_Append(needs.frames, frame) == 0;
}

// What is true of the call where it begins; fields that are as the class Frame has them are not set.
bool note_surroundings(const Call& call, PyObject* site) {
  static const Name training_name("training"), gradients_name("grad_enabled"), line_name("line"),
      aliases_name("aliases"), called_as_name("called_as");
  PyObject* frame = call.frame.get();
  const Object training = training_name.of(call.module);
  if (!training && !PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
  PyErr_Clear();
  const int is_training = training ? PyObject_IsTrue(training.get()) : 0;
  if (is_training < 0 || (is_training && !training_name.set(frame, Py_True))) return false;
  if (!c10::GradMode::is_enabled() && !gradients_name.set(frame, Py_False)) return false;
  const Object line = caller_line(call.needs.search, call.needs.lines, innermost_frame());
  if (!line || !line_name.set(frame, line.get())) return false;
  const Object aliases = aliases_name.of(site);
  if (!aliases || !PyTuple_Check(aliases.get())) return false;
  if (PyTuple_GET_SIZE(aliases.get()) < 2) return true;
  const Object called(PyObject_CallFunctionObjArgs(call.needs.called_as, call.needs.frames, frame, nullptr));
  return called && called_as_name.set(frame, called.get());
}

bool note_inputs(const Call& call, PyObject* args, PyObject* kwargs) {
  static const Name inputs_name("inputs"), args_name("args"), kwargs_name("kwargs"), in_python("_inputs");
  Object inputs, values;
  if (!PyDict_GET_SIZE(kwargs)) {
    values = values_of_all(call.needs.values, args);
    if (!values && PyErr_Occurred()) return false;
  }
  if (values) {
    const Object none(PyDict_New());
    inputs = new_object(call.needs.inputs);
    if (!inputs || !none || !args_name.set(inputs.get(), values.get()) || !kwargs_name.set(inputs.get(), none.get())) {
      return false;
    }
  } else {
    inputs = Object(PyObject_CallMethodObjArgs(call.needs.recorder, in_python.text(), args, kwargs, nullptr));
  }
  return inputs && inputs_name.set(call.frame.get(), inputs.get());
}

bool note_outputs(const Call& call, PyObject* output) {
  static const Name outputs_name("outputs"), item_name("item"), in_python("outputs_of_call");
  Object outputs;
  if (Object value = present_value(call.needs.values, output)) {
    outputs = new_object(call.needs.outputs);
    if (!outputs || !item_name.set(outputs.get(), value.get())) return false;
  } else {
    if (PyErr_Occurred()) return false;
    outputs =
        Object(PyObject_CallMethodObjArgs(call.needs.recorder, in_python.text(), call.frame.get(), output, nullptr));
  }
  return outputs && outputs_name.set(call.frame.get(), outputs.get());
}

// Takes the frame off the stack, with those above it: their calls ended unnoticed (a generator was thrown away).
bool take_off(const Call& call) {
  if (!call.is_on_stack) return true;
  PyObject* stack = call.needs.stack;
  for (Py_ssize_t count = PyList_GET_SIZE(stack); count; count = PyList_GET_SIZE(stack)) {
    const bool is_ours = PyList_GET_ITEM(stack, count - 1) == call.frame.get();
    if (PyList_SetSlice(stack, count - 1, count, nullptr) < 0) return false;
    if (is_ours) break;
  }
  return true;
}

// Has the module a child that is not None? As has_submodules in Python. -1: an error.
int has_children(const Call& call) {
  static const Name name("_modules");
  const Object children = name.of(call.module);
  if (children && PyDict_CheckExact(children.get())) {
    PyObject *key, *child;
    for (Py_ssize_t at = 0; PyDict_Next(children.get(), &at, &key, &child);) {
      if (child != Py_None) return 1;
    }
    return 0;
  }
  if (is_interrupted()) return -1;
  PyErr_Clear();
  const Object found(PyObject_CallOneArg(call.needs.has_submodules, call.module));
  return found ? PyObject_IsTrue(found.get()) : -1;
}

bool close_frame(const Call& call, double arrived) {
  static const Name duration_name("duration"), started_name("started_at"), children_name("has_submodules"),
      module_name("module"), order_name("finish_order");
  PyObject* frame = call.frame.get();
  const double started = seconds_of(started_name.of(frame));
  if (!set_seconds(frame, duration_name, arrived - own_seconds(call) - started)) return false;
  const int is_parent = has_children(call);
  if (is_parent < 0 || (is_parent && !children_name.set(frame, Py_True)) || !module_name.set(frame, Py_None)) {
    return false;
  }
  const Object order(PyIter_Next(call.needs.finish_order));
  return order && order_name.set(frame, order.get());
}

// Enters the call on the tape. False: an error is set.
bool enter_tape(Call& call, PyObject* run, PyObject* args, PyObject* kwargs) {
  static const Name index_name("index");
  const Needs& needs = call.needs;
  const Object index = index_name.of(call.frame.get());
  if (!index) return false;
  call.taped = enter_taped(needs.tape_parts, index.get(), call.module, run, args, kwargs);
  if (!call.taped.tape && !is_interrupted()) {
    PyErr_Clear();
    call.taped = enter_in_python(needs.tape_parts, index.get(), call.module, run, args, kwargs);
  }
  return static_cast<bool>(call.taped.tape);
}

// Opens the call: its frame, all that is known before it runs, and its place on the stack. A failure of ours becomes a
// note once the frame is there. False: an interrupt is set, or, without an error, nothing has happened and Python is to
// do it.
bool enter(Call& call, PyObject* site, PyObject* parent, PyObject* run, PyObject* args, PyObject* kwargs) {
  static const Name started_name("started_at"), entered_name("tell_entered");
  const Needs& needs = call.needs;
  const std::optional<double> arrived = now(needs);
  if (!arrived || !open_frame(call, site, parent)) {
    if (!is_interrupted()) PyErr_Clear();
    return false;
  }
  const auto noted = [&call](bool is_done) { return is_noted(call, is_done, "note_inputs_failed"); };
  const Object before = name_current().of(needs.stack);
  const bool is_known = noted(before && name_current().set(needs.stack, call.frame.get())) &&
                        noted(note_surroundings(call, site)) && noted(note_inputs(call, args, kwargs)) &&
                        noted(needs.tape == Py_None || enter_tape(call, run, args, kwargs)) &&
                        noted(tell(call, entered_name));
  if (!is_known || !noted(!before || name_current().set(needs.stack, before.get()))) return false;
  call.is_on_stack = PyList_Append(needs.stack, call.frame.get()) == 0;
  if (!noted(call.is_on_stack)) return false;
  const std::optional<double> ready = now(needs);
  return noted(ready && add_own_seconds(call, *ready - *arrived) &&
               set_seconds(call.frame.get(), started_name, *ready - own_seconds(call)));
}

Object run_forward(Call& call, PyObject* run, PyObject* args, PyObject* kwargs) {
  static const Name line_name("line");
  const Needs& needs = call.needs;
  if (!call.taped.tape) return Object(PyObject_Call(run, args, kwargs));
  const double began = seconds_now();
  Object line = line_name.of(call.frame.get());
  if (!line) line = Object::borrowed(Py_None);
  call.is_begun = begin_taped(needs.tape_parts, call.taped, call.module, args, kwargs, line.get());
  if (is_interrupted()) return {};
  PyErr_Clear();
  if (!call.is_begun) return run_in_python(needs.tape_parts, call.taped, args, kwargs, line.get());
  if (!add_own_seconds(call, seconds_now() - began)) PyErr_Clear();
  return Object(PyObject_Call(run, args, kwargs));
}

// Ends the call on the tape, if it began there. False: an interrupt is set.
bool end_on_tape(Call& call, PyObject* output) {
  if (!call.is_begun) return true;
  const double began = seconds_now();
  call.is_begun = false;
  const bool is_ended = end_taped(call.needs.tape_parts, call.taped, call.module, output);
  if (!is_ended && !note_failure(call, "note_outputs_failed")) return false;
  if (!add_own_seconds(call, seconds_now() - began)) PyErr_Clear();
  return true;
}

// Shows the exception that left the forward to the recorder, and leaves it set.
void fail(const Call& call) {
  static const Name name("fail_call");
  const Object error = caught();
  if (call.is_begun && !fail_taped(call.needs.tape_parts, call.taped, error.get()) && is_interrupted()) return;
  PyErr_Clear();
  const Object done(PyObject_CallMethodObjArgs(call.needs.recorder, name.text(), call.needs.stack, call.frame.get(),
                                               error.get(), nullptr));
  if (!done && is_interrupted()) return;
  PyErr_Clear();
  put_back(error);
}

// Closes a call that returned, and notes its outputs. False: an interrupt is set.
bool leave(const Call& call, PyObject* output) {
  static const Name left_name("tell_left");
  const auto noted = [&call](bool is_done) { return is_noted(call, is_done, "note_outputs_failed"); };
  if (!noted(take_off(call))) return false;
  const std::optional<double> arrived = now(call.needs);
  const Object before = arrived ? name_current().of(call.needs.stack) : Object();
  const bool is_left =
      noted(before && close_frame(call, *arrived) && name_current().set(call.needs.stack, call.frame.get()) &&
            note_outputs(call, output) && tell(call, left_name));
  if (!is_left || !before) return is_left;
  const std::optional<double> done = now(call.needs);
  return noted(name_current().set(call.needs.stack, before.get()) && done && add_own_seconds(call, *done - *arrived));
}

bool is_stepped(PyObject* output) {
  return PyGen_CheckExact(output) || PyCoro_CheckExact(output) || PyAsyncGen_CheckExact(output);
}

PyObject* new_calls(PyTypeObject* kind, PyObject* arguments, PyObject*) {
  if (PyTuple_GET_SIZE(arguments) != kNeeds) {
    PyErr_SetString(PyExc_TypeError, "Calls takes the parts of a Recorder");
    return nullptr;
  }
  const auto& needs = *reinterpret_cast<const Needs*>(&PyTuple_GET_ITEM(arguments, 0));
  if (!PyList_Check(needs.stack) || !PyList_CheckExact(needs.frames) || !PyDict_CheckExact(needs.counts) ||
      !PyDict_CheckExact(needs.sites) || !values_in(needs.values) || !PyDict_CheckExact(needs.lines)) {
    PyErr_SetString(PyExc_TypeError, "a part of a Recorder is of another kind");
    return nullptr;
  }
  Object made(kind->tp_alloc(kind, 0));
  if (!made) return nullptr;
  auto* calls = reinterpret_cast<Calls*>(made.get());
  calls->needs = Object::borrowed(arguments).release();
  calls->owner = PyThread_get_thread_ident();
  return made.release();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Calls*>(self)->needs);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Calls*>(self)->needs);
  return 0;
}

void destroy(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* stop(PyObject* self, PyObject*) {
  clear(self);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"stop", stop, METH_NOARGS, "Leave all further calls to Python."},
                         {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("The calls of one run, recorded.")},
                       {Py_tp_new, reinterpret_cast<void*>(new_calls)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"fxdebug_core.Calls", sizeof(Calls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool is_calls(PyObject* object) { return Py_TYPE(object) == calls_type; }

Object run_recorded(PyObject* object, PyObject* module, PyObject* run, PyObject* args, PyObject* kwargs, double came) {
  static const Name own_time_name("own_time"), order_name("finish_order"), relayed_name("relayed"),
      leave_name("leave_call");
  const auto leave_to_python = [] {
    if (!is_interrupted()) PyErr_Clear();
    return Object();
  };
  auto* calls = reinterpret_cast<Calls*>(object);
  if (!calls->needs || PyThread_get_thread_ident() != calls->owner) return {};
  Call call(calls->needs, module);
  const Needs& needs = call.needs;
  const Object key(PyLong_FromVoidPtr(module));
  PyObject* site = key ? PyDict_GetItemWithError(needs.sites, key.get()) : nullptr;
  if (!site) return leave_to_python();
  const Object kept_site = Object::borrowed(site);
  const Py_ssize_t open = PyList_GET_SIZE(needs.stack);
  const Object parent = Object::borrowed(open ? PyList_GET_ITEM(needs.stack, open - 1) : Py_None);
  if (open) {
    const Object order = order_name.of(parent.get());
    if (order.get() != Py_None) return leave_to_python();  // a generator: its consumer is further out
  }
  call.own_time = own_time_name.of(needs.stack);
  if (!call.own_time || !add_own_seconds(call, seconds_now() - came + std::exchange(seconds_before_call(), 0.0))) {
    return leave_to_python();
  }
  if (!enter(call, site, parent.get(), run, args, kwargs)) return {};
  Object output = run_forward(call, run, args, kwargs);
  if (!output || !end_on_tape(call, output.get())) {
    fail(call);
    return {};
  }
  if (is_stepped(output.get())) {
    const Object held(PyList_New(1));
    if (!held) return {};
    PyList_SET_ITEM(held.get(), 0, output.release());
    return Object(PyObject_CallMethodObjArgs(needs.recorder, relayed_name.text(), needs.stack, call.frame.get(), module,
                                             held.get(), nullptr));
  }
  if (!calls->needs) {  // stopped meanwhile: listeners may have come, whom only Python tells
    const Object left(PyObject_CallMethodObjArgs(needs.recorder, leave_name.text(), needs.stack, call.frame.get(),
                                                 output.get(), nullptr));
    return left ? std::move(output) : Object();
  }
  return leave(call, output.get()) ? std::move(output) : Object();
}

bool add_calls(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  calls_type = reinterpret_cast<PyTypeObject*>(type);
  return type && PyModule_AddObjectRef(module, "Calls", type) == 0;
}

}  // namespace fxdebug
