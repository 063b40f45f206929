// The time that recording takes, which no duration contains (capture/hooks/own_time.py).
#pragma once

#include <chrono>

#include "python_object.h"

namespace fxdebug {

// As time.perf_counter, but no interrupt (Ctrl-C) comes out of it.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds seconds to an OwnTime. False: Python has raised an error.
inline bool add_seconds(PyObject* own_time, double seconds) {
  static const Name name("seconds");
  const Object before = name.of(own_time);
  const Object sum(before ? PyFloat_FromDouble(PyFloat_AsDouble(before.get()) + seconds) : nullptr);
  return sum && !PyErr_Occurred() && name.set(own_time, sum.get());
}

// Seconds of this thread in the core that belong to the next call: those before its recording is known.
inline double& seconds_before_call() {
  static thread_local double seconds = 0.0;
  return seconds;
}

}  // namespace fxdebug
