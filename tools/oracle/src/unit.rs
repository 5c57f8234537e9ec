//! Dequantization through matrix-vector kernels: with x a unit vector, y is a column of the matrix, so
//! that every value of a block can be compared bit for bit.

use zinc_contract_types::Kernel;

use crate::case::Draft;
use crate::quant::Format;
use crate::{Case, Element, Expected, OracleError};

/// One dispatch y = W * e_c, whose rows are single blocks.
#[derive(Debug)]
pub struct UnitCase {
    /// the dispatch
    pub case: Case,
    /// the column c
    pub column: usize,
    /// the column of values, bit for bit (zeros of either sign are equal: they are sums)
    pub expected: Vec<Expected>,
}

/// One case per column of a block, for a matrix-vector kernel of the dense family (fields m, k and
/// offsets) or over routed experts (one slot, one expert). `blocks` are the rows of the matrix and
/// `values` the wanted f32 value of every element, block after block.
///
/// # Errors
/// The kernel has no buffers weights, x and y, or other fields than those of the two families.
///
/// # Panics
/// If `values` does not have as many elements as `blocks`.
pub fn cases(
    kernel: &'static Kernel,
    format: Format,
    blocks: &[u8],
    values: &[f32],
) -> Result<Vec<UnitCase>, OracleError> {
    let columns = format.elements();
    let rows = blocks.len() / format.bytes();
    assert_eq!(values.len(), rows * columns, "one value per element");
    (0..columns)
        .map(|column| {
            let mut draft = Draft::new(kernel, &format!("column {column}"));
            let fields = |name: &str| kernel.fields.iter().any(|f| f.name == name);
            draft.set_all(&[("m", rows as u32), ("k", columns as u32)]);
            if fields("num_cols") {
                draft.set("num_cols", 1);
            }
            if fields("expert_stride") {
                draft.set_all(&[("n_slots", 1), ("n_experts", 1)]);
                draft.set("expert_stride", blocks.len() as u32);
                draft.read_integers("routing", &[0]);
            }
            draft.read("weights", 0, blocks);
            let x = kernel.buffers.iter().find(|b| b.name == "x");
            if x.is_some_and(|x| x.dtype == "q8_1") {
                draft.read("x", 0, &unit_blocks(column, columns));
            } else {
                let mut unit = vec![0.0; columns];
                unit[column] = 1.0;
                draft.read_floats("x", 0, &unit);
            }
            draft.write("y");
            let wanted = values.iter().skip(column).step_by(columns);
            let wanted = wanted.map(|v| Element::near(f64::from(*v), 0.0)).collect();
            let y = crate::call::buffer_index(kernel, "y")?;
            Ok(UnitCase {
                case: draft.finish()?,
                column,
                expected: vec![Expected::floats(y, 0, wanted)],
            })
        })
        .collect()
}

/// Activation blocks that hold the unit vector: quant 1 with factor 1.
fn unit_blocks(column: usize, columns: usize) -> Vec<u8> {
    let one = half::f16::ONE.to_le_bytes();
    let mut bytes = vec![0; columns / 32 * 36];
    for block in bytes.chunks_exact_mut(36) {
        block[32..34].copy_from_slice(&one);
    }
    let block = column / 32 * 36;
    bytes[block + column % 32] = 1;
    bytes[block + 34..block + 36].copy_from_slice(&one);
    bytes
}
