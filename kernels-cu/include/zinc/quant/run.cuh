// One run of 16 neighbouring columns of a quantized row, for kernels that walk over a row in column order.
#pragma once

#include "zinc/quant/quants.cuh"

namespace zinc {

template <class Format>
struct Run {
  uint32_t words[run_words];
  float scale;
  float minimum;  // only where Format::has_minimum

  // Weight 4 * i + j of the run.
  ZINC_DEVICE float weight(unsigned i, unsigned j) const {
    const float product = scale * Format::Quants::to_float(words[i], j);
    return Format::has_minimum ? product - minimum : product;
  }
};

// The columns 16 * group .. 16 * group + 15 of `row`.
template <bool wide, class Format>
ZINC_DEVICE Run<Format> load_run(const uint8_t* row, uint32_t group) {
  constexpr unsigned block_units = Format::block_columns / unit_columns;
  // Column groups alternate between the two runs of a unit with this bit of their number.
  constexpr unsigned run_bit = Format::run_distance / run_columns;
  const bool second = group / run_bit % 2 != 0;
  const uint32_t unit = group / (2 * run_bit) * run_bit + group % run_bit;
  const auto loaded =
      Format::template load<wide>(row + uint64_t{unit / block_units} * Format::block_bytes, unit % block_units);
  const auto scales = loaded.scales();
  Run<Format> run;
#pragma unroll
  for (unsigned i = 0; i < run_words; ++i) run.words[i] = second ? loaded.word(1, i) : loaded.word(0, i);
  run.scale = second ? scales.scale[1] : scales.scale[0];
  if constexpr (Format::has_minimum) run.minimum = second ? scales.minimum[1] : scales.minimum[0];
  return run;
}

}  // namespace zinc
