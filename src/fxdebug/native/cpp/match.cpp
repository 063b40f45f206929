// The match of a graph template with a tape (capture/graphs/match.py), for templates of slots, names and constants.
#include "core.h"
#include "python_error.h"
#include "python_object.h"

namespace fxdebug {

namespace {

enum class Answer { kSame, kDiffers, kNotMine };  // not mine: Python decides

Answer answer(int is_same) { return is_same < 0 ? Answer::kNotMine : is_same ? Answer::kSame : Answer::kDiffers; }

// Classes, and the types of constants (capture/tape/encoding.py).
struct Needs {
  PyObject *slot, *attribute, *tensor_id, *weight_ref, *atoms;

  static bool is_of(PyObject* object, PyObject* kind) { return reinterpret_cast<PyObject*>(Py_TYPE(object)) == kind; }
};

// The places of a TapeEntry, a named tuple.
enum Place { kWhat, kArgs, kKwargs, kOut, kContext, kKernels = 10, kPlaces };

struct Attempt {
  const Needs& needs;
  PyObject* refs;     // by id of a tensor
  PyObject* module;   // of the call
  Object tensor_ids;  // by slot
};

// module.a.b for "a.b". No reference: an error is set.
Object member(PyObject* module, PyObject* path) {
  if (PyUnicode_FindChar(path, '.', 0, PyUnicode_GET_LENGTH(path), 1) == -1) {
    return Object(PyObject_GetAttr(module, path));
  }
  static PyObject* const dot = PyUnicode_InternFromString(".");
  const Object names(PyUnicode_Split(path, dot, -1));
  Object inner = Object::borrowed(module);
  for (Py_ssize_t index = 0; names && inner && index < PyList_GET_SIZE(names.get()); ++index) {
    inner = Object(PyObject_GetAttr(inner.get(), PyList_GET_ITEM(names.get(), index)));
  }
  return names ? std::move(inner) : Object();
}

// Does the entry of a weight still find it? As WeightRef.__call__ does.
Answer finds(PyObject* ref, PyObject* tensor) {
  static const Name owner_name("_owner"), name_name("_name"), key_name("_key");
  static const Name tables[] = {Name("_parameters"), Name("_buffers")};
  const Object reference = owner_name.of(ref), name = name_name.of(ref), key = key_name.of(ref);
  if (!reference || !name || !key || PyLong_AsVoidPtr(key.get()) != tensor) return Answer::kNotMine;
  const Object owner = referent(reference.get());
  const Object attributes(owner ? PyObject_GenericGetDict(owner.get(), nullptr) : nullptr);
  if (!attributes || !PyDict_CheckExact(attributes.get())) return Answer::kNotMine;
  for (const Name& table : tables) {
    PyObject* registered = PyDict_GetItemWithError(attributes.get(), table.text());
    if (!registered || !PyDict_CheckExact(registered)) continue;
    PyObject* found = PyDict_GetItemWithError(registered, name.get());
    if (found && found != Py_None) return found == tensor ? Answer::kSame : Answer::kNotMine;
  }
  return Answer::kNotMine;
}

// Is this the code of the tensor that the module holds under the name of an Attribute?
Answer is_attribute(const Attempt& attempt, PyObject* attribute, PyObject* code) {
  static const Name name_name("name"), tensor_id("tensor_id");
  const Object name = name_name.of(attribute);
  if (!name || !PyUnicode_Check(name.get()) || !Needs::is_of(code, attempt.needs.tensor_id)) return Answer::kNotMine;
  const Object tensor = member(attempt.module, name.get());
  const Object key(tensor ? PyLong_FromVoidPtr(tensor.get()) : nullptr);
  const Object kept = Object::borrowed(key ? PyDict_GetItemWithError(attempt.refs, key.get()) : nullptr);
  PyObject* ref = kept.get();
  if (!ref) return Answer::kNotMine;
  if (Needs::is_of(ref, attempt.needs.weight_ref)) {
    if (finds(ref, tensor.get()) != Answer::kSame) return Answer::kNotMine;
  } else if (referent(ref).get() != tensor.get()) {
    return Answer::kNotMine;
  }
  const Object id = tensor_id.of(ref);
  return id ? answer(PyObject_RichCompareBool(id.get(), code, Py_EQ)) : Answer::kNotMine;
}

// Is this the tensor of a slot? With `may_bind`, a slot that is free is bound to it.
Answer is_in_slot(const Attempt& attempt, PyObject* slot, PyObject* code, bool may_bind) {
  static const Name number_name("number");
  if (!Needs::is_of(code, attempt.needs.tensor_id)) return Answer::kDiffers;
  const Object number = number_name.of(slot);
  const Py_ssize_t index = number ? PyLong_AsSsize_t(number.get()) : -1;
  if (index < 0 || index >= PyList_GET_SIZE(attempt.tensor_ids.get())) return Answer::kNotMine;
  const Object bound = Object::borrowed(PyList_GET_ITEM(attempt.tensor_ids.get(), index));
  if (bound.get() != Py_None) return answer(PyObject_RichCompareBool(bound.get(), code, Py_EQ));
  if (!may_bind) return Answer::kDiffers;
  PyList_SetItem(attempt.tensor_ids.get(), index, Object::borrowed(code).release());
  return Answer::kSame;
}

// Are two constants the same in any computation? 0.0 and -0.0 are not.
Answer is_same_constant(const Attempt& attempt, PyObject* expected, PyObject* code) {
  if (PySet_Contains(attempt.needs.atoms, reinterpret_cast<PyObject*>(Py_TYPE(expected))) != 1) {
    return Answer::kNotMine;
  }
  if (Py_TYPE(code) != Py_TYPE(expected)) return Answer::kDiffers;
  if (code == expected) return Answer::kSame;
  if (PyFloat_CheckExact(code)) {
    const double number = PyFloat_AS_DOUBLE(code), wanted = PyFloat_AS_DOUBLE(expected);
    return number != 0.0 && number == wanted ? Answer::kSame : Answer::kNotMine;
  }
  const bool is_plain = PyLong_CheckExact(code) || PyBool_Check(code) || PyUnicode_CheckExact(code);
  return is_plain ? answer(PyObject_RichCompareBool(code, expected, Py_EQ)) : Answer::kNotMine;
}

Answer is_same(const Attempt& attempt, PyObject* expected, PyObject* code, bool may_bind);

Answer are_same_items(const Attempt& attempt, PyObject* expected, PyObject* code, bool may_bind) {
  if (Py_TYPE(code) != Py_TYPE(expected)) return Answer::kDiffers;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(expected);
  if (PySequence_Fast_GET_SIZE(code) != count) return Answer::kDiffers;
  for (Py_ssize_t index = 0; index < count; ++index) {
    const Object item = Object::borrowed(PySequence_Fast_GET_ITEM(expected, index));
    const Object other = Object::borrowed(PySequence_Fast_GET_ITEM(code, index));
    const Answer found = is_same(attempt, item.get(), other.get(), may_bind);
    if (found != Answer::kSame) return found;
    if (index + 1 < count && PySequence_Fast_GET_SIZE(code) != count) return Answer::kNotMine;
  }
  return Answer::kSame;
}

// Dicts with the same texts as keys, in the same order.
Answer are_same_named(const Attempt& attempt, PyObject* expected, PyObject* code, bool may_bind) {
  if (!PyDict_CheckExact(code) || PyDict_GET_SIZE(code) != PyDict_GET_SIZE(expected)) return Answer::kDiffers;
  PyObject *name, *item, *other_name, *other;
  Py_ssize_t at = 0, other_at = 0;
  while (PyDict_Next(expected, &at, &name, &item) && PyDict_Next(code, &other_at, &other_name, &other)) {
    if (!PyUnicode_CheckExact(name) || !PyUnicode_CheckExact(other_name)) return Answer::kNotMine;
    if (name != other_name && PyUnicode_Compare(name, other_name) != 0) return Answer::kDiffers;
    const Object kept = Object::borrowed(item), other_kept = Object::borrowed(other);
    const Answer found = is_same(attempt, item, other, may_bind);
    if (found != Answer::kSame) return found;
  }
  return Answer::kSame;
}

Answer is_same(const Attempt& attempt, PyObject* expected, PyObject* code, bool may_bind) {
  if (Needs::is_of(expected, attempt.needs.slot)) return is_in_slot(attempt, expected, code, may_bind);
  if (Needs::is_of(expected, attempt.needs.attribute)) return is_attribute(attempt, expected, code);
  if (PyTuple_CheckExact(expected) || PyList_CheckExact(expected)) {
    return are_same_items(attempt, expected, code, may_bind);
  }
  if (PyDict_CheckExact(expected)) return are_same_named(attempt, expected, code, may_bind);
  return is_same_constant(attempt, expected, code);
}

// Is it the same function or, for a path in the template, the module there?
Answer is_same_function(const Attempt& attempt, PyObject* expected, PyObject* what) {
  if (expected == what) return Answer::kSame;
  if (!PyUnicode_CheckExact(expected)) return Answer::kNotMine;
  return member(attempt.module, expected).get() == what ? Answer::kSame : Answer::kNotMine;
}

Answer is_same_entry(const Attempt& attempt, PyObject* expected, PyObject* entry) {
  if (!PyTuple_Check(expected) || PyTuple_GET_SIZE(expected) != kPlaces || Py_TYPE(entry) != Py_TYPE(expected)) {
    return Answer::kNotMine;
  }
  const auto both = [&](Place place) {
    return std::pair(PyTuple_GET_ITEM(expected, place), PyTuple_GET_ITEM(entry, place));
  };
  const auto [context, context_then] = both(kContext);
  const auto [kernels, kernels_then] = both(kKernels);
  if (kernels != Py_None || PyLong_CheckExact(PyTuple_GET_ITEM(expected, kOut))) return Answer::kNotMine;
  if (context != context_then) {
    const Answer found = answer(PyObject_RichCompareBool(context, context_then, Py_EQ));
    if (found != Answer::kSame) return found;
  }
  const auto [what, what_then] = both(kWhat);
  if (const Answer found = is_same_function(attempt, what, what_then); found != Answer::kSame) return found;
  for (const Place place : {kArgs, kKwargs, kOut}) {
    const auto [code, code_then] = both(place);
    const Answer found = is_same(attempt, code, code_then, place == kOut);
    if (found != Answer::kSame) return found;
  }
  return Answer::kSame;
}

// Is nothing noted of the tape for which it could not have this graph?
bool is_usual(PyObject* tape) {
  static const Name unobserved("unobserved"), untraceable("untraceable"), raised("raised");
  const Object why = unobserved.of(tape), why_not = untraceable.of(tape), errors = raised.of(tape);
  return why.get() == Py_None && why_not.get() == Py_None && errors && PyTuple_CheckExact(errors.get()) &&
         !PyTuple_GET_SIZE(errors.get());
}

// Does the template match? The tensors are in `attempt.tensor_ids` then.
Answer matches(Attempt& attempt, PyObject* pattern, PyObject* tape) {
  static const Name context_name("context"), slots_name("slots"), entries_name("entries"), out_name("out");
  static const Name given_names[] = {Name("args"), Name("kwargs")};
  const Object slots = slots_name.of(pattern), context = context_name.of(pattern), now = context_name.of(tape);
  const Object expected = entries_name.of(pattern), entries = entries_name.of(tape);
  const Py_ssize_t count = slots ? PyLong_AsSsize_t(slots.get()) : -1;
  if (count < 0 || !context || !now || !expected || !entries || !PyList_CheckExact(expected.get()) ||
      !PyList_CheckExact(entries.get()) || !is_usual(tape)) {
    return Answer::kNotMine;
  }
  if (PyObject_RichCompareBool(context.get(), now.get(), Py_EQ) != 1) return Answer::kNotMine;
  if (PyList_GET_SIZE(expected.get()) != PyList_GET_SIZE(entries.get())) return Answer::kDiffers;
  attempt.tensor_ids = Object(PyList_New(count));
  if (!attempt.tensor_ids) return Answer::kNotMine;
  for (Py_ssize_t index = 0; index < count; ++index) {
    PyList_SET_ITEM(attempt.tensor_ids.get(), index, Object::borrowed(Py_None).release());
  }
  for (const Name& name : given_names) {
    const Object given = name.of(pattern), given_then = name.of(tape);
    if (!given || !given_then) return Answer::kNotMine;
    const Answer found = is_same(attempt, given.get(), given_then.get(), true);
    if (found != Answer::kSame) return found;
  }
  for (Py_ssize_t index = 0; index < PyList_GET_SIZE(entries.get()); ++index) {
    if (index >= PyList_GET_SIZE(expected.get())) return Answer::kNotMine;
    const Object entry = Object::borrowed(PyList_GET_ITEM(expected.get(), index));
    const Object entry_then = Object::borrowed(PyList_GET_ITEM(entries.get(), index));
    const Answer found = is_same_entry(attempt, entry.get(), entry_then.get());
    if (found != Answer::kSame) return found;
  }
  const Object out = out_name.of(pattern), out_then = out_name.of(tape);
  return out && out_then ? is_same(attempt, out.get(), out_then.get(), false) : Answer::kNotMine;
}

// matched_plainly(template, tape, refs): the tensors by slot; Python decides where they do not match, too, and notes
// where.
PyObject* matched_plainly(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  static const Name module_name("module");
  const auto& needs = *reinterpret_cast<const Needs*>(&PyTuple_GET_ITEM(self, 0));
  if (count != 3 || !PyDict_CheckExact(arguments[2])) return not_mine();
  const Object module = module_name.of(arguments[1]);
  Attempt attempt{needs, arguments[2], module.get(), {}};
  const Answer found = module ? matches(attempt, arguments[0], arguments[1]) : Answer::kNotMine;
  if (is_interrupted()) return nullptr;
  PyErr_Clear();
  return found == Answer::kSame ? attempt.tensor_ids.release() : not_mine();
}

PyMethodDef matched_plainly_way = {"matched_plainly",
                                   reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(matched_plainly)),
                                   METH_FASTCALL, "Return the tensors by slot if a template matches a tape."};

}  // namespace

bool add_match(PyObject* module) { return add_way(module, &matched_plainly_way); }

}  // namespace fxdebug
