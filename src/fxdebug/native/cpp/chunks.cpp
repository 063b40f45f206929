#include "chunks.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <numeric>
#include <vector>

namespace fxdebug {

// at::parallel_for is a template that would run in another OpenMP than torch's, which torch.set_num_threads does not
// reach. An iterator over the numbers calls it inside torch's own library.
void in_threads(int64_t count, const std::function<void(int64_t)>& work) {
  if (count == 1 || at::get_num_threads() == 1 || at::in_parallel_region()) {
    for (int64_t number = 0; number < count; ++number) work(number);
    return;
  }
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  at::Tensor listed = at::from_blob(numbers.data(), {count}, at::TensorOptions().dtype(at::kLong));
  auto iterator = at::TensorIterator::nullary_op(listed);
  const auto take = [&](char** data, const int64_t* strides, int64_t size, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < size; ++i) {
        work(*reinterpret_cast<int64_t*>(data[0] + row * strides[1] + i * strides[0]));
      }
    }
  };
  iterator.for_each(take, /*grain_size=*/1);
}

}  // namespace fxdebug
