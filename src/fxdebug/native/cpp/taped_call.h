// One call on the tape, in the usual case: its arguments, its place among the open calls, its entry in its caller's
// tape.
#pragma once

#include "python_object.h"

namespace fxdebug {

// A call that the tape has. `tape` is its CallTape; what follows the flag is there once it has begun.
struct TapedCall {
  Object tape;
  bool is_usual = false;  // did the core enter it?
  Object stack, parent;   // the open calls of this thread, and the tape of the innermost one
  Object attributes;      // of the module, before the call
};

// As Tape.enter_call, with what run_taped.core_parts returns. No tape and no error: the case is Python's.
TapedCall enter_taped(PyObject* parts, PyObject* index, PyObject* module, PyObject* forward, PyObject* args,
                      PyObject* kwargs);

// As the beginning of run_taped: false without an error where all of that function is to run, and nothing has happened.
bool begin_taped(PyObject* parts, TapedCall& call, PyObject* module, PyObject* args, PyObject* kwargs, PyObject* line);

// As its end: the forward returned, or (fail) raised `error`. False: an error is set.
bool end_taped(PyObject* parts, const TapedCall& call, PyObject* module, PyObject* output);
bool fail_taped(PyObject* parts, const TapedCall& call, PyObject* error);

// The same in Python: Tape.enter_call, and run_taped for a call that was entered, but not begun.
TapedCall enter_in_python(PyObject* parts, PyObject* index, PyObject* module, PyObject* forward, PyObject* args,
                          PyObject* kwargs);
Object run_in_python(PyObject* parts, const TapedCall& call, PyObject* args, PyObject* kwargs, PyObject* line);

}  // namespace fxdebug
