// Arguments and results as codes, which keep no tensor alive (capture/tape/encoding.py), and entries made of them.
#pragma once

#include "python_object.h"
#include "value_table.h"

namespace fxdebug {

// The coding of the arguments of one operation or call.
struct Coding {
  PyObject *tape, *atoms, *no_kwargs;  // Python's Tape, which codes the rest; the types that are their own codes
  Values* values;
  Object refs;           // the entries of the tensors that were coded, a TensorRefs
  bool is_plain = true;  // did Python code nothing?
};

// The codes of positional and of named arguments (which may be nullptr). No reference: an error.
Object codes_of(Coding& coding, PyObject* args);
Object codes_of_named(Coding& coding, PyObject* kwargs);

// As context_now in Python (capture/torch_state/grad_mode.py), which is asked under autocast; `contexts` has the
// others. No reference: an error.
Object context_now(PyObject* contexts, PyObject* in_python);

// What a TapeEntry has where an operation or a call returned one tensor and wrote to none.
struct Entry {
  PyObject *what, *args, *kwargs, *out, *context, *line, *value, *tape;
};
Object new_entry(PyObject* kind, const Entry& entry);

}  // namespace fxdebug
