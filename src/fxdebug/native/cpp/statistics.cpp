#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "chunks.h"
#include "sums.h"
#include "tensor_facts.h"

namespace fxdebug {

namespace {

constexpr int64_t kAtOnce = 64;       // stretches, read in a millisecond or two; then other threads of Python may run
constexpr int64_t kFewIntegers = 64;  // up to so many, Python's arithmetic is followed exactly
constexpr int64_t kExact = int64_t{1} << 53;  // up to here float64 has every integer
constexpr int64_t kMostInAll = int64_t{1} << 40;

// The elements of a tensor as stretches of kMostElements, except the last. Their order is that of memory for dense
// tensors, that of the indices for others; a dimension that repeats its elements is read once.
class Elements {
 public:
  explicit Elements(const at::Tensor& tensor)
      : size_(static_cast<int64_t>(tensor.element_size())),
        storage_(tensor.storage()),
        memory_(storage_.data_ptr().get()),
        bytes_(storage_.nbytes()) {
    data_ = static_cast<const char*>(tensor.const_data_ptr());
    dtype = tensor.scalar_type();
    is_dense_ = true;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      const int64_t size = tensor.size(dim), stride = tensor.stride(dim);
      if (size == 1) continue;
      if (stride == 0) {
        repeats *= size;
      } else if (!sizes_.empty() && strides_.back() == size * stride) {
        sizes_.back() *= size;
        strides_.back() = stride;
      } else {
        sizes_.push_back(size);
        strides_.push_back(stride);
      }
      count *= stride == 0 ? 1 : size;
    }
    is_dense_ = sizes_.empty() || covers_a_stretch();
  }

  c10::ScalarType dtype;
  int64_t count = 1, repeats = 1;

  // Calls work(number, data, count) for each stretch; numbers count from 0. Other threads of Python run in between, so
  // it throws where one of them has freed the memory.
  template <class Work>
  void for_each(const Work& work) const {
    const int64_t stretches = (count + kMostElements - 1) / kMostElements;
    if (is_dense_) {
      for (int64_t first = 0; first < stretches; first += kAtOnce) {
        if (first) let_others_run();
        in_threads(std::min(kAtOnce, stretches - first), [&](int64_t number) {
          const int64_t start = (first + number) * kMostElements;
          work(first + number, data_ + start * size_, std::min(kMostElements, count - start));
        });
      }
      return;
    }
    std::vector<char> gathered(static_cast<size_t>(std::min(count, kMostElements) * size_));
    std::vector<int64_t> index(sizes_.size(), 0);
    for (int64_t number = 0; number < stretches; ++number) {
      const int64_t here = std::min(kMostElements, count - number * kMostElements);
      if (number && number % kAtOnce == 0) let_others_run();
      gather(gathered.data(), here, index);
      work(number, gathered.data(), here);
    }
  }

 private:
  const char* data_;
  int64_t size_;
  std::vector<int64_t> sizes_, strides_;
  bool is_dense_;
  const c10::Storage storage_;  // kept, also where another thread lets go of the tensor
  const void* memory_;
  size_t bytes_;

  // The memory is read with the interpreter's lock: without it, `storage.resize_` in another thread may free it.
  void let_others_run() const {
    PyEval_RestoreThread(PyEval_SaveThread());
    if (storage_.data_ptr().get() != memory_ || storage_.nbytes() < bytes_) {
      throw std::runtime_error("the memory of a tensor was freed while it was read");
    }
  }

  // Do the elements fill a stretch of memory, in any order?
  bool covers_a_stretch() const {
    std::vector<std::pair<int64_t, int64_t>> dims;
    for (size_t dim = 0; dim < sizes_.size(); ++dim) dims.emplace_back(strides_[dim], sizes_[dim]);
    std::sort(dims.begin(), dims.end());
    int64_t next = 1;
    for (const auto& [stride, size] : dims) {
      if (stride != next) return false;
      next *= size;
    }
    return true;
  }

  // Copies the next `many` elements; `index` is where the last call ended.
  void gather(char* to, int64_t many, std::vector<int64_t>& index) const {
    const size_t inner = sizes_.size() - 1;
    while (many > 0) {
      const char* row = data_;
      for (size_t dim = 0; dim <= inner; ++dim) row += index[dim] * strides_[dim] * size_;
      const int64_t run = std::min(many, sizes_[inner] - index[inner]);
      copy(to, row, run, strides_[inner] * size_);
      to += run * size_;
      many -= run;
      index[inner] += run;
      for (size_t dim = inner; dim > 0 && index[dim] == sizes_[dim]; --dim) {
        index[dim] = 0;
        ++index[dim - 1];
      }
    }
  }

  void copy(char* to, const char* from, int64_t many, int64_t step) const {
    if (step == size_) {
      std::memcpy(to, from, static_cast<size_t>(many * size_));
    } else if (size_ == 4) {
      for (int64_t i = 0; i < many; ++i) std::memcpy(to + i * 4, from + i * step, 4);
    } else if (size_ == 2) {
      for (int64_t i = 0; i < many; ++i) std::memcpy(to + i * 2, from + i * step, 2);
    } else {
      for (int64_t i = 0; i < many; ++i) std::memcpy(to + i * size_, from + i * step, static_cast<size_t>(size_));
    }
  }
};

// The sums of all stretches, by `take(data, count)` of each, added in their order whatever the number of threads.
template <class Result, class Take>
Result all_of(const Elements& elements, const Take& take) {
  const int64_t stretches = (elements.count + kMostElements - 1) / kMostElements;
  std::vector<Result> parts(static_cast<size_t>(stretches));
  elements.for_each(
      [&](int64_t number, const void* data, int64_t count) { parts[static_cast<size_t>(number)] = take(data, count); });
  Result all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) add(all, parts[i]);
  return all;
}

// Numbers as Stats has them: of floats, or of integers.
struct Numbers {
  int64_t count;
  bool has_any = true, is_integer = false;
  double mean = 0, std = 0, low = 0, high = 0;
  int64_t least = 0, most = 0;  // of integers
  int64_t nan = 0, posinf = 0, neginf = 0, zeros = 0;
};

// Is an extreme a zero that may have either sign, if there are zeros of both? The loops order the two; torch, which
// Python follows, returns either.
bool may_have_two_signs(double low, double high, int64_t zeros) {
  const bool least_is_minus = low == 0.0 && std::signbit(low), most_is_plus = high == 0.0 && !std::signbit(high);
  return zeros > 1 && ((least_is_minus && (high > 0.0 || most_is_plus)) || (most_is_plus && low < 0.0));
}

void set_mean_and_std(Numbers& numbers, double mean, double deviation, int64_t count, int64_t repeats) {
  const double many = static_cast<double>(count * repeats);
  numbers.mean = std::min(std::max(mean, numbers.low), numbers.high);  // rounding must not push it out of the range
  numbers.std = many > 1 ? std::sqrt(deviation) / std::sqrt((many - 1) / static_cast<double>(repeats)) : 0.0;
}

// If less of the sum of squares is left, digits of std are lost: float32 has 24 bits of the 53 that sums have.
double cancelled(c10::ScalarType dtype) { return dtype == c10::kDouble ? 0.2 : 1e-6; }

// Does float64 hold the squares of numbers of this range? Those of shorter floats it does.
bool holds_squares(c10::ScalarType dtype, double low, double high) {
  const double most = std::max(-low, high);
  return dtype != c10::kDouble || most == 0.0 || (1e-130 < most && most < 1e130);
}

// The sums of the finite elements, less the shift that they are returned with: the wanted one if all are finite, else
// their mean where it is much larger than the spread.
std::pair<FiniteSums, double> centred(const Elements& elements, bool is_finite, double wanted) {
  const auto read = [&](double shift) {
    return all_of<FiniteSums>(
        elements, [&](const void* data, int64_t n) { return finite_sums_of(elements.dtype, data, n, shift); });
  };
  if (is_finite) return {read(wanted), wanted};
  const FiniteSums sums = read(0.0);
  const int64_t left = elements.count - sums.nan - sums.posinf - sums.neginf;
  if (!left) return {sums, 0.0};
  const double shift = sums.drift / static_cast<double>(left);
  const bool is_cancelled = sums.squares - sums.drift * shift < cancelled(elements.dtype) * sums.squares;
  return is_cancelled ? std::make_pair(read(shift), shift) : std::make_pair(sums, 0.0);
}

// False for numbers that Python measures: zeros of both signs, and float64 whose squares no float64 holds.
bool measure_floats(const Elements& elements, Numbers& numbers) {
  const auto dtype = elements.dtype;
  const auto count = elements.count, repeats = elements.repeats;
  const Sums sums = all_of<Sums>(elements, [&](const void* data, int64_t n) { return sums_of(dtype, data, n); });
  const double mean = sums.total / static_cast<double>(count);
  const double deviation = sums.squares - sums.total * mean;
  const bool is_finite = std::isfinite(sums.low) && std::isfinite(sums.high);
  numbers = {count * repeats};
  if (is_finite && !holds_squares(dtype, sums.low, sums.high)) return false;
  if (is_finite && deviation >= cancelled(dtype) * sums.squares &&
      !may_have_two_signs(sums.low, sums.high, sums.zeros)) {
    numbers.low = sums.low;
    numbers.high = sums.high;
    numbers.zeros = sums.zeros * repeats;
    set_mean_and_std(numbers, mean, deviation, count, repeats);
    return true;
  }
  const bool is_cancelled = deviation < cancelled(dtype) * sums.squares;
  const auto [finite, shift] = centred(elements, is_finite, is_cancelled ? mean : 0.0);
  const int64_t left = count - finite.nan - finite.posinf - finite.neginf;
  numbers.nan = finite.nan * repeats;
  numbers.posinf = finite.posinf * repeats;
  numbers.neginf = finite.neginf * repeats;
  numbers.zeros = finite.zeros * repeats;
  numbers.has_any = left > 0;
  if (!left) return true;
  if (!holds_squares(dtype, finite.low, finite.high) ||
      (0 < finite.minus_zeros && finite.minus_zeros < finite.zeros && (finite.low == 0.0 || finite.high == 0.0))) {
    return false;
  }
  numbers.low = finite.low;
  numbers.high = finite.high;
  const double drift = finite.drift / static_cast<double>(left);
  const double around = std::max(finite.squares - finite.drift * drift, 0.0);
  set_mean_and_std(numbers, shift + drift, around, left, repeats);
  return true;
}

// False for integers that float64 would round.
bool measure_integers(const Elements& elements, Numbers& numbers) {
  const auto dtype = elements.dtype;
  const auto count = elements.count, many = elements.count * elements.repeats;
  const IntegerSums sums =
      all_of<IntegerSums>(elements, [&](const void* data, int64_t n) { return integer_sums_of(dtype, data, n); });
  const int64_t most = sums.low == std::numeric_limits<int64_t>::min() ? kExact + 1 : std::max(-sums.low, sums.high);
  if (most > kExact / count) return false;  // sums are below kExact then, and so is what deviations are made of
  const int64_t total = (sums.upper << 32) + sums.lower;
  numbers = {many};
  numbers.is_integer = true;
  numbers.least = sums.low;
  numbers.most = sums.high;
  numbers.zeros = sums.zeros * elements.repeats;
  numbers.mean = static_cast<double>(total) / static_cast<double>(count);
  double deviation = 0;
  if (count <= kFewIntegers && most <= kExact / count / 2) {
    elements.for_each([&](int64_t, const void* data, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const auto exact = static_cast<double>(integer_at(dtype, data, i) * count - total);
        const double distance = exact / static_cast<double>(count);
        deviation += distance * distance;
      }
    });
  } else {
    std::vector<double> parts(static_cast<size_t>((count + kMostElements - 1) / kMostElements));
    elements.for_each([&](int64_t number, const void* data, int64_t n) {
      parts[static_cast<size_t>(number)] = squares_of_integers(dtype, data, n, numbers.mean);
    });
    for (double part : parts) deviation += part;
  }
  const double repeats = static_cast<double>(elements.repeats);
  numbers.std = many > 1 ? std::sqrt(deviation * repeats / static_cast<double>(many - 1)) : 0.0;
  return true;
}

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

PyObject* stats_of(const Numbers& numbers, PyObject* make) {
  const auto number = [&](double value) { return numbers.has_any ? PyFloat_FromDouble(value) : none(); };
  const auto extreme = [&](double value, int64_t integer) {
    return numbers.is_integer ? PyLong_FromLongLong(integer) : number(value);
  };
  PyObject* given[] = {PyLong_FromLongLong(numbers.count), number(numbers.mean), number(numbers.std),
                       extreme(numbers.low, numbers.least), extreme(numbers.high, numbers.most),
                       // in this order: the negative of a zero minimum is -0.0
                       extreme(std::max(std::max(0.0, -numbers.low), numbers.high),
                               std::max(std::max(-numbers.least, numbers.most), int64_t{0})),
                       PyLong_FromLongLong(numbers.nan), PyLong_FromLongLong(numbers.posinf),
                       PyLong_FromLongLong(numbers.neginf), PyLong_FromLongLong(numbers.zeros)};
  constexpr size_t kGiven = sizeof given / sizeof *given;
  bool are_made = true;
  for (PyObject* each : given) are_made = are_made && each;
  PyObject* stats = are_made ? PyObject_Vectorcall(make, given, kGiven, nullptr) : nullptr;
  for (PyObject* each : given) Py_XDECREF(each);
  return stats;
}

// False where Python must measure.
bool measure(const Elements& elements, bool is_float, Numbers& numbers) {
  return is_float ? measure_floats(elements, numbers) : measure_integers(elements, numbers);
}

}  // namespace

PyObject* statistics_of(const at::Tensor& tensor, PyObject* make) {
  return guarded([&]() -> PyObject* {
    const auto dtype = tensor.scalar_type();
    const bool is_float = is_summed_float(dtype);
    if (!(is_float || is_summed_integer(dtype)) || !tensor.is_cpu() || !is_ordinary(tensor) || tensor.is_neg() ||
        tensor.numel() > kMostInAll) {
      return not_mine();
    }
    Numbers numbers{};
    return measure(Elements(tensor), is_float, numbers) ? stats_of(numbers, make) : not_mine();
  });
}

namespace {

// statistics(tensor); needs (constructor of Stats,).
PyObject* statistics(PyObject* needs, PyObject* object) {
  const at::Tensor* tensor = plain_tensor(object);
  return tensor ? statistics_of(*tensor, PyTuple_GET_ITEM(needs, 0)) : not_mine();
}

PyMethodDef statistics_way = {"statistics", statistics, METH_O, "Return the Stats of an ordinary tensor on the CPU."};

}  // namespace

bool add_statistics(PyObject* module) { return add_way(module, &statistics_way); }

}  // namespace fxdebug
