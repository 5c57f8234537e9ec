// Runs of consecutive elements that one thread moves with one access: four where the addresses allow it, else one.
#pragma once
#include "zinc/platform.cuh"

namespace zinc {

template <class T, unsigned width>
struct __align__(sizeof(T) * width) Pack {
  T at[width];
};

// The place of `width` elements from `first` on, a multiple of width. What is addressed through it is aligned to
// sizeof(T) * width bytes.
template <unsigned width_>
struct Span {
  static constexpr unsigned width = width_;
  uint64_t first;

  template <class T>
  ZINC_DEVICE Pack<T, width> of(const T* from) const {
    return *reinterpret_cast<const Pack<T, width>*>(from + first);
  }
  template <class T>
  ZINC_DEVICE void to(T* out, const Pack<T, width>& value) const {
    *reinterpret_cast<Pack<T, width>*>(out + first) = value;
  }
};

// f of the elements of the same index.
template <class F, class T, unsigned width, class... Rest>
ZINC_DEVICE auto each(F f, const Pack<T, width>& first, const Pack<Rest, width>&... rest) {
  Pack<decltype(f(first.at[0], rest.at[0]...)), width> result;
#pragma unroll
  for (unsigned i = 0; i < width; ++i) result.at[i] = f(first.at[i], rest.at[i]...);
  return result;
}

// The widest span that a thread moves at once: 16 bytes of f32.
constexpr unsigned wide = 4;

template <class... T>
ZINC_DEVICE bool all_aligned(const T*... base) {
  return ((reinterpret_cast<uint64_t>(base) | ...) % 16) == 0;
}

}  // namespace zinc
