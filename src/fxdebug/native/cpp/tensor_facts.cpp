#include "tensor_facts.h"

#include <c10/core/impl/COW.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace fxdebug {

namespace {

constexpr size_t kLayoutsKept = 20000;  // at a time: lengths and strides come and go

// The dispatch keys of an ordinary tensor; any other stands for something special.
const c10::DispatchKeySet kOrdinaryKeys =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
    c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

bool has_ordinary_keys(const at::Tensor& tensor) {
  const uint64_t others = (tensor.key_set() - kOrdinaryKeys).raw_repr();
  return (others & ~static_cast<uint64_t>(c10::full_backend_mask)) == 0;
}

// Does its storage hold all bytes that a tensor reaches? Sharded modules free weights between their calls.
bool is_whole(const at::Tensor& tensor, const c10::StorageImpl& storage) {
  int64_t reach = 1;  // elements
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    reach += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto size = static_cast<int64_t>(tensor.element_size());
  return (tensor.storage_offset() + reach) * size <= static_cast<int64_t>(storage.nbytes());
}

struct Form {
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  c10::ScalarType dtype;
  c10::Device device;
  bool is_neg, is_conj;

  bool is_of(const at::Tensor& tensor) const {
    return tensor.sizes() == c10::IntArrayRef(sizes) && tensor.strides() == c10::IntArrayRef(strides) &&
           tensor.storage_offset() == offset && tensor.scalar_type() == dtype && tensor.device() == device &&
           tensor.is_neg() == is_neg && tensor.is_conj() == is_conj;
  }
};

uint64_t hash_of(const at::Tensor& tensor) {
  auto hash = static_cast<uint64_t>(tensor.scalar_type());
  const auto mix = [&hash](int64_t number) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  };
  mix(tensor.storage_offset());
  for (int64_t size : tensor.sizes()) mix(size);
  for (int64_t stride : tensor.strides()) mix(stride);
  return hash;
}

// Layouts stay until there are too many: another tensor of the same form will come.
struct Layouts {
  std::unordered_map<uint64_t, std::vector<std::pair<Form, PyObject*>>> by_hash;
  size_t count = 0;
  PyObject* kind = nullptr;  // the class of all of them

  Object find(uint64_t hash, const at::Tensor& tensor) const {
    const auto found = by_hash.find(hash);
    if (found == by_hash.end()) return {};
    for (const auto& [form, layout] : found->second) {
      if (form.is_of(tensor)) return Object::borrowed(layout);
    }
    return {};
  }

  void clear() {
    auto old = std::move(by_hash);
    by_hash.clear();
    count = 0;
    for (auto& [hash, layouts] : old) {
      for (auto& [form, layout] : layouts) Py_DECREF(layout);
    }
  }
};

Layouts& layouts() {
  static auto* kept = new Layouts;  // never destroyed: Python may be gone by then
  return *kept;
}

}  // namespace

bool is_ordinary(const at::Tensor& tensor) {
  if (!has_ordinary_keys(tensor) || !(tensor.is_cpu() || tensor.is_cuda()) || tensor.numel() == 0 ||
      tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return false;
  }
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  return !c10::impl::cow::is_cow_data_ptr(storage.data_ptr()) && tensor.const_data_ptr() != nullptr &&
         is_whole(tensor, storage);
}

int64_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? -1 : tensor._version(); }

Object layout_of(const at::Tensor& tensor, PyObject* object, PyObject* kind) {
  if (layouts().kind != kind) {
    Py_INCREF(kind);
    layouts().kind = kind;
    layouts().clear();
  }
  const uint64_t hash = hash_of(tensor);
  if (Object known = layouts().find(hash, tensor)) return known;
  Object made(PyObject_CallOneArg(kind, object));
  if (!made) return made;
  if (Object known = layouts().find(hash, tensor)) return known;  // another thread has made it meanwhile
  if (layouts().count >= kLayoutsKept) layouts().clear();
  ++layouts().count;
  Form form{tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), tensor.scalar_type(),
            tensor.device(),      tensor.is_neg(),        tensor.is_conj()};
  layouts().by_hash[hash].emplace_back(std::move(form), Object::borrowed(made.get()).release());
  return made;
}

Object new_state(PyObject* kind, const at::Tensor& tensor, Object layout, int64_t version) {
  auto* type = reinterpret_cast<PyTypeObject*>(kind);  // a named tuple: its items are those of a tuple
  Object facts[] = {std::move(layout), Object(PyLong_FromVoidPtr(tensor.storage().unsafeGetStorageImpl())),
                    Object(PyLong_FromVoidPtr(const_cast<void*>(tensor.const_data_ptr()))),
                    version < 0 ? Object::borrowed(Py_None) : Object(PyLong_FromLongLong(version))};
  Object state(facts[1] && facts[2] && facts[3] ? type->tp_alloc(type, 4) : nullptr);
  for (Py_ssize_t index = 0; state && index < 4; ++index) {
    PyTuple_SET_ITEM(state.get(), index, facts[index].release());
  }
  return state;
}

namespace {

// state_of(tensor); needs (TensorLayout, TensorState). TensorState is a named tuple, so its items are those of a tuple.
PyObject* state_of(PyObject* needs, PyObject* object) {
  return guarded([&]() -> PyObject* {
    const at::Tensor* tensor = plain_tensor(object);
    if (!tensor || !is_ordinary(*tensor)) return not_mine();
    Object layout = layout_of(*tensor, object, PyTuple_GET_ITEM(needs, 0));
    if (!layout) return nullptr;
    return new_state(PyTuple_GET_ITEM(needs, 1), *tensor, std::move(layout), version_of(*tensor)).release();
  });
}

PyMethodDef state_of_way = {"state_of", state_of, METH_O, "Return the TensorState of an ordinary tensor."};

}  // namespace

bool add_tensor_facts(PyObject* module) { return add_way(module, &state_of_way); }

}  // namespace fxdebug
