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

/// A directory of compiled images, and of their compressed forms in archives, which take longer to make than all else that a
/// build does with a known image.
#[derive(Debug, Clone)]
pub struct Cache(content_cache::Cache);

impl Cache {
    /// The cache in `folder`, which the first entry makes.
    pub fn new(folder: PathBuf) -> Self {
        Self(content_cache::Cache::new(folder, "zinc-cuda kernel 3"))
    }

    /// The entry, if it is there and whole; a damaged one counts as missing.
    pub fn get(&self, key: Digest) -> Option<Compiled> {
        let mut body = self.0.get(Key::from(key.0))?;
        let end = body.iter().position(|byte| *byte == b'\n')?;
        let image = body.split_off(end + 1);
        let compiled: Compiled = serde_json::from_slice(&body).ok()?;
        Some(Compiled { image, ..compiled })
    }

    /// Stores an entry; another process sees all of it or nothing.
    ///
    /// # Errors
    /// Where the cache cannot be written.
    pub fn put(&self, key: Digest, compiled: &Compiled) -> io::Result<()> {
        let head = serde_json::to_vec(compiled)?;
        self.0
            .put(Key::from(key.0), &[&head, b"\n", &compiled.image])
    }

    /// The image compressed with the best of `bases` as its base, or without one where none saves a fifth: from the cache,
    /// or now.
    ///
    /// # Errors
    /// Those of [`Payload::compress_on`].
    pub fn payload(&self, image: &[u8], bases: &[&[u8]]) -> Result<Payload, ArchiveError> {
        let key = payload_key(image, bases);
        if let Some(payload) = self
            .0
            .get(key)
            .and_then(|entry| restore(entry, image, bases))
        {
            return Ok(payload);
        }
        let mut best = 0;
        let mut most = Payload::estimate(image, None)? * 4 / 5;
        for (number, base) in (1..).zip(bases) {
            let bytes = Payload::estimate(image, Some(base))?;
            if bytes <= most {
                (best, most) = (number, bytes);
            }
        }
        let payload = match base_of(best, bases) {
            Some(base) => Payload::compress_on(image, base)?,
            None => Payload::compress(image)?,
        };
        // A cache that cannot be written costs time and nothing else.
        let _ = self.0.put(key, &[&[best], payload.stored()]);
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

/// Base number 1 and so on; 0 is none.
fn base_of<'a>(number: u8, bases: &[&'a [u8]]) -> Option<&'a [u8]> {
    bases.get(usize::from(number).checked_sub(1)?).copied()
}

/// The payload of an entry: the number of its base, then its compressed form.
fn restore(mut entry: Vec<u8>, image: &[u8], bases: &[&[u8]]) -> Option<Payload> {
    let number = *entry.first()?;
    let base = base_of(number, bases);
    if number > 0 && base.is_none() {
        return None;
    }
    Payload::restore(entry.split_off(1), image, base)
}

fn payload_key(image: &[u8], bases: &[&[u8]]) -> Key {
    let digests = [image].into_iter().chain(bases.iter().copied());
    let digests = Vec::from_iter(digests.map(|bytes| Digest::of(bytes).0));
    let parts = [b"payload".as_slice()].into_iter();
    let parts = Vec::from_iter(parts.chain(digests.iter().map(|digest| digest.as_slice())));
    Key::of(&parts)
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
        assert!(cache.get(key).is_none());
        cache.put(key, &value).unwrap();
        assert_eq!(cache.get(key).unwrap(), value);
        assert!(cache.get(Digest::of(b"other")).is_none());
    }

    #[test]
    fn payload_has_the_best_base_and_comes_from_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned());
        let text = |seed: u64| Vec::from_iter((0..2000u64).map(|at| ((at * at * seed) >> 7) as u8));
        let (image, far) = (text(77), text(1234));
        let near = [&image[..1900], b"and something else"].concat();
        let bases: [&[u8]; 2] = [&far, &near];
        let best = cache.payload(&image, &bases).unwrap();
        let wanted = Payload::compress_on(&image, &near).unwrap();
        assert_eq!(best.stored(), wanted.stored());
        assert_eq!(
            cache.payload(&image, &bases).unwrap().stored(),
            wanted.stored()
        );
        let alone = Payload::compress(&image).unwrap();
        assert_eq!(cache.payload(&image, &[]).unwrap().stored(), alone.stored());
        assert_eq!(
            cache.payload(&image, &[&far]).unwrap().stored(),
            alone.stored()
        );

        // Another entry shows that the cache is asked; what is no frame of the image, or names no base, that its answer is
        // checked.
        let key = payload_key(&image, &bases);
        cache.0.put(key, &[&[0], alone.stored()]).unwrap();
        assert_eq!(
            cache.payload(&image, &bases).unwrap().stored(),
            alone.stored()
        );
        for wrong in [
            [b"\x02".as_slice(), b"no frame"],
            [b"\x03", alone.stored()],
            [b"", b""],
        ] {
            cache.0.put(key, &wrong).unwrap();
            assert_eq!(
                cache.payload(&image, &bases).unwrap().stored(),
                wanted.stored()
            );
        }
    }
}
