// Where all weights of a model are, asked before and after every run.
#include "python_object.h"
#include "tensor_facts.h"

namespace fxdebug {

namespace {

// (address, shape, strides, dtype, storage, (version, gradient flag)) of a weight. No reference and no error: not the
// core's case.
Object weight_state(PyObject* kind, PyObject* object) {
  static const Name shape_name("shape"), stride_name("stride"), dtype_name("torch_dtype");
  const at::Tensor* tensor = plain_tensor(object);
  const int64_t version = tensor && is_ordinary(*tensor) ? version_of(*tensor) : -1;
  if (version < 0) return {};
  const Object layout = layout_of(*tensor, object, kind);
  if (!layout) return {};
  const Object shape = shape_name.of(layout.get()), stride = stride_name.of(layout.get()),
               dtype = dtype_name.of(layout.get());
  if (!shape || !stride || !dtype) return {};
  void *address = const_cast<void*>(tensor->const_data_ptr()), *storage = tensor->storage().unsafeGetStorageImpl();
  return Object(Py_BuildValue("(NOOON(LO))", PyLong_FromVoidPtr(address), shape.get(), stride.get(), dtype.get(),
                              PyLong_FromVoidPtr(storage), static_cast<long long>(version),
                              tensor->requires_grad() ? Py_True : Py_False));
}

// weight_states(tensors): the state of each, as _weight_states in Python (capture/tensors/parameters.py); needs
// (TensorLayout,).
PyObject* weight_states(PyObject* needs, PyObject* tensors) {
  return guarded([&]() -> PyObject* {
    if (!PyList_CheckExact(tensors)) return not_mine();
    const Py_ssize_t count = PyList_GET_SIZE(tensors);
    Object states(PyList_New(count));
    for (Py_ssize_t index = 0; states && index < count; ++index) {
      if (index >= PyList_GET_SIZE(tensors)) return not_mine();
      const Object tensor = Object::borrowed(PyList_GET_ITEM(tensors, index));
      Object state = weight_state(PyTuple_GET_ITEM(needs, 0), tensor.get());
      if (!state) return PyErr_Occurred() ? nullptr : not_mine();
      PyList_SET_ITEM(states.get(), index, state.release());
    }
    return states.release();
  });
}

PyMethodDef weight_states_way = {"weight_states", weight_states, METH_O, "Return where each weight is."};

}  // namespace

bool add_weight_states(PyObject* module) { return add_way(module, &weight_states_way); }

}  // namespace fxdebug
