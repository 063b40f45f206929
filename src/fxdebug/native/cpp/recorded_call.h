// One recorded call of a module: its frame, its inputs, its run and its outputs, in the usual case.
#pragma once

#include "core.h"
#include "python_object.h"

namespace fxdebug {

// Is this object a recorder's way into the core (capture/recorder/calls_in_core.py)?
bool is_calls(PyObject* object);

// Records and runs `run(*args, **kwargs)`, the forward of a module. None (a null reference) without an error set: the
// case is Python's, and nothing has happened yet. `came`: when the call came to the core (seconds_now).
Object run_recorded(PyObject* calls, PyObject* module, PyObject* run, PyObject* args, PyObject* kwargs, double came);

}  // namespace fxdebug
