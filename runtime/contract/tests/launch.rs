//! The typed launch functions pass words and buffers in the contract's order.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use zinc_contract::launch::*;
use zinc_contract::{ContractError, Dispatch, Kernel};

/// Records what is dispatched; a buffer is a letter.
#[derive(Default)]
struct Recorder(RefCell<Vec<(&'static str, Vec<u32>, String)>>);

impl Dispatch for &Recorder {
    type Slice<'a> = char;
    type Error = ContractError;

    fn dispatch(
        self,
        kernel: &'static Kernel,
        words: &[u32],
        buffers: &[char],
    ) -> Result<(), ContractError> {
        assert_eq!(
            (words.len(), buffers.len()),
            (kernel.fields.len(), kernel.buffers.len())
        );
        self.0
            .borrow_mut()
            .push((kernel.name, words.to_vec(), buffers.iter().collect()));
        Ok(())
    }
}

#[test]
fn words_and_buffers_arrive_in_contract_order() {
    let recorder = Recorder::default();
    let push = FlashAttnPush {
        head_dim: 128,
        n_heads: 32,
        n_kv_heads: 8,
        seq_len: 100,
        page_size: 16,
        attn_scale_bits: 0,
        sink_offset: 5,
    };
    let buffers = FlashAttnBuffers {
        sinks: 's',
        out: 'o',
        page_table: 't',
        v_cache: 'v',
        k_cache: 'k',
        q: 'q',
    };
    flash_attn(&recorder, &push, 7, 4, buffers).unwrap();
    let push = RmsNormMulPush { n: 64, eps: 1e-6 };
    rms_norm_mul(
        &recorder,
        &push,
        3,
        RmsNormMulBuffers {
            x: 'x',
            weight: 'w',
            y: 'x',
        },
    )
    .unwrap();
    assert_eq!(
        *recorder.0.borrow(),
        [
            (
                "flash_attn",
                vec![128, 32, 8, 100, 16, 0, 5, 7, 4],
                "qkvtos".to_owned()
            ),
            (
                "rms_norm_mul",
                vec![64, 1e-6f32.to_bits(), 3],
                "xwx".to_owned()
            ),
        ]
    );
}

#[test]
fn push_struct_has_the_layout_of_the_vulkan_block() {
    assert_eq!(size_of::<FlashAttnPush>(), 28);
    assert_eq!(align_of::<FlashAttnPush>(), 4);
    let push = RmsNormMulPush {
        n: 0x0102_0304,
        eps: 1.0,
    };
    let wanted: Vec<u8> = [0x0102_0304, 1.0f32.to_bits()]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    assert_eq!(push.bytes().as_slice(), wanted);
    assert_eq!(std::mem::offset_of!(RmsNormMulPush, eps), 4);
}
