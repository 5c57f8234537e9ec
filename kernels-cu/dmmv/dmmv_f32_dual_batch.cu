// alpha_out = A x and beta_out = B x for two f32 matrices of equal shape and n_tokens vectors.
// Grid: x over groups of warps * rows rows of both matrices, y over chunks of `vectors` tokens. A lane loads 16 bytes
// of a row at a time, neighbouring lanes neighbouring columns.
#include "zinc/dmmv_f32_dual_batch.h"

#include "zinc/dmmv_dense.cuh"

namespace tile = dmmv_f32_dual_batch_tile;

ZINC_KERNEL void __launch_bounds__(32 * tile::warps, tile::blocks)
    dmmv_f32_dual_batch(const uint8_t* alpha_w, const uint8_t* beta_w, const float* x, float* alpha_out,
                        float* beta_out, dmmv_f32_dual_batch_push p) {
  using Shape = zinc::RowShape<tile::warps, tile::rows, tile::vectors>;
  zinc::dmmv_f32_dual<Shape>(alpha_w, beta_w, x, alpha_out, beta_out, p);
}
