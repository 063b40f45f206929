// The line of the program that asked for an operation or a call, found on Python's stack.
#pragma once

#include <Python.h>

#include "python_object.h"

namespace fxdebug {

// What a search needs, as source/source_line.search_parts returns it: dicts, a function, the class Line, and the
// numbers that stand for whose code a file has.
struct LineSearch {
  PyObject *homes, *home_of, *entry_points, *line, *users, *calling, *commands;
};

// The frame that runs now, and the one that called a frame. No reference: there is none.
Object innermost_frame();
Object frame_around(const Object& frame);

// As source_line.user_line: the nearest line outside torch and fxdebug, None if there is none. `known` has the lines
// noted so far. No reference: an error.
Object user_line(const LineSearch& search, PyObject* known, Object frame, PyObject* inside, PyObject* called);

// As source_line.users_line: the line that asked for a call that `line` makes, `inside` being its caller's code and
// `called` the line that asked for that.
Object users_line(const LineSearch& search, PyObject* known, PyObject* line, PyObject* inside, PyObject* called);

// As source_line.caller_line: the nearest line that is neither fxdebug's nor nn.Module's.
Object caller_line(const LineSearch& search, PyObject* known, Object frame);

}  // namespace fxdebug
