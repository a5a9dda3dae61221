#pragma once
#include <cstdint>
#include <type_traits>
#ifndef __CUDACC_RTC__
#include <vector>
#endif
#if !ROWMATH || ROWBASE_WIDTH != 4
#error "compiled without the definitions of installed packages"
#endif

namespace rowmath {
// Without annotations: nvcc needs --expt-relaxed-constexpr for it.
constexpr std::uint32_t round_up(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b * b; }

template <typename T>
using wide = std::conditional_t<std::is_integral<T>::value, std::int64_t, double>;

#ifndef __CUDACC_RTC__
inline std::vector<int> on_the_host() { return {}; }
#endif
}  // namespace rowmath
