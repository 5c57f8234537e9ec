//! Compiled images in the cache that all checkouts of a user share.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use content_cache::Key;
use cubin_format::{ArchiveError, Digest, Payload, Resources};

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

/// What stands before a compressed image.
#[derive(serde::Serialize, serde::Deserialize)]
struct Head<T> {
    compiled: T,
    raw_bytes: u64,
}

/// A directory of compiled images. They lie there compressed, as an archive wants them: to compress takes longer than all else
/// that a build does with a known image.
#[derive(Debug, Clone)]
pub struct Cache(content_cache::Cache);

impl Cache {
    /// The cache in `folder`, which the first entry makes.
    pub fn new(folder: PathBuf) -> Self {
        Self(content_cache::Cache::new(folder, "zinc-cuda kernel 2"))
    }

    /// The entry, if it is there and whole; a damaged one counts as missing.
    pub fn get(&self, key: Digest) -> Option<(Compiled, Payload)> {
        let mut body = self.0.get(Key::from(key.0))?;
        let end = body.iter().position(|byte| *byte == b'\n')?;
        let stored = body.split_off(end + 1);
        let head: Head<Compiled> = serde_json::from_slice(&body).ok()?;
        let (payload, image) = Payload::restore(stored, head.raw_bytes)?;
        let compiled = head.compiled;
        Some((Compiled { image, ..compiled }, payload))
    }

    /// Stores an entry; another process sees all of it or nothing.
    ///
    /// # Errors
    /// Where the cache cannot be written.
    pub fn put(&self, key: Digest, compiled: &Compiled, payload: &Payload) -> io::Result<()> {
        let head = serde_json::to_vec(&Head {
            compiled,
            raw_bytes: payload.raw_bytes(),
        })?;
        self.0
            .put(Key::from(key.0), &[&head, b"\n", payload.stored()])
    }

    /// The image compressed with `base` as its base: from the cache, or now.
    ///
    /// # Errors
    /// Those of [`Payload::compress_on`].
    pub fn on_base(&self, image: &[u8], base: &[u8]) -> Result<Payload, ArchiveError> {
        let key = on_base_key(image, base);
        let found = self.0.get(key);
        if let Some(payload) = found.and_then(|stored| Payload::restore_on(stored, image, base)) {
            return Ok(payload);
        }
        let payload = Payload::compress_on(image, base)?;
        // A cache that cannot be written costs time and nothing else.
        let _ = self.0.put(key, &[payload.stored()]);
        Ok(payload)
    }

    /// Removes what was not used for longest until the cache is below its limit.
    ///
    /// # Errors
    /// Where the cache cannot be listed.
    pub fn trim(&self) -> io::Result<()> {
        self.0.trim(LIMIT)
    }
}

fn on_base_key(image: &[u8], base: &[u8]) -> Key {
    Key::of(&[b"on base", &Digest::of(image).0, &Digest::of(base).0])
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
        let payload = Payload::compress(&value.image).unwrap();
        assert!(cache.get(key).is_none());
        cache.put(key, &value, &payload).unwrap();
        let (found, restored) = cache.get(key).unwrap();
        assert_eq!(found, value);
        assert_eq!(restored.stored(), payload.stored());
        assert_eq!(restored.raw_hash(), Digest::of(&value.image));
        assert!(cache.get(Digest::of(b"other")).is_none());
    }

    #[test]
    fn image_on_a_base_comes_from_the_cache_where_that_has_one_for_this_base() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned());
        let (image, base) = (b"a piece of machine code", b"a piece of machine oil.");
        let stored = |base: &[u8]| cache.on_base(image, base).unwrap().stored().to_vec();
        let near = stored(base);
        assert_eq!(stored(base), near);
        assert_ne!(stored(b"something else altogether"), near);
        let restored = Payload::restore_on(near.clone(), image, base);
        assert_eq!(restored.unwrap().raw_hash(), Digest::of(image));

        // Another frame of the image, which needs no base, shows that the cache is asked; what is no frame of it, that its
        // answer is checked.
        let key = on_base_key(image, base);
        let alone = Payload::compress(image).unwrap().stored().to_vec();
        assert_ne!(alone, near);
        cache.0.put(key, &[&alone]).unwrap();
        assert_eq!(stored(base), alone);
        cache.0.put(key, &[b"no frame"]).unwrap();
        assert_eq!(stored(base), near);
    }
}
