//! Archives: the input as it is, and with a seal that fits, so that the fuzzer gets past the hash.

#![no_main]

use cubin_format::{Archive, Digest};
use libfuzzer_sys::fuzz_target;

/// Header bytes in front of the seal, and with it.
const SEALED: usize = 48;
const HEADER: usize = 80;

fn read_all(blob: &[u8]) {
    if let Ok(archive) = Archive::open(blob) {
        let _ = archive.verify_all();
    }
}

fn sealed(mut blob: Vec<u8>) -> Vec<u8> {
    if blob.len() < HEADER {
        return blob;
    }
    blob[..16].copy_from_slice(b"ZNCUBIN\n\x01\0\0\0\0\0\0\0");
    let total = blob.len() as u64;
    let left = total - HEADER as u64;
    let index = u64::from(u16::from_le_bytes([blob[24], blob[25]])).min(left);
    blob[16..24].copy_from_slice(&total.to_le_bytes());
    blob[24..32].copy_from_slice(&index.to_le_bytes());
    blob[32..40].copy_from_slice(&(left - index).to_le_bytes());
    let seal = Digest::of_parts(&[&blob[..SEALED], &blob[HEADER..HEADER + index as usize]]);
    blob[SEALED..HEADER].copy_from_slice(&seal.0);
    blob
}

fuzz_target!(|bytes: &[u8]| {
    read_all(bytes);
    read_all(&sealed(bytes.to_vec()));
});
