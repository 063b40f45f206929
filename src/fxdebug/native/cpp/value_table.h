// The look-ups of a run's value table: is a tensor as it was, which entry has it, and what is the value of a new one.
#pragma once

#include "core.h"
#include "python_object.h"

namespace fxdebug {

// The fields of an entry, a TensorRef; of a TensorLayout; and of others.
struct Slots {
  Slot version, value, tensor_id, requires_grad, is_unmeasured, state;
  Slot shape, stride, offset, dtype, device, dims, torch_dtype;
  Slot number_of_storage;  // of a StorageRef
};

// Python's ValueTable keeps the values; this holds the parts of it that look-ups need.
struct Values {
  PyObject_HEAD PyObject *refs, *all, *first_values, *names, *rewritten;  // of the ValueTable
  PyObject *storages, *storage_refs, *unversioned;                        // StorageNumbers, and two of its parts
  PyObject *stats, *taken;                         // StatsTaker or None, and the statistics that it has taken
  PyObject* before;                                // what stats_before_run needs, or an empty tuple
  PyObject* lock;                                  // of the ValueTable: values are numbered in any thread
  PyObject *tensor_ref, *tensor_id, *storage_ref;  // classes
  PyObject *layout, *state, *value;                // classes, and the constructor of a Value
  PyObject* statistics;                            // the core's own way to measure a tensor
  PyObject *keep, *kept;                           // keeps a value's data, or None; numbers of values that it has
  Slots slots;
  Py_ssize_t next_weight;  // among those from before the run: models read them in the order of their registration
};

// The Values of a Python object; nullptr for any other object.
Values* values_in(PyObject* object);

// The entry of a tensor object. No reference: the table has none, or an error is set.
Object known_ref(Values* values, PyObject* object);

// The entry of a tensor object; one is added if the table has none. No reference and no error: not the core's case.
Object ref_of(Values* values, PyObject* object);

// The present value of a tensor, and those of a tuple of tensors. No reference and no error: not the core's case.
Object present_value(PyObject* values, PyObject* object);
Object values_of_all(PyObject* values, PyObject* tuple);

// Adds the present layout and value of each entry's tensor to two dicts, by its id. 0: not the core's case; -1: an
// error.
int note_layouts(PyObject* values, PyObject* refs, PyObject* layouts, PyObject* by_id);

// May a tensor be measured right here? Not where the program's dispatch modes or transforms, or torch's tracers, would
// see that.
bool is_unobserved();

// Has nothing been written to a tensor since its entry was made? Not so for a tensor that does not count writes.
bool has_version(Values* values, PyObject* ref, const at::Tensor& tensor);

// Is the gradient flag of a tensor the one that its entry has?
bool has_flag(Values* values, PyObject* ref, const at::Tensor& tensor);

}  // namespace fxdebug
