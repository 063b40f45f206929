// Sums, extremes and counts of elements in memory, each element read once.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace fxdebug {

// Of floats of 16 to 64 bits. Sums are taken in double, in an order that depends on the count alone.
struct Sums {
  double total = 0, squares = 0;  // of the elements
  double low = 0, high = 0;       // -0.0 is less than 0.0; a NaN is beyond the infinities
  int64_t zeros = 0;
};

// Of the elements that are finite, less `shift`, which is subtracted from each.
struct FiniteSums {
  double drift = 0, squares = 0;  // of the distances from the shift
  double low = 0, high = 0;       // of the elements; low > high if none is finite
  int64_t zeros = 0, minus_zeros = 0, nan = 0, posinf = 0, neginf = 0;
};

// Of booleans and integers up to 64 bits.
struct IntegerSums {
  int64_t low = 0, high = 0;
  int64_t upper = 0, lower = 0;  // of the elements' upper and lower 32 bits: element = upper * 2**32 + lower
  int64_t zeros = 0;
};

bool is_summed_float(c10::ScalarType dtype);
bool is_summed_integer(c10::ScalarType dtype);

// `count` elements of a dtype begin at `data`: at least one, and at most kMostElements.
constexpr int64_t kMostElements = 1 << 15;
Sums sums_of(c10::ScalarType dtype, const void* data, int64_t count);
FiniteSums finite_sums_of(c10::ScalarType dtype, const void* data, int64_t count, double shift);
IntegerSums integer_sums_of(c10::ScalarType dtype, const void* data, int64_t count);

// The integer at a place.
int64_t integer_at(c10::ScalarType dtype, const void* data, int64_t place);

// The sum of the squares of integers' distances from `mean`.
double squares_of_integers(c10::ScalarType dtype, const void* data, int64_t count, double mean);

// The sums of two stretches together.
void add(Sums& sums, const Sums& more);
void add(FiniteSums& sums, const FiniteSums& more);
void add(IntegerSums& sums, const IntegerSums& more);

}  // namespace fxdebug
