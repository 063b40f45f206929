// Checksums of memory: they tell whether data changed.
#include <algorithm>
#include <cstring>
#include <vector>

#include "chunks.h"
#include "core.h"
#include "cpu.h"
#include "python_object.h"
#include "tensor_facts.h"

namespace fxdebug {

namespace {

constexpr int64_t kColumns = 61;     // a prime: rows of any usual length that change places change the columns
constexpr int64_t kRows = 1 << 10;   // in a piece of work
constexpr int64_t kQuick = 1 << 18;  // bytes, read in some microseconds: no second thread is worth its start

struct Columns {
  uint64_t sums[kColumns];
};

FXDEBUG_INLINE void columns_in(const char* data, int64_t rows, Columns& columns) {
  uint64_t sums[kColumns] = {};
  for (int64_t row = 0; row < rows; ++row) {
    uint64_t words[kColumns];
    std::memcpy(words, data + row * static_cast<int64_t>(sizeof words), sizeof words);
    for (int64_t column = 0; column < kColumns; ++column) sums[column] += words[column];
  }
  std::memcpy(columns.sums, sums, sizeof sums);
}

FXDEBUG_FOR_AVX512 void columns_avx512(const char* data, int64_t rows, Columns& columns) {
  columns_in(data, rows, columns);
}
FXDEBUG_FOR_AVX2 void columns_avx2(const char* data, int64_t rows, Columns& columns) {
  columns_in(data, rows, columns);
}
void columns_any(const char* data, int64_t rows, Columns& columns) { columns_in(data, rows, columns); }

void columns_of(const char* data, int64_t rows, Columns& columns) {
  const Cpu kind = cpu();
  (kind == Cpu::kAvx512 ? columns_avx512 : kind == Cpu::kAvx2 ? columns_avx2 : columns_any)(data, rows, columns);
}

Columns all_columns(const char* data, int64_t rows) {
  const int64_t pieces = (rows + kRows - 1) / kRows;
  std::vector<Columns> parts(static_cast<size_t>(pieces));
  in_threads(pieces, [&](int64_t piece) {
    const int64_t first = piece * kRows;
    columns_of(data + first * kColumns * 8, std::min(kRows, rows - first), parts[static_cast<size_t>(piece)]);
  });
  Columns all{};
  for (const Columns& part : parts) {
    for (int64_t column = 0; column < kColumns; ++column) all.sums[column] += part.sums[column];
  }
  return all;
}

// The sums of the columns, modulo 2**64, of memory as rows of kColumns words; then the bytes that fill no row. The
// caller knows that the memory is there. nullptr: an error is set.
PyObject* checksum_at(PyObject* address, PyObject* size) {
  const auto* data = static_cast<const char*>(PyLong_AsVoidPtr(address));
  const int64_t bytes = PyLong_AsLongLong(size);
  if (PyErr_Occurred()) return nullptr;
  const int64_t rows = bytes / (kColumns * 8), rest = bytes - rows * kColumns * 8;
  Columns columns{};
  if (rows && bytes <= kQuick) {
    columns_of(data, rows, columns);
  } else if (rows) {
    columns = all_columns(data, rows);  // with the interpreter's lock: without it, another thread may free the memory
  }
  PyObject* result = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(sizeof columns) + rest);
  if (!result) return nullptr;
  std::memcpy(PyBytes_AS_STRING(result), columns.sums, sizeof columns);
  std::memcpy(PyBytes_AS_STRING(result) + sizeof columns, data + bytes - rest, static_cast<size_t>(rest));
  return result;
}

// checksum(address, bytes): that of one memory.
PyObject* checksum(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 2) return not_mine();
  return guarded([&] { return checksum_at(given[0], given[1]); });
}

// checksums(readers): those of many, each an (address, bytes) or None.
PyObject* checksums(PyObject*, PyObject* readers) {
  return guarded([&]() -> PyObject* {
    if (!PyList_CheckExact(readers)) return not_mine();
    const Py_ssize_t count = PyList_GET_SIZE(readers);
    Object found(PyList_New(count));
    for (Py_ssize_t index = 0; found && index < count; ++index) {
      const Object reader =
          Object::borrowed(index < PyList_GET_SIZE(readers) ? PyList_GET_ITEM(readers, index) : Py_None);
      const bool is_read = PyTuple_Check(reader.get()) && PyTuple_GET_SIZE(reader.get()) == 2;
      Object sum = is_read ? Object(checksum_at(PyTuple_GET_ITEM(reader.get(), 0), PyTuple_GET_ITEM(reader.get(), 1)))
                           : Object::borrowed(Py_None);
      if (!sum) return nullptr;
      PyList_SET_ITEM(found.get(), index, sum.release());
    }
    return found.release();
  });
}

PyMethodDef checksum_way = {"checksum", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(checksum)), METH_FASTCALL,
                            "Return the checksum of memory."};
PyMethodDef checksums_way = {"checksums", checksums, METH_O, "Return the checksums of many memories."};

}  // namespace

bool add_checksums(PyObject* module) { return add_way(module, &checksum_way) && add_way(module, &checksums_way); }

}  // namespace fxdebug
