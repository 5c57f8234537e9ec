// RMS norm of the hidden vector and its products with the two small f32 SSM projections (the q4k of the name is
// historical). Grid: x over the m rows, then one block that stores the normalised vector; a row's block sums over row j
// of both matrices, a thread four consecutive elements at a time.
#include "zinc/rms_norm_dmmv_q4k_alpha_beta.h"

#include "zinc/norm_matvec.cuh"

ZINC_KERNEL void __launch_bounds__(rms_norm_dmmv_q4k_alpha_beta_tile::threads)
    rms_norm_dmmv_q4k_alpha_beta(const float* hidden, const float* norm_weight, const float* alpha_w,
                                 const float* beta_w, float* norm_out, float* alpha_out, float* beta_out,
                                 rms_norm_dmmv_q4k_alpha_beta_push p) {
  zinc::wait_for_previous();
  const float eps = __uint_as_float(p.eps_bits);
  const uint32_t row = blockIdx.x;
  if (row == p.m) {
    zinc::store_norm<rms_norm_dmmv_q4k_alpha_beta_tile::held>(hidden, norm_weight, norm_out, p.k, eps);
    return;
  }
  const uint64_t first = uint64_t{row} * p.k;
  const zinc::MatrixRows<2> rows = {{alpha_w + first, beta_w + first}, {alpha_out + row, beta_out + row}};
  zinc::norm_times_rows(hidden, norm_weight, p.k, eps, rows);
}
