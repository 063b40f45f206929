#include "taped_call.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/PyInterpreter.h>

#include "codes.h"
#include "user_line.h"
#include "value_table.h"

namespace fxdebug {

namespace {

// What a call needs of its tape, in the order in which Python passes it (capture/tape/run_taped.py).
struct Needs {
  PyObject *tape, *stacks, *call_tapes, *values, *kinds, *kind_of;
  PyObject *call_tape, *refs, *entry;  // classes
  PyObject *atoms, *no_kwargs;
  PyObject* contexts;
  PyObject *context_now, *attributes_now, *is_unchanged, *changed, *note_compiled, *run_taped;  // functions
  PyObject* lines;
  LineSearch search;

  static const Needs& in(PyObject* tuple) { return *reinterpret_cast<const Needs*>(&PyTuple_GET_ITEM(tuple, 0)); }
};

// Has no tensor's gradient flag changed since the table noted it?
bool have_flags(Values* values, const Object& refs) {
  for (Py_ssize_t index = 0; index < PyList_GET_SIZE(refs.get()); ++index) {
    PyObject* ref = PyList_GET_ITEM(refs.get(), index);
    const Object object = referent(ref);
    const at::Tensor* tensor = object ? plain_tensor(object.get()) : nullptr;
    if (!tensor || !has_flag(values, ref, *tensor)) return false;
  }
  return true;
}

// The open calls of this thread.
Object open_calls(const Needs& needs) {
  const Object thread(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
  PyObject* open = thread ? PyDict_GetItemWithError(needs.stacks, thread.get()) : nullptr;
  return open && PyList_Check(open) ? Object::borrowed(open) : Object();
}

// How the tape treats the modules of a class: True, False if they keep nothing from call to call, None if all is
// Python's. Python is asked once for each class of a run.
Object kind_of(const Needs& needs, PyObject* module) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(module));
  PyObject* known = PyDict_GetItemWithError(needs.kinds, type);
  if (known || PyErr_Occurred()) return Object::borrowed(known);
  Object kind(PyObject_CallOneArg(needs.kind_of, type));
  return kind && PyDict_SetItem(needs.kinds, type, kind.get()) == 0 ? std::move(kind) : Object();
}

// Is the tape the one mode that is on in this thread?
bool is_only_mode(const Needs& needs) {
  using TLS = at::impl::PythonTorchFunctionTLS;
  return TLS::stack_len() == 1 && TLS::get_stack_at(0)->ptr(getPyInterpreter()) == needs.tape &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

// May the call change what it is given? Not so for tensors, and for what is its own code.
bool has_containers(const Needs& needs, PyObject* args, PyObject* kwargs) {
  const auto is_simple = [&needs](PyObject* argument) {
    return plain_tensor(argument) || PySet_Contains(needs.atoms, reinterpret_cast<PyObject*>(Py_TYPE(argument))) == 1;
  };
  for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(args); ++index) {
    if (!is_simple(PyTuple_GET_ITEM(args, index))) return true;
  }
  PyObject *name, *argument;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &name, &argument);) {
    if (!is_simple(argument)) return true;
  }
  return false;
}

const Name& name_line() {
  static const Name name("line");
  return name;
}

const Name& name_code() {
  static const Name name("code");
  return name;
}

// The output is a tensor that the table has. 0: it is another one; -1: an error.
int note_result(const Needs& needs, const TapedCall& call, PyObject* module, PyObject* output) {
  static const Name out_name("out"), entries_name("entries"), args_name("args"), kwargs_name("kwargs");
  Values* values = values_in(needs.values);
  const at::Tensor* tensor = plain_tensor(output);
  const Object ref = tensor ? known_ref(values, output) : Object();
  PyObject* known = ref.get();
  if (!known) return PyErr_Occurred() ? -1 : 0;
  if (c10::GradMode::is_enabled() && !has_flag(values, known, *tensor)) return PyErr_Occurred() ? -1 : 0;
  const Object line = name_line().of(call.tape.get());
  if (!line || line.get() == Py_None) return line ? 0 : -1;
  const Object id = values->slots.tensor_id.of(known), value = values->slots.value.of(known),
               entries = entries_name.of(call.parent.get());
  const Object args = args_name.of(call.tape.get()), kwargs = kwargs_name.of(call.tape.get());
  const Object context = context_now(needs.contexts, needs.context_now);
  if (!id || !value || !entries || !args || !kwargs || !context) return -1;
  const Object entry = new_entry(needs.entry, {module, args.get(), kwargs.get(), id.get(), context.get(), line.get(),
                                               value.get(), call.tape.get()});
  const bool is_noted =
      entry && out_name.set(call.tape.get(), id.get()) && PyList_Append(entries.get(), entry.get()) == 0;
  return is_noted ? 1 : -1;
}

// Takes the call off the open ones, with those above it: they ended unnoticed.
bool take_off(const TapedCall& call) {
  PyObject* stack = call.stack.get();
  for (Py_ssize_t count = PyList_GET_SIZE(stack); count; count = PyList_GET_SIZE(stack)) {
    const bool is_ours = PyList_GET_ITEM(stack, count - 1) == call.tape.get();
    if (PyList_SetSlice(stack, count - 1, count, nullptr) < 0) return false;
    if (is_ours) break;
  }
  return true;
}

}  // namespace

TapedCall enter_taped(PyObject* parts, PyObject* index, PyObject* module, PyObject* forward, PyObject* args,
                      PyObject* kwargs) {
  static const Name index_name("index"), module_name("module"), forward_name("forward"), code_attribute("__code__"),
      args_name("args"), kwargs_name("kwargs"), entries_name("entries"), context_name("context"),
      layouts_name("input_layouts"), values_name("input_values");
  const Needs& needs = Needs::in(parts);
  Coding coding{needs.tape, needs.atoms, needs.no_kwargs, values_in(needs.values), new_object(needs.refs)};
  if (!coding.values || !coding.refs) return {};
  Object codes, named;
  try {
    codes = codes_of(coding, args);
    if (codes) named = codes_of_named(coding, kwargs);
  } catch (const std::exception&) {
    return {};
  }
  if (!named || !coding.is_plain || PyErr_Occurred()) return {};
  if (c10::GradMode::is_enabled() && !have_flags(coding.values, coding.refs)) return {};
  Object layouts(PyDict_New()), values(PyDict_New()), entries(PyList_New(0));
  const Object context = context_now(needs.contexts, needs.context_now);
  if (!layouts || !values || !entries || !context) return {};
  if (note_layouts(needs.values, coding.refs.get(), layouts.get(), values.get()) <= 0) return {};
  is_in_no_cycle(layouts.get());
  is_in_no_cycle(values.get());
  Object code = code_attribute.of(forward);
  if (!code) {
    PyErr_Clear();
    code = Object::borrowed(Py_None);
  }
  TapedCall call;
  call.tape = new_object(needs.call_tape);
  call.is_usual = true;
  PyObject* tape = call.tape.get();
  const bool is_filled = tape && index_name.set(tape, index) && module_name.set(tape, module) &&
                         forward_name.set(tape, forward) && name_code().set(tape, code.get()) &&
                         args_name.set(tape, codes.get()) && kwargs_name.set(tape, named.get()) &&
                         entries_name.set(tape, entries.get()) && context_name.set(tape, context.get()) &&
                         layouts_name.set(tape, layouts.get()) && values_name.set(tape, values.get());
  if (!is_filled || PyDict_SetItem(needs.call_tapes, index, tape) < 0) return {};
  return call;
}

bool begin_taped(PyObject* parts, TapedCall& call, PyObject* module, PyObject* args, PyObject* kwargs, PyObject* line) {
  static const Name unobserved_name("unobserved"), modes_name("function_modes");
  static PyObject* const one = PyLong_FromLong(1);
  const Needs& needs = Needs::in(parts);
  if (!call.is_usual) return false;
  call.stack = open_calls(needs);
  const Py_ssize_t open = call.stack ? PyList_GET_SIZE(call.stack.get()) : 0;
  if (!open || !is_only_mode(needs) || has_containers(needs, args, kwargs)) return false;
  call.parent = Object::borrowed(PyList_GET_ITEM(call.stack.get(), open - 1));
  const Object unobserved = unobserved_name.of(call.parent.get()), kind = kind_of(needs, module);
  if (unobserved.get() != Py_None || !kind || kind.get() == Py_None) return false;
  const Object inside = name_code().of(call.parent.get()), above = name_line().of(call.parent.get());
  if (!inside || !above) return false;
  const Object asked = users_line(needs.search, needs.lines, line, inside.get(), above.get());
  call.attributes =
      kind.get() == Py_True ? Object(PyObject_CallOneArg(needs.attributes_now, module)) : Object::borrowed(Py_None);
  return asked && call.attributes && name_line().set(call.tape.get(), asked.get()) &&
         modes_name.set(call.tape.get(), one) && PyList_Append(call.stack.get(), call.tape.get()) == 0;
}

bool end_taped(PyObject* parts, const TapedCall& call, PyObject* module, PyObject* output) {
  static const Name earlier_name("earlier_attributes"), compiled_name("compiled_ops"), leave_name("leave_call");
  const Needs& needs = Needs::in(parts);
  if (!take_off(call)) return false;
  const bool is_compared = call.attributes.get() != Py_None;
  const Object is_unchanged(
      is_compared ? PyObject_CallFunctionObjArgs(needs.is_unchanged, module, call.attributes.get(), nullptr) : nullptr);
  if (is_compared && is_unchanged.get() != Py_True) {
    if (is_interrupted()) return false;
    PyErr_Clear();
    const Object earlier(PyObject_CallFunctionObjArgs(needs.changed, module, call.attributes.get(), nullptr));
    if (!earlier || (earlier.get() != Py_None && !earlier_name.set(call.tape.get(), earlier.get()))) return false;
  }
  const Object compiled = compiled_name.of(call.tape.get());
  const int is_compiled = compiled ? PyObject_IsTrue(compiled.get()) : -1;
  if (is_compiled > 0) Object(PyObject_CallOneArg(needs.note_compiled, call.tape.get()));
  if (is_compiled < 0 || PyErr_Occurred()) return false;
  const int is_noted = note_result(needs, call, module, output);
  if (is_noted) return is_noted > 0;
  return static_cast<bool>(Object(
      PyObject_CallMethodObjArgs(needs.tape, leave_name.text(), call.tape.get(), call.parent.get(), output, nullptr)));
}

bool fail_taped(PyObject* parts, const TapedCall& call, PyObject* error) {
  static const Name name("fail_call");
  const Object done(PyObject_CallMethodObjArgs(Needs::in(parts).tape, name.text(), call.tape.get(), call.parent.get(),
                                               error, nullptr));
  return take_off(call) && done;
}

TapedCall enter_in_python(PyObject* parts, PyObject* index, PyObject* module, PyObject* forward, PyObject* args,
                          PyObject* kwargs) {
  static const Name name("enter_call");
  const Needs& needs = Needs::in(parts);
  const Object context = context_now(needs.contexts, needs.context_now);
  TapedCall call;
  if (!context) return call;
  call.tape = Object(PyObject_CallMethodObjArgs(needs.tape, name.text(), index, module, forward, args, kwargs,
                                                context.get(), nullptr));
  return call;
}

Object run_in_python(PyObject* parts, const TapedCall& call, PyObject* args, PyObject* kwargs, PyObject* line) {
  const Needs& needs = Needs::in(parts);
  return Object(
      PyObject_CallFunctionObjArgs(needs.run_taped, needs.tape, call.tape.get(), args, kwargs, line, nullptr));
}

}  // namespace fxdebug
