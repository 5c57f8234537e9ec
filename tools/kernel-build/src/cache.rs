//! Compiled images by the hash of all that decides them, shared by every checkout of this user.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cubin_format::{Digest, Resources};

/// The first line of every entry; another text makes older entries misses.
const MAGIC: &str = "zinc-cuda kernel 1";
/// Above this size the entries that were not used for longest are removed.
const LIMIT: u64 = 2 << 30;
/// How old the time of the last use may be before a use renews it.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

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
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The cache in `folder`, which the first entry makes.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where an entry lies.
    pub fn path(&self, key: Digest) -> PathBuf {
        let key = key.to_string();
        self.folder.join(&key[..2]).join(&key[2..])
    }

    /// The entry, if it is there and whole; a damaged one counts as missing.
    pub fn get(&self, key: Digest) -> Option<Compiled> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        let (magic, rest) = split_line(&bytes)?;
        let (digest, body) = split_line(rest)?;
        if magic != MAGIC || digest != Digest::of(body).to_string() {
            return None;
        }
        let (facts, image) = split_line(body)?;
        let mut compiled: Compiled = serde_json::from_str(facts).ok()?;
        compiled.image = image.to_vec();
        let used = path.metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > FRESH)) {
            // Only decides what is removed first; a cache that may not be written still serves.
            let _ = fs::File::options()
                .append(true)
                .open(&path)
                .and_then(|file| file.set_modified(SystemTime::now()));
        }
        Some(compiled)
    }

    /// Stores an entry; another process sees all of it or nothing.
    ///
    /// # Errors
    /// Where the cache cannot be written.
    pub fn put(&self, key: Digest, compiled: &Compiled) -> io::Result<()> {
        let mut body = serde_json::to_vec(compiled)?;
        body.push(b'\n');
        body.extend(&compiled.image);
        let head = format!("{MAGIC}\n{}\n", Digest::of(&body));
        write_atomically(&self.path(key), &[head.as_bytes(), &body])
    }

    /// Removes what was not used for longest until the cache is below its limit.
    ///
    /// # Errors
    /// Where the cache cannot be listed.
    pub fn trim(&self) -> io::Result<()> {
        self.trim_to(LIMIT)
    }

    fn trim_to(&self, limit: u64) -> io::Result<()> {
        let mut entries = Vec::new();
        for folder in fs::read_dir(&self.folder)? {
            for entry in fs::read_dir(folder?.path())? {
                let entry = entry?;
                // Another process may have removed it since.
                if let Ok(metadata) = entry.metadata() {
                    entries.push((metadata.modified()?, metadata.len(), entry.path()));
                }
            }
        }
        let mut size: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        entries.sort();
        for (_, bytes, path) in entries {
            if size <= limit {
                break;
            }
            let _ = fs::remove_file(path);
            size -= bytes;
        }
        Ok(())
    }
}

fn split_line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

/// Writes a file under a temporary name beside it and renames it, so that readers never see a part. Makes its directory.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn write_atomically(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let usual = fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .permissions(usual)
        .tempfile_in(folder)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.persist(path)?;
    Ok(())
}

/// Writes a file only where its content changes, so that an unchanged output keeps its time.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    write_atomically(path, &[bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(image: &[u8]) -> Compiled {
        let resources = Resources {
            registers: 40,
            ..Resources::default()
        };
        Compiled {
            image: image.to_vec(),
            resources,
            warnings: "line one\nline \"two\"".to_owned(),
        }
    }

    #[test]
    fn entry_comes_back_as_it_was_stored() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("not/yet"));
        let (key, value) = (Digest::of(b"key"), compiled(b"a\nb\0\n"));
        assert_eq!(cache.get(key), None);
        cache.put(key, &value).unwrap();
        assert_eq!(cache.get(key), Some(value));
        assert_eq!(cache.get(Digest::of(b"other")), None);
    }

    #[test]
    fn entry_with_any_byte_changed_or_cut_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned());
        let key = Digest::of(b"key");
        cache.put(key, &compiled(b"image")).unwrap();
        let whole = fs::read(cache.path(key)).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(cache.path(key), &changed).unwrap();
            assert_eq!(cache.get(key), None, "byte {at}");
            fs::write(cache.path(key), &whole[..at]).unwrap();
            assert_eq!(cache.get(key), None, "cut at {at}");
        }
    }

    #[test]
    fn trim_removes_the_least_recently_used_entries() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned());
        let keys = [b"a", b"b", b"c"].map(|text| Digest::of(text));
        for (age, key) in keys.iter().enumerate() {
            cache.put(*key, &compiled(b"image")).unwrap();
            let file = fs::File::options()
                .append(true)
                .open(cache.path(*key))
                .unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(100 - age as u64))
                .unwrap();
        }
        let each = fs::metadata(cache.path(keys[0])).unwrap().len();
        cache.trim_to(2 * each).unwrap();
        assert_eq!(
            keys.map(|key| cache.get(key).is_some()),
            [false, true, true]
        );
    }
}
