// RMS norm of the hidden vector and its product with the router matrix. Grid: x over the m rows, then one block that
// stores the normalised vector; a row's block sums over the vector, a thread four consecutive elements at a time.
#include "zinc/rms_norm_dmmv_f32.h"

#include "zinc/norm_matvec.cuh"

ZINC_KERNEL void __launch_bounds__(rms_norm_dmmv_f32_tile::threads)
    rms_norm_dmmv_f32(const float* hidden, const float* norm_weight, const float* router_weight, float* norm_out,
                      float* router_logits, rms_norm_dmmv_f32_push p) {
  zinc::wait_for_previous();
  const float eps = __uint_as_float(p.eps_bits);
  const uint32_t row = blockIdx.x;
  if (row == p.m) {
    zinc::store_norm<rms_norm_dmmv_f32_tile::held>(hidden, norm_weight, norm_out, p.k, eps);
    return;
  }
  const zinc::MatrixRows<1> rows = {{router_weight + uint64_t{row} * p.k}, {router_logits + row}};
  zinc::norm_times_rows(hidden, norm_weight, p.k, eps, rows);
}
