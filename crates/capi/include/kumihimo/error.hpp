// kumihimo/error.hpp: errors of the C interface as exceptions. See kumihimo.hpp.
#ifndef KUMIHIMO_ERROR_HPP
#define KUMIHIMO_ERROR_HPP

#include <chrono>
#include <cstdint>
#include <system_error>

#include <kumihimo/base.h>

namespace kumihimo {

namespace detail {

[[noreturn]] inline void fail(int error) {
  throw std::system_error(error, std::generic_category(), kumi_error_text());
}

/// Throws std::system_error unless `error` is 0.
inline void check(int error) {
  if (error != 0) fail(error);
}

/// Nanoseconds of a duration: 0 for negative ones, and the largest number for those beyond the
/// range, which is 292 years.
template <class Rep, class Period>
std::int64_t nanoseconds(const std::chrono::duration<Rep, Period>& time) {
  using limit = std::chrono::duration<double, std::nano>;
  if (time <= time.zero()) return 0;
  if (limit(time).count() >= 9.2e18) return INT64_MAX;
  // Rounds up, so that a wait never ends early.
  return std::chrono::ceil<std::chrono::nanoseconds>(time).count();
}

}  // namespace detail

}  // namespace kumihimo

#endif
