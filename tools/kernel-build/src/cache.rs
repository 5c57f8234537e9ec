//! Compiled images in the cache that all checkouts of a user share.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use content_cache::Key;
use cubin_format::{Digest, Resources};

/// Above this size the entries that were not used for longest are removed.
const LIMIT: u64 = 2 << 30;

/// What a compilation gave.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Compiled {
    /// The image: a cubin, or PTX text.
    #[serde(skip)]
    pub image: Vec<u8>,
    /// What the assembler reported; zero for PTX.
    pub resources: Resources,
    /// The compiler's warnings, empty if there are none.
    pub warnings: String,
}

/// A directory of compiled images.
#[derive(Debug, Clone)]
pub struct Cache(content_cache::Cache);

impl Cache {
    /// The cache in `folder`, which the first entry makes.
    pub fn new(folder: PathBuf) -> Self {
        Self(content_cache::Cache::new(folder, "zinc-cuda kernel 1"))
    }

    /// The entry, if it is there and whole; a damaged one counts as missing.
    pub fn get(&self, key: Digest) -> Option<Compiled> {
        let body = self.0.get(Key::from(key.0))?;
        let end = body.iter().position(|byte| *byte == b'\n')?;
        let mut compiled: Compiled = serde_json::from_slice(&body[..end]).ok()?;
        compiled.image = body[end + 1..].to_vec();
        Some(compiled)
    }

    /// Stores an entry; another process sees all of it or nothing.
    ///
    /// # Errors
    /// Where the cache cannot be written.
    pub fn put(&self, key: Digest, compiled: &Compiled) -> io::Result<()> {
        let facts = serde_json::to_vec(compiled)?;
        self.0
            .put(Key::from(key.0), &[&facts, b"\n", &compiled.image])
    }

    /// Removes what was not used for longest until the cache is below its limit.
    ///
    /// # Errors
    /// Where the cache cannot be listed.
    pub fn trim(&self) -> io::Result<()> {
        self.0.trim(LIMIT)
    }
}

/// Writes a file only where its content changes, so that an unchanged output keeps its time.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    content_cache::write_atomically(path, &[bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_image_comes_back_as_it_was_stored() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("not/yet"));
        let resources = Resources {
            registers: 40,
            ..Resources::default()
        };
        let value = Compiled {
            image: b"a\nb\0\n".to_vec(),
            resources,
            warnings: "line one\nline \"two\"".to_owned(),
        };
        let key = Digest::of(b"key");
        assert_eq!(cache.get(key), None);
        cache.put(key, &value).unwrap();
        assert_eq!(cache.get(key), Some(value));
        assert_eq!(cache.get(Digest::of(b"other")), None);
    }
}
