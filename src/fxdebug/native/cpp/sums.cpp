#include "sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu.h"

namespace fxdebug {

namespace {

constexpr int kLanes = 32;  // elements in a step, each with running sums of its own: none waits for the one before

// A float is read as its code, its bits as a signed integer: comparisons of integers are vectorised whatever a NaN
// asks.
template <class Code, int kMantissa>
struct Float {
  using Stored = Code;
  static constexpr int kSign = sizeof(Code) * 8 - 1;
  static constexpr Code kRest = static_cast<Code>(std::numeric_limits<Code>::max());  // all bits but the sign
  static constexpr Code kInfinity = static_cast<Code>((kRest >> kMantissa) << kMantissa);

  // Keys sort as the floats do: negative floats have all bits but the sign flipped. It is its own inverse.
  static FXDEBUG_INLINE Code key(Code code) { return static_cast<Code>(code ^ ((code >> kSign) & kRest)); }
};

template <class To, class From>
FXDEBUG_INLINE To bits_as(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "a float and its code have the same size");
  std::memcpy(&to, &from, sizeof to);
  return to;
}

struct Float64 : Float<int64_t, 52> {
  static FXDEBUG_INLINE double number(int64_t code) { return bits_as<double>(code); }
};
struct Float32 : Float<int32_t, 23> {
  static FXDEBUG_INLINE double number(int32_t code) { return static_cast<double>(bits_as<float>(code)); }
};
struct BFloat16 : Float<int16_t, 7> {  // the upper half of a float32
  static FXDEBUG_INLINE double number(int16_t code) {
    return static_cast<double>(bits_as<float>(static_cast<uint32_t>(static_cast<uint16_t>(code)) << 16));
  }
};
struct Float16 : Float<int16_t, 10> {  // without a subnormal float32 in between, which a flushed mode takes for zero
  static FXDEBUG_INLINE double number(int16_t code) {
    const int32_t size = code & 0x7FFF;
    const int32_t sign = static_cast<int32_t>(code & 0x8000) << 16;
    const int32_t small = bits_as<int32_t>(static_cast<float>(size) * 0x1p-24f);
    const int32_t normal = (size << 13) + (112 << 23);  // moved to float32's places; exponents begin 112 apart
    const int32_t special = (size << 13) | 0x7F800000;  // the last exponent: infinity and NaN
    const int32_t bits = size < 0x0400 ? small : size < 0x7C00 ? normal : special;
    return static_cast<double>(bits_as<float>(bits | sign));
  }
};

template <class Kind>
FXDEBUG_INLINE Sums sums_in(const void* data, int64_t count) {
  using Code = typename Kind::Stored;
  const auto* codes = static_cast<const Code*>(data);
  double total[kLanes] = {}, squares[kLanes] = {};
  Code low[kLanes], high[kLanes], zeros[kLanes] = {};
  std::fill(low, low + kLanes, std::numeric_limits<Code>::max());
  std::fill(high, high + kLanes, std::numeric_limits<Code>::min());
  const auto take = [&](int lane, int64_t place) __attribute__((always_inline)) {
    Code code;
    std::memcpy(&code, codes + place, sizeof code);  // an address need not be aligned
    const double number = Kind::number(code);
    const Code key = Kind::key(code);
    total[lane] += number;
    squares[lane] += number * number;
    low[lane] = key < low[lane] ? key : low[lane];
    high[lane] = key > high[lane] ? key : high[lane];
    zeros[lane] = static_cast<Code>(zeros[lane] + ((code & Kind::kRest) == 0));
  };
  int64_t place = 0;
  for (; place + kLanes <= count; place += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(lane, place + lane);
  }
  for (int lane = 0; place < count; ++lane, ++place) take(lane, place);
  Sums sums;
  for (int lane = 0; lane < kLanes; ++lane) {
    sums.total += total[lane];
    sums.squares += squares[lane];
    sums.zeros += zeros[lane];
  }
  sums.low = Kind::number(Kind::key(*std::min_element(low, low + kLanes)));
  sums.high = Kind::number(Kind::key(*std::max_element(high, high + kLanes)));
  return sums;
}

template <class Kind>
FXDEBUG_INLINE FiniteSums finite_sums_in(const void* data, int64_t count, double shift) {
  using Code = typename Kind::Stored;
  const auto* codes = static_cast<const Code*>(data);
  double drift[kLanes] = {}, squares[kLanes] = {};
  Code low[kLanes], high[kLanes], zeros[kLanes] = {}, minus_zeros[kLanes] = {};
  Code nan[kLanes] = {}, posinf[kLanes] = {}, neginf[kLanes] = {};
  std::fill(low, low + kLanes, std::numeric_limits<Code>::max());
  std::fill(high, high + kLanes, std::numeric_limits<Code>::min());
  const auto take = [&](int lane, int64_t place) __attribute__((always_inline)) {
    Code code;
    std::memcpy(&code, codes + place, sizeof code);
    const Code size = code & Kind::kRest, key = Kind::key(code);
    const bool is_finite = size < Kind::kInfinity;
    const double distance = is_finite ? Kind::number(code) - shift : 0.0;
    drift[lane] += distance;
    squares[lane] += distance * distance;
    low[lane] = is_finite && key < low[lane] ? key : low[lane];
    high[lane] = is_finite && key > high[lane] ? key : high[lane];
    zeros[lane] = static_cast<Code>(zeros[lane] + (size == 0));
    minus_zeros[lane] = static_cast<Code>(minus_zeros[lane] + (code == std::numeric_limits<Code>::min()));
    nan[lane] = static_cast<Code>(nan[lane] + (size > Kind::kInfinity));
    posinf[lane] = static_cast<Code>(posinf[lane] + (code == Kind::kInfinity));
    neginf[lane] = static_cast<Code>(neginf[lane] + (size == Kind::kInfinity && code < 0));
  };
  int64_t place = 0;
  for (; place + kLanes <= count; place += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(lane, place + lane);
  }
  for (int lane = 0; place < count; ++lane, ++place) take(lane, place);
  FiniteSums sums;
  for (int lane = 0; lane < kLanes; ++lane) {
    sums.drift += drift[lane];
    sums.squares += squares[lane];
    sums.zeros += zeros[lane];
    sums.minus_zeros += minus_zeros[lane];
    sums.nan += nan[lane];
    sums.posinf += posinf[lane];
    sums.neginf += neginf[lane];
  }
  const Code least = *std::min_element(low, low + kLanes), most = *std::max_element(high, high + kLanes);
  const bool has_any = least <= most;
  sums.low = has_any ? Kind::number(Kind::key(least)) : std::numeric_limits<double>::infinity();
  sums.high = has_any ? Kind::number(Kind::key(most)) : -std::numeric_limits<double>::infinity();
  return sums;
}

template <class Integer>
FXDEBUG_INLINE IntegerSums integer_sums_in(const void* data, int64_t count) {
  const auto* numbers = static_cast<const Integer*>(data);
  Integer low = std::numeric_limits<Integer>::max(), high = std::numeric_limits<Integer>::lowest();
  using Sum = std::conditional_t<(sizeof(Integer) > 2), int64_t, int32_t>;  // wide enough for kMostElements
  Sum upper = 0, lower = 0, zeros = 0;
  for (int64_t place = 0; place < count; ++place) {
    const Integer number = numbers[place];
    low = number < low ? number : low;
    high = number > high ? number : high;
    const auto wide = static_cast<Sum>(number);
    if constexpr (sizeof(Integer) > 4) {
      upper += wide >> 32;
      lower += wide & 0xFFFFFFFF;
    } else {
      lower += wide;
    }
    zeros += number == 0;
  }
  return {static_cast<int64_t>(low), static_cast<int64_t>(high), upper, lower, zeros};
}

template <class Integer>
FXDEBUG_INLINE double squares_of_integers_in(const void* data, int64_t count, double mean) {
  const auto* numbers = static_cast<const Integer*>(data);
  double squares[kLanes] = {};
  const auto take = [&](int lane, int64_t place) __attribute__((always_inline)) {
    const double distance = static_cast<double>(numbers[place]) - mean;
    squares[lane] += distance * distance;
  };
  int64_t place = 0;
  for (; place + kLanes <= count; place += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(lane, place + lane);
  }
  for (int lane = 0; place < count; ++lane, ++place) take(lane, place);
  double all = 0;
  for (double each : squares) all += each;
  return all;
}

// Each loop for three processors -----------------------------------------------------------------

// Defines NAME<Kind>(arguments…), which runs NAME_in<Kind> as compiled for this processor.
#define FXDEBUG_FOR_EACH_CPU(RESULT, NAME, PARAMETERS, ARGUMENTS) \
  template <class Kind>                                           \
  FXDEBUG_FOR_AVX512 RESULT NAME##_avx512 PARAMETERS {            \
    return NAME##_in<Kind> ARGUMENTS;                             \
  }                                                               \
  template <class Kind>                                           \
  FXDEBUG_FOR_AVX2 RESULT NAME##_avx2 PARAMETERS {                \
    return NAME##_in<Kind> ARGUMENTS;                             \
  }                                                               \
  template <class Kind>                                           \
  RESULT NAME##_any PARAMETERS {                                  \
    return NAME##_in<Kind> ARGUMENTS;                             \
  }                                                               \
  template <class Kind>                                           \
  RESULT NAME PARAMETERS {                                        \
    switch (cpu()) {                                              \
      case Cpu::kAvx512:                                          \
        return NAME##_avx512<Kind> ARGUMENTS;                     \
      case Cpu::kAvx2:                                            \
        return NAME##_avx2<Kind> ARGUMENTS;                       \
      default:                                                    \
        return NAME##_any<Kind> ARGUMENTS;                        \
    }                                                             \
  }

FXDEBUG_FOR_EACH_CPU(Sums, sums, (const void* data, int64_t count), (data, count))
FXDEBUG_FOR_EACH_CPU(FiniteSums, finite_sums, (const void* data, int64_t count, double shift), (data, count, shift))
FXDEBUG_FOR_EACH_CPU(IntegerSums, integer_sums, (const void* data, int64_t count), (data, count))
FXDEBUG_FOR_EACH_CPU(double, squares_of_integers, (const void* data, int64_t count, double mean), (data, count, mean))

}  // namespace

bool is_summed_float(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kBFloat16 || dtype == c10::kHalf || dtype == c10::kDouble;
}

bool is_summed_integer(c10::ScalarType dtype) {
  return dtype == c10::kLong || dtype == c10::kBool || dtype == c10::kInt || dtype == c10::kByte ||
         dtype == c10::kChar || dtype == c10::kShort;
}

Sums sums_of(c10::ScalarType dtype, const void* data, int64_t count) {
  switch (dtype) {
    case c10::kFloat:
      return sums<Float32>(data, count);
    case c10::kBFloat16:
      return sums<BFloat16>(data, count);
    case c10::kHalf:
      return sums<Float16>(data, count);
    default:
      return sums<Float64>(data, count);
  }
}

FiniteSums finite_sums_of(c10::ScalarType dtype, const void* data, int64_t count, double shift) {
  switch (dtype) {
    case c10::kFloat:
      return finite_sums<Float32>(data, count, shift);
    case c10::kBFloat16:
      return finite_sums<BFloat16>(data, count, shift);
    case c10::kHalf:
      return finite_sums<Float16>(data, count, shift);
    default:
      return finite_sums<Float64>(data, count, shift);
  }
}

IntegerSums integer_sums_of(c10::ScalarType dtype, const void* data, int64_t count) {
  switch (dtype) {
    case c10::kLong:
      return integer_sums<int64_t>(data, count);
    case c10::kInt:
      return integer_sums<int32_t>(data, count);
    case c10::kShort:
      return integer_sums<int16_t>(data, count);
    case c10::kChar:
      return integer_sums<int8_t>(data, count);
    default:  // a boolean is a byte of 0 or 1
      return integer_sums<uint8_t>(data, count);
  }
}

int64_t integer_at(c10::ScalarType dtype, const void* data, int64_t place) {
  switch (dtype) {
    case c10::kLong:
      return static_cast<const int64_t*>(data)[place];
    case c10::kInt:
      return static_cast<const int32_t*>(data)[place];
    case c10::kShort:
      return static_cast<const int16_t*>(data)[place];
    case c10::kChar:
      return static_cast<const int8_t*>(data)[place];
    default:
      return static_cast<const uint8_t*>(data)[place];
  }
}

double squares_of_integers(c10::ScalarType dtype, const void* data, int64_t count, double mean) {
  switch (dtype) {
    case c10::kLong:
      return squares_of_integers<int64_t>(data, count, mean);
    case c10::kInt:
      return squares_of_integers<int32_t>(data, count, mean);
    case c10::kShort:
      return squares_of_integers<int16_t>(data, count, mean);
    case c10::kChar:
      return squares_of_integers<int8_t>(data, count, mean);
    default:
      return squares_of_integers<uint8_t>(data, count, mean);
  }
}

void add(Sums& sums, const Sums& more) {
  sums.total += more.total;
  sums.squares += more.squares;
  // the order of keys: NaN wins, and -0.0 is less than 0.0
  const auto is_less = [](double a, double b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); };
  if (std::isnan(more.low) || is_less(more.low, sums.low)) sums.low = more.low;
  if (std::isnan(more.high) || is_less(sums.high, more.high)) sums.high = more.high;
  sums.zeros += more.zeros;
}

void add(FiniteSums& sums, const FiniteSums& more) {
  sums.drift += more.drift;
  sums.squares += more.squares;
  const auto is_less = [](double a, double b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); };
  if (is_less(more.low, sums.low)) sums.low = more.low;
  if (is_less(sums.high, more.high)) sums.high = more.high;
  sums.zeros += more.zeros;
  sums.minus_zeros += more.minus_zeros;
  sums.nan += more.nan;
  sums.posinf += more.posinf;
  sums.neginf += more.neginf;
}

void add(IntegerSums& sums, const IntegerSums& more) {
  sums.low = std::min(sums.low, more.low);
  sums.high = std::max(sums.high, more.high);
  sums.upper += more.upper;
  sums.lower += more.lower;
  sums.zeros += more.zeros;
}

}  // namespace fxdebug
