// Weightless RMS norm, per-channel scale and router product. Grid: x over the m rows; the block owns one row and sums
// over the vector, a thread four consecutive elements at a time.
#include "zinc/rms_norm_scale_dmmv_f32.h"

#include "zinc/norm_matvec.cuh"

ZINC_KERNEL void __launch_bounds__(rms_norm_scale_dmmv_f32_tile::threads)
    rms_norm_scale_dmmv_f32(const float* hidden, const float* in_scale, const float* router_weight,
                            float* router_logits, rms_norm_scale_dmmv_f32_push p) {
  zinc::wait_for_previous();
  const uint32_t row = blockIdx.x;
  const zinc::MatrixRows<1> rows = {{router_weight + uint64_t{row} * p.k}, {router_logits + row}};
  zinc::norm_times_rows(hidden, in_scale, p.k, __uint_as_float(p.eps_bits), rows);
}
