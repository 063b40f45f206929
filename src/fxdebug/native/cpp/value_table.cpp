#include "value_table.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "tensor_facts.h"

namespace fxdebug {

namespace {

const Name& name_storage() {
  static const Name name("storage");
  return name;
}

constexpr PyObject* Values::* kParts[] = {
    &Values::refs,       &Values::all,         &Values::first_values, &Values::names,        &Values::rewritten,
    &Values::storages,   &Values::stats,       &Values::before,       &Values::lock,         &Values::tensor_ref,
    &Values::tensor_id,  &Values::storage_ref, &Values::layout,       &Values::state,        &Values::value,
    &Values::statistics, &Values::keep,        &Values::kept,         &Values::storage_refs, &Values::unversioned,
    &Values::taken,
};
constexpr Py_ssize_t kGiven = 18;  // of these parts are arguments of the constructor

// Switches torch function modes and gradients off: what is asked of a tensor here is no part of the program.
class Untracked {
 public:
  Untracked() { TLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED); }
  ~Untracked() { TLS::set_disabled_state(before_); }
  Untracked(const Untracked&) = delete;
  Untracked& operator=(const Untracked&) = delete;

 private:
  using TLS = at::impl::PythonTorchFunctionTLS;
  const at::impl::TorchFunctionDisabledState before_ = TLS::get_disabled_state();
  const c10::AutoGradMode no_gradients_{false};
};

Object key_of(PyObject* object) { return Object(PyLong_FromVoidPtr(object)); }

// Is the tensor where its entry saw it, in the same layout? An assignment to `.data` moves it and no version.
bool is_unmoved(Values* values, PyObject* ref, PyObject* object, const at::Tensor& tensor) {
  const Object state = values->slots.state.of(ref);
  if (!state || !PyTuple_Check(state.get()) || PyTuple_GET_SIZE(state.get()) != 4) return false;
  return PyLong_AsVoidPtr(PyTuple_GET_ITEM(state.get(), 2)) == tensor.const_data_ptr() &&
         PyTuple_GET_ITEM(state.get(), 0) == layout_of(tensor, object, values->layout).get();
}

// The number of a storage, given now if it has none. No reference and no error: not the core's case.
Object storage_number(Values* values, const at::Tensor& tensor, bool is_named) {
  static const Name count_name("count");
  const Object address(PyLong_FromVoidPtr(tensor.storage().unsafeGetStorageImpl()));
  if (!address) return {};
  const Object ref = Object::borrowed(PyDict_GetItemWithError(values->storage_refs, address.get()));
  if (ref && referent(ref.get())) return values->slots.number_of_storage.of(ref.get());
  if (PyErr_Occurred()) return {};
  const Object storage(storage_object(tensor));
  if (!storage) return {};
  const Object made(PyObject_CallOneArg(values->storage_ref, storage.get()));
  const Object number = made ? count_name.of(values->storages) : Object();
  if (!number || !values->slots.number_of_storage.set(made.get(), number.get())) return {};
  const Object next(PyLong_FromSsize_t(PyLong_AsSsize_t(number.get()) + 1));
  if (!next || !count_name.set(values->storages, next.get()) ||
      PyDict_SetItem(values->storage_refs, address.get(), made.get()) < 0) {
    return {};
  }
  if (!is_named && !tensor.storage().resizable() && PySet_Add(values->unversioned, number.get()) < 0) return {};
  return Object::borrowed(number.get());
}

// The entry of the base of a view, which counts the view's versions. No reference: it is no view, the table has no
// entry, or an error is set.
Object entry_of_base(Values* values, const at::Tensor& tensor) {
  if (!tensor.is_view()) return {};
  const Object base(tensor_object(at::Tensor(tensor._base())));
  return base ? known_ref(values, base.get()) : Object();
}

// What is known of the weights from before the run (Parameters.core_parts in Python).
struct Before {
  PyObject* position;  // by id, the place of a weight in each of the lists
  PyObject *tensors, *states, *stats, *names, *storages;
};

// What the run takes over of a weight that is as it was before; nothing of any other tensor.
struct Known {
  Object name, storage, stats;
};

bool are_equal(PyObject* a, PyObject* b) { return a == b || PyObject_RichCompareBool(a, b, Py_EQ) == 1; }

// Is a weight where it was, in the same layout and of the same version?
bool is_as_before(Values* values, PyObject* before, PyObject* state) {
  if (!PyTuple_Check(before) || PyTuple_GET_SIZE(before) != 6 || !PyTuple_Check(PyTuple_GET_ITEM(before, 5))) {
    return false;
  }
  const Slots& slots = values->slots;
  PyObject* layout = PyTuple_GET_ITEM(state, 0);
  PyObject* const now[] = {PyTuple_GET_ITEM(state, 2), slots.shape.peek(layout), slots.stride.peek(layout),
                           slots.torch_dtype.peek(layout), PyTuple_GET_ITEM(state, 1)};
  for (Py_ssize_t index = 0; index < 5; ++index) {
    if (!now[index] || !are_equal(PyTuple_GET_ITEM(before, index), now[index])) return false;
  }
  return are_equal(PyTuple_GET_ITEM(PyTuple_GET_ITEM(before, 5), 0), PyTuple_GET_ITEM(state, 3));
}

// The place of a tensor among the weights from before the run; -1 if it is none of them.
Py_ssize_t place_of_weight(Values* values, const Before& before, PyObject* object, PyObject* key) {
  const Py_ssize_t count = PyList_GET_SIZE(before.tensors), next = values->next_weight;
  Py_ssize_t place = next;
  if (next >= count || PyList_GET_ITEM(before.tensors, next) != object) {
    PyObject* found = PyDict_GetItemWithError(before.position, key);
    place = found ? PyLong_AsSsize_t(found) : -1;
    if (place < 0 || place >= count || PyList_GET_ITEM(before.tensors, place) != object) return -1;
  }
  values->next_weight = place + 1;
  return place;
}

Known known_before_run(Values* values, PyObject* object, PyObject* key, PyObject* state) {
  if (!PyTuple_GET_SIZE(values->before)) return {};
  const auto& before = *reinterpret_cast<const Before*>(&PyTuple_GET_ITEM(values->before, 0));
  const Py_ssize_t place = place_of_weight(values, before, object, key);
  for (PyObject* list : {before.states, before.stats, before.names, before.storages}) {
    if (place < 0 || place >= PyList_GET_SIZE(list)) return {};
  }
  const Object names = Object::borrowed(PyList_GET_ITEM(before.names, place)),
               state_before = Object::borrowed(PyList_GET_ITEM(before.states, place));
  Object storage = Object::borrowed(PyList_GET_ITEM(before.storages, place)),
         stats = Object::borrowed(PyList_GET_ITEM(before.stats, place));
  if (storage.get() == Py_None || !PyTuple_CheckExact(names.get()) || !PyTuple_GET_SIZE(names.get()) ||
      !is_as_before(values, state_before.get(), state)) {
    return {};
  }
  return {Object::borrowed(PyTuple_GET_ITEM(names.get(), 0)), std::move(storage), std::move(stats)};
}

// Measures a tensor: here, or in Python where the core leaves it to that. No reference: an error.
Object measured(Values* values, PyObject* object) {
  static const Name measure("measure");
  Object stats(PyObject_CallOneArg(values->statistics, object));
  if (stats.get() != Py_NotImplemented) return stats;
  return Object(PyObject_CallMethodOneArg(values->stats, measure.text(), object));
}

// The statistics of a tensor in the CPU's memory, taken now if they are not known, as StatsTaker.plain_stats in Python
// (capture/tensors/stats_queue.py). No reference: an error.
Object stats_of(Values* values, PyObject* object, const at::Tensor& tensor, PyObject* state, PyObject* id,
                PyObject* storage) {
  if (values->stats == Py_None) return Object::borrowed(Py_None);
  PyObject* layout = PyTuple_GET_ITEM(state, 0);
  const Object dims = values->slots.dims.of(layout), dtype = values->slots.torch_dtype.of(layout);
  if (!dims || !dtype) return {};
  if (dims.get() == Py_None) return measured(values, object);
  const Object base = entry_of_base(values, tensor);
  if (PyErr_Occurred()) return {};
  const Object owner = base ? values->slots.tensor_id.of(base.get()) : Object::borrowed(id);
  PyObject *address = PyTuple_GET_ITEM(state, 2), *version = PyTuple_GET_ITEM(state, 3);
  const Object key(owner ? PyTuple_Pack(6, owner.get(), storage, address, dims.get(), dtype.get(), version) : nullptr);
  if (!key) return {};
  is_in_no_cycle(key.get());
  PyObject* known = PyDict_GetItemWithError(values->taken, key.get());
  if (known || PyErr_Occurred()) return Object::borrowed(known);
  Object stats = measured(values, object);
  if (!stats || PyDict_SetItem(values->taken, key.get(), stats.get()) < 0) return {};
  return stats;
}

// Adds a tensor object, and its value, to the table. No reference and no error: not the core's case.
Object add(Values* values, PyObject* object, const at::Tensor& tensor, bool weights) {
  static const Name type_name("__name__");
  const Slots& slots = values->slots;
  static PyObject* const strided = PyUnicode_InternFromString("strided");
  if (!tensor.is_cpu() || !is_ordinary(tensor) || !is_unobserved()) return {};
  const int64_t version = version_of(tensor);
  if (version < 0) return {};
  const Object key = key_of(object);
  const int is_rewritten = key ? PySet_Contains(values->rewritten, key.get()) : -1;
  if (is_rewritten) return {};
  const Untracked untracked;
  const Locked locked(values->lock);
  if (!locked.is_held()) return {};
  if (Object added = known_ref(values, object)) return added;  // by another thread, meanwhile
  if (PyErr_Occurred()) return {};

  const Object kept = layout_of(tensor, object, values->layout);
  PyObject* layout = kept.get();
  const Object state = layout ? new_state(values->state, tensor, Object::borrowed(layout), version) : Object();
  if (!state) return {};
  is_in_no_cycle(state.get());
  Known known = known_before_run(values, object, key.get(), state.get());
  const Object name =
      known.name ? std::move(known.name) : Object::borrowed(PyDict_GetItemWithError(values->names, key.get()));
  if (PyErr_Occurred()) return {};
  const Object storage =
      known.storage ? std::move(known.storage) : storage_number(values, tensor, static_cast<bool>(name));
  if (!storage) return {};
  const int is_unversioned =
      PySet_GET_SIZE(values->unversioned) ? PySet_Contains(values->unversioned, storage.get()) : 0;
  if (is_unversioned) return {};
  const Object next_id(PyLong_FromSsize_t(PyList_GET_SIZE(values->first_values)));
  const Object id(next_id ? PyObject_CallOneArg(values->tensor_id, next_id.get()) : nullptr);
  if (!id) return {};
  const bool is_measured = known.stats && !(weights && known.stats.get() == Py_None);
  const Object stats =
      is_measured ? std::move(known.stats) : stats_of(values, object, tensor, state.get(), id.get(), storage.get());
  if (!stats) return {};

  const Object number(PyLong_FromSsize_t(PyList_GET_SIZE(values->all)));
  const Object facts[] = {slots.shape.of(layout),  slots.dtype.of(layout),
                          slots.device.of(layout), slots.stride.of(layout),
                          slots.offset.of(layout), type_name.of(reinterpret_cast<PyObject*>(Py_TYPE(object)))};
  for (const Object& fact : facts) {
    if (!fact) return {};
  }
  PyObject* requires_grad = tensor.requires_grad() ? Py_True : Py_False;
  PyObject* arguments[] = {number.get(),
                           facts[0].get(),
                           facts[1].get(),
                           facts[2].get(),
                           strided,
                           facts[3].get(),
                           facts[4].get(),
                           facts[5].get(),
                           requires_grad,
                           storage.get(),
                           name ? name.get() : Py_None,
                           stats.get()};
  const Object value(number ? PyObject_Vectorcall(values->value, arguments, 12, nullptr) : nullptr);
  Object ref(value ? PyObject_CallOneArg(values->tensor_ref, object) : nullptr);
  if (!ref) return {};
  is_in_no_cycle(ref.get());
  const bool is_unmeasured = name && !weights && stats.get() == Py_None && values->stats != Py_None;
  PyObject* made = ref.get();
  const bool is_filled =
      slots.state.set(made, state.get()) && slots.version.set(made, PyTuple_GET_ITEM(state.get(), 3)) &&
      slots.value.set(made, value.get()) && slots.tensor_id.set(made, id.get()) &&
      slots.requires_grad.set(made, requires_grad) && slots.is_unmeasured.set(made, is_unmeasured ? Py_True : Py_False);
  if (!is_filled || PyList_Append(values->all, value.get()) < 0 ||
      PyList_Append(values->first_values, value.get()) < 0 || PyDict_SetItem(values->refs, key.get(), made) < 0) {
    return {};
  }
  return ref;
}

// Has Python keep the data of a value, where the run keeps any and has not done so yet. 0: not the core's case; -1: an
// error.
int keep_data(Values* values, PyObject* value, PyObject* object) {
  static const Name number_name("number");
  if (values->keep == Py_None) return 1;
  PyObject* given[] = {value, object};
  const Object number = number_name.of(value);
  const int is_kept = number ? PySet_Contains(values->kept, number.get()) : -1;
  if (is_kept) return is_kept;
  if (!is_unobserved()) return 0;
  const Untracked untracked;
  const Object done(PyObject_Vectorcall(values->keep, given, 2, nullptr));
  return done ? 1 : -1;
}

// value_of(tensor, weights, keep): the present value of a tensor that is as it was, or of one that the table does not
// have.
PyObject* value_of(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    auto* values = reinterpret_cast<Values*>(self);
    PyObject* object = count == 3 ? arguments[0] : nullptr;
    const at::Tensor* tensor = object ? plain_tensor(object) : nullptr;
    if (!tensor) return not_mine();
    const bool weights = arguments[1] == Py_True;
    const auto given_out = [&](Object value) -> PyObject* {
      const int is_kept = value && arguments[2] == Py_True ? keep_data(values, value.get(), object) : 1;
      if (is_kept == 0) return not_mine();
      return is_kept > 0 ? value.release() : nullptr;
    };
    const Object known = known_ref(values, object);
    PyObject* ref = known.get();
    if (!ref) {
      if (PyErr_Occurred()) return nullptr;
      const Object added = add(values, object, *tensor, weights);
      if (!added) return PyErr_Occurred() ? nullptr : not_mine();
      return given_out(values->slots.value.of(added.get()));
    }
    if (!has_version(values, ref, *tensor) || !is_ordinary(*tensor) || !is_unmoved(values, ref, object, *tensor)) {
      return PyErr_Occurred() ? nullptr : not_mine();
    }
    if (weights && values->slots.is_unmeasured.of(ref).get() == Py_True) return not_mine();
    if (PyErr_Occurred()) return nullptr;
    Object value = values->slots.value.of(ref);
    if (!value) return nullptr;
    if (PySet_GET_SIZE(values->unversioned)) {
      const Object storage = name_storage().of(value.get());
      if (!storage || PySet_Contains(values->unversioned, storage.get())) {
        return PyErr_Occurred() ? nullptr : not_mine();
      }
    }
    return given_out(std::move(value));
  });
}

// values_of(tensors, weights, keep): the values of a tuple of plain tensors.
PyObject* values_of(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 3 || !PyTuple_CheckExact(arguments[0])) return not_mine();
  Object values(PyTuple_New(PyTuple_GET_SIZE(arguments[0])));
  for (Py_ssize_t index = 0; values && index < PyTuple_GET_SIZE(arguments[0]); ++index) {
    PyObject* const given[] = {PyTuple_GET_ITEM(arguments[0], index), arguments[1], arguments[2]};
    PyObject* value = value_of(self, given, 3);
    if (!value || value == Py_NotImplemented) return value;
    PyTuple_SET_ITEM(values.get(), index, value);
  }
  return values.release();
}

// note_inputs(refs, layouts, values): adds the present layout and value of each entry's tensor to two dicts, by its id.
PyObject* note_inputs(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    auto* values = reinterpret_cast<Values*>(self);
    if (count != 3 || !PyList_Check(arguments[0])) return not_mine();
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(arguments[0]); ++index) {
      const Object ref = Object::borrowed(PyList_GET_ITEM(arguments[0], index));
      const Object object = referent(ref.get());
      const at::Tensor* tensor = object ? plain_tensor(object.get()) : nullptr;
      if (!tensor) return not_mine();
      PyObject* const given[] = {object.get(), Py_False, Py_False};
      const Object value(value_of(self, given, 3));
      if (!value || value.get() == Py_NotImplemented) return value ? not_mine() : nullptr;
      const Object id = values->slots.tensor_id.of(ref.get()), state = values->slots.state.of(ref.get());
      if (!id || !state || !PyTuple_Check(state.get())) return PyErr_Occurred() ? nullptr : not_mine();
      PyObject *layout = PyTuple_GET_ITEM(state.get(), 0),
               *requires_grad = tensor->requires_grad() ? Py_True : Py_False;
      const Object shape = values->slots.shape.of(layout), dtype = values->slots.torch_dtype.of(layout);
      const Object facts(shape && dtype ? PyTuple_Pack(3, shape.get(), dtype.get(), requires_grad) : nullptr);
      if (facts) is_in_no_cycle(facts.get());
      if (!facts || !values->slots.requires_grad.set(ref.get(), requires_grad) ||
          PyDict_SetItem(arguments[1], id.get(), facts.get()) < 0 ||
          PyDict_SetItem(arguments[2], id.get(), value.get()) < 0) {
        return nullptr;
      }
    }
    Py_RETURN_NONE;
  });
}

PyObject* ref_of_method(PyObject* self, PyObject* object) {
  return guarded([&]() -> PyObject* {
    Object ref = ref_of(reinterpret_cast<Values*>(self), object);
    if (!ref) return PyErr_Occurred() ? nullptr : not_mine();
    return ref.release();
  });
}

Slots slots_of(const Values& values) {
  PyObject *ref = values.tensor_ref, *layout = values.layout;
  return {{ref, "version"},        {ref, "value"},
          {ref, "tensor_id"},      {ref, "requires_grad"},
          {ref, "is_unmeasured"},  {ref, "state"},
          {layout, "shape"},       {layout, "stride"},
          {layout, "offset"},      {layout, "dtype"},
          {layout, "device"},      {layout, "dims"},
          {layout, "torch_dtype"}, {values.storage_ref, "number"}};
}

PyObject* new_values(PyTypeObject* kind, PyObject* arguments, PyObject*) {
  static const Name refs("refs"), unversioned("unversioned"), taken("taken");
  if (PyTuple_GET_SIZE(arguments) != kGiven) {
    PyErr_SetString(PyExc_TypeError, "Values takes the parts of a ValueTable");
    return nullptr;
  }
  Object made(kind->tp_alloc(kind, 0));
  if (!made) return nullptr;
  auto* values = reinterpret_cast<Values*>(made.get());
  for (Py_ssize_t part = 0; part < kGiven; ++part) {
    PyObject* given = PyTuple_GET_ITEM(arguments, part);
    Py_INCREF(given);
    values->*kParts[part] = given;
  }
  new (&values->slots) Slots(slots_of(*values));
  values->storage_refs = refs.of(values->storages).release();
  values->unversioned = unversioned.of(values->storages).release();
  values->taken = (values->stats == Py_None ? Object(PyDict_New()) : taken.of(values->stats)).release();
  const bool is_right = values->storage_refs && values->unversioned && values->taken && PyDict_Check(values->refs) &&
                        PyList_Check(values->all) && PyList_Check(values->first_values) &&
                        PyDict_Check(values->names) && PySet_Check(values->rewritten) &&
                        PyTuple_Check(values->before) && PyDict_Check(values->storage_refs) &&
                        PySet_Check(values->unversioned) && PySet_Check(values->kept) && PyDict_Check(values->taken);
  if (!is_right) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a part of a ValueTable is of another kind");
    return nullptr;
  }
  return made.release();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* values = reinterpret_cast<Values*>(self);
  for (const auto part : kParts) Py_VISIT(values->*part);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject* self) {
  auto* values = reinterpret_cast<Values*>(self);
  for (const auto part : kParts) Py_CLEAR(values->*part);
  return 0;
}

void destroy(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"value_of", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(value_of)), METH_FASTCALL,
     "Return the present value of a tensor."},
    {"values_of", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(values_of)), METH_FASTCALL,
     "Return the present values of a tuple of tensors."},
    {"note_inputs", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(note_inputs)), METH_FASTCALL,
     "Add the layouts and values of the tensors of a call's arguments to two dicts."},
    {"ref_of", ref_of_method, METH_O, "Return the entry of a tensor; add one if there is none."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("The look-ups of one run's value table.")},
                       {Py_tp_new, reinterpret_cast<void*>(new_values)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"fxdebug_core.Values", sizeof(Values), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
PyTypeObject* values_type = nullptr;  // of the one module in the process

}  // namespace

Values* values_in(PyObject* object) {
  return Py_TYPE(object) == values_type ? reinterpret_cast<Values*>(object) : nullptr;
}

Object known_ref(Values* values, PyObject* object) {
  const Object key = key_of(object);
  Object ref = Object::borrowed(key ? PyDict_GetItemWithError(values->refs, key.get()) : nullptr);
  return ref && referent(ref.get()).get() == object ? std::move(ref) : Object();
}

Object ref_of(Values* values, PyObject* object) {
  if (Object known = known_ref(values, object)) return known;
  const at::Tensor* tensor = PyErr_Occurred() ? nullptr : plain_tensor(object);
  return tensor ? add(values, object, *tensor, false) : Object();
}

namespace {

Object unless_not_mine(PyObject* found) {
  Object object(found);
  return found == Py_NotImplemented ? Object() : std::move(object);
}

}  // namespace

Object present_value(PyObject* values, PyObject* object) {
  PyObject* const given[] = {object, Py_True, Py_True};
  return unless_not_mine(value_of(values, given, 3));
}

Object values_of_all(PyObject* values, PyObject* tuple) {
  PyObject* const given[] = {tuple, Py_True, Py_True};
  return unless_not_mine(values_of(values, given, 3));
}

int note_layouts(PyObject* values, PyObject* refs, PyObject* layouts, PyObject* by_id) {
  PyObject* const given[] = {refs, layouts, by_id};
  const Object done(note_inputs(values, given, 3));
  return done ? done.get() == Py_None : -1;
}

bool is_unobserved() {
  using c10::DispatchKey;
  return !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
         !c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode) &&
         !c10::impl::tls_is_dispatch_key_included(DispatchKey::PreDispatch) &&
         !c10::impl::tls_is_dispatch_key_included(DispatchKey::Tracer);
}

bool has_version(Values* values, PyObject* ref, const at::Tensor& tensor) {
  if (tensor.is_inference()) return false;
  const Object version = values->slots.version.of(ref);
  return version && PyLong_Check(version.get()) && PyLong_AsLongLong(version.get()) == version_of(tensor);
}

bool has_flag(Values* values, PyObject* ref, const at::Tensor& tensor) {
  return values->slots.requires_grad.of(ref).get() == (tensor.requires_grad() ? Py_True : Py_False);
}

bool add_value_table(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  values_type = reinterpret_cast<PyTypeObject*>(type);
  return type && PyModule_AddObjectRef(module, "Values", type) == 0;
}

}  // namespace fxdebug
