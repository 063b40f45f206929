// The way into a call: torch's call of a module, and the wrapper in front of its forward (capture/hooks).
#include <c10/util/SmallVector.h>

#include "core.h"
#include "own_time.h"
#include "python_object.h"
#include "recorded_call.h"
#include "value_table.h"

namespace fxdebug {

namespace {

// What both functions need, in the order in which Python passes it (capture/hooks/forward_wrapper.py).
struct Needs {
  PyObject *wrappers, *visible_in_thread;  // dicts
  PyObject* compiler;                      // the module torch.compiler
  PyObject* elsewhere;                     // the answer where Python is to do it

  static const Needs& in(PyObject* tuple) { return *reinterpret_cast<const Needs*>(&PyTuple_GET_ITEM(tuple, 0)); }
  PyObject* leave_to_python() const {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;  // an interrupt (Ctrl-C)
    PyErr_Clear();
    return Object::borrowed(elsewhere).release();
  }
};

// The wrapper of a module, borrowed; nullptr if there is none.
PyObject* wrapper_of(const Needs& needs, PyObject* module) {
  const Object key(PyLong_FromVoidPtr(module));
  return key ? PyDict_GetItemWithError(needs.wrappers, key.get()) : nullptr;
}

// May torch be tracing this thread? What torch.compile traces does not come here.
bool may_be_traced(const Needs& needs) {
  static const Name name("_is_exporting_flag");
  if (!is_unobserved()) return true;
  const Object flag = name.of(needs.compiler);
  if (!flag) PyErr_Clear();  // before torch 2.7
  return flag && flag.get() != Py_False;
}

// How many calls of one kind are open in this thread, each inside the one before.
class Level {
 public:
  explicit Level(int& open) : open_(open) { ++open_; }
  ~Level() { --open_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  // A call here takes a third more of the thread's stack than one in Python: a model that calls itself thousands of
  // times must come as far as it does there.
  bool is_deep() const { return open_ > 50; }

 private:
  int& open_;
};

// pass_on(module, forward, args, kwargs): the call of a wrapper, `forward` being its function. `elsewhere`, before
// anything has run, for a case that is not the usual one.
PyObject* pass_on(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  static const Name method_name("method"), of_class_name("of_class"), forward_name("forward"),
      bypassed_name("bypassed"), users_name("users"), original_name("original"), in_core_name("in_core");
  static thread_local int open = 0;
  const double came = seconds_now();
  const Level level(open);
  const Needs& needs = Needs::in(self);
  if (count != 4 || level.is_deep()) return needs.leave_to_python();
  PyObject *module = arguments[0], *forward = arguments[1];
  PyObject* found = wrapper_of(needs, module);
  const Object wrapper = Object::borrowed(found);
  if (!found || PyDict_GET_SIZE(needs.visible_in_thread) || may_be_traced(needs)) return needs.leave_to_python();
  const Object method = method_name.of(found), of_class = of_class_name.of(found), bypassed = bypassed_name.of(found),
               users = users_name.of(found);
  const bool is_usual = method && PyMethod_Check(method.get()) && PyMethod_GET_FUNCTION(method.get()) == forward &&
                        bypassed && bypassed.get() == Py_False && users && PyTuple_CheckExact(users.get()) &&
                        PyTuple_GET_SIZE(users.get()) == 1;
  if (!is_usual || !of_class) return needs.leave_to_python();
  if (of_class.get() != Py_None) {  // the program may have patched the class since
    const Object now = forward_name.of(reinterpret_cast<PyObject*>(Py_TYPE(module)));
    if (now.get() != of_class.get()) return needs.leave_to_python();
  }
  const Object calls = in_core_name.of(PyTuple_GET_ITEM(users.get(), 0));
  const Object original = calls ? original_name.of(found) : Object();
  if (!original || !is_calls(calls.get())) return needs.leave_to_python();
  Object output = run_recorded(calls.get(), module, original.get(), arguments[2], arguments[3], came);
  return output || PyErr_Occurred() ? output.release() : needs.leave_to_python();
}

// What on_call needs besides.
struct CallNeeds {
  Needs shared;
  PyObject* calls;     // the SharedPatch whose users are all observers
  PyObject* globals;   // of torch's file: hooks for all modules
  PyObject* original;  // torch's _call_impl
};

// Is there a hook on this module, or on all? Also true where that cannot be told.
bool has_hooks(const CallNeeds& needs, PyObject* module) {
  static const Name of_module[] = {Name("_forward_hooks"), Name("_forward_pre_hooks"), Name("_backward_hooks"),
                                   Name("_backward_pre_hooks")};
  static const Name of_all[] = {Name("_global_forward_hooks"), Name("_global_forward_pre_hooks"),
                                Name("_global_backward_hooks"), Name("_global_backward_pre_hooks")};
  for (const Name& name : of_all) {
    PyObject* hooks = PyDict_GetItemWithError(needs.globals, name.text());
    if (!hooks || PyObject_Size(hooks)) return true;
  }
  for (const Name& name : of_module) {
    const Object hooks = name.of(module);
    if (!hooks || PyObject_Size(hooks.get())) return true;
  }
  return false;
}

// Does the module's own wrapper see this call, and no hook around it?
bool is_covered(const CallNeeds& needs, PyObject* module) {
  static const Name method_name("method"), forward_name("forward"), users_name("users"), temporary_name("temporary");
  PyObject* found = wrapper_of(needs.shared, module);
  if (!found) return false;
  const Object wrapper = Object::borrowed(found);
  const Object own(PyObject_GenericGetDict(module, nullptr));
  const Object method = own ? method_name.of(found) : Object();
  if (!method || PyDict_GetItemWithError(own.get(), forward_name.text()) != method.get()) return false;
  const Object users = users_name.of(found), temporary = temporary_name.of(found), all = users_name.of(needs.calls);
  if (!users || !temporary || !all) return false;
  const Py_ssize_t lasting = PyObject_Size(users.get()) - PyObject_Size(temporary.get());
  return lasting == PyObject_Size(all.get()) && !has_hooks(needs, module);
}

// on_call(module, args, kwargs): one `module(...)` while a recording is on; `elsewhere`, before anything has run, where
// Python is to do it.
PyObject* on_call(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  static thread_local int open = 0;
  const double came = seconds_now();
  const Level level(open);
  const auto& needs = *reinterpret_cast<const CallNeeds*>(&PyTuple_GET_ITEM(self, 0));
  if (count != 3 || level.is_deep() || !is_covered(needs, arguments[0])) return needs.shared.leave_to_python();
  c10::SmallVector<PyObject*, 8> with_self{arguments[0]};  // borrowed: the program may count references
  for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(arguments[1]); ++index) {
    with_self.push_back(PyTuple_GET_ITEM(arguments[1], index));
  }
  seconds_before_call() = seconds_now() - came;
  return PyObject_VectorcallDict(needs.original, with_self.data(), with_self.size(), arguments[2]);
}

template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)>
PyCFunction as_method() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef pass_on_way = {"pass_on", as_method<pass_on>(), METH_FASTCALL, "Record the call of a wrapped forward."};
PyMethodDef on_call_way = {"on_call", as_method<on_call>(), METH_FASTCALL, "Run a call of a module."};

}  // namespace

bool add_module_call(PyObject* module) { return add_way(module, &pass_on_way) && add_way(module, &on_call_way); }

}  // namespace fxdebug
