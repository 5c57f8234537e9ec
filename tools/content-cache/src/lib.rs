//! What compilers made, by the hash of all that decides it, shared by every checkout of a user.
//!
//! A cache never decides what is built: a damaged entry counts as missing, and a cache that cannot be written costs time
//! and nothing else.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

/// How old the time of the last use may be before a use renews it.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// The environment variables that decide [`user_folder`].
pub const VARIABLES: [&str; 3] = ["ZINC_CUDA_CACHE", "XDG_CACHE_HOME", "HOME"];

/// Where this user's toolkits and caches are: `ZINC_CUDA_CACHE`, else `zinc-cuda` in the user's cache directory; `None`
/// where `variable` knows neither that nor a home.
pub fn user_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let [own, shared, home] = VARIABLES;
    let shared = || variable(shared).or_else(|| variable(home).map(|home| home.join(".cache")));
    variable(own).or_else(|| shared().map(|cache| cache.join("zinc-cuda")))
}

/// What decides an entry, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of these parts; where one ends and the next begins counts.
    pub fn of(parts: &[&[u8]]) -> Key {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Key(hasher.finalize().into())
    }
}

impl From<[u8; 32]> for Key {
    fn from(digest: [u8; 32]) -> Key {
        Key(digest)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A directory of entries.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
    kind: &'static str,
}

impl Cache {
    /// The cache in `folder`, which the first entry makes. `kind` is one line that every entry starts with: another one
    /// makes older entries misses.
    pub fn new(folder: PathBuf, kind: &'static str) -> Cache {
        Cache { folder, kind }
    }

    /// Where an entry lies.
    pub fn path(&self, key: Key) -> PathBuf {
        let key = key.to_string();
        self.folder.join(&key[..2]).join(&key[2..])
    }

    /// The entry, if it is there and whole.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut bytes = fs::read(&path).ok()?;
        let head = self.head(&[]).len();
        let body = bytes.get(head..)?;
        if bytes[..head] != *self.head(&[body]).as_bytes() {
            return None;
        }
        let used = path.metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > FRESH)) {
            // Only decides what is removed first; a cache that may not be written still serves.
            let _ = fs::File::options()
                .append(true)
                .open(&path)
                .and_then(|file| file.set_modified(SystemTime::now()));
        }
        bytes.drain(..head);
        Some(bytes)
    }

    /// Stores an entry, the concatenation of `parts`; another process sees all of it or nothing.
    ///
    /// # Errors
    /// Where the cache cannot be written.
    pub fn put(&self, key: Key, parts: &[&[u8]]) -> io::Result<()> {
        let head = self.head(parts);
        let mut whole = vec![head.as_bytes()];
        whole.extend(parts);
        write_atomically(&self.path(key), &whole)
    }

    /// Removes what was not used for longest until the entries have no more than `limit` bytes.
    ///
    /// # Errors
    /// Where the cache cannot be listed.
    pub fn trim(&self, limit: u64) -> io::Result<()> {
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

    /// What an entry starts with: always of the same length.
    fn head(&self, parts: &[&[u8]]) -> String {
        let mut hasher = Sha256::new();
        parts.iter().for_each(|part| hasher.update(part));
        format!("{}\n{}\n", self.kind, Key(hasher.finalize().into()))
    }
}

/// Writes a file under a temporary name beside it and renames it, so that readers never see a part. Makes its directory.
///
/// # Errors
/// Where it cannot be written.
pub fn write_atomically(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_comes_back_as_it_was_stored() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("not/yet"), "kind");
        let key = Key::of(&[b"key"]);
        assert_eq!(cache.get(key), None);
        cache.put(key, &[b"a\nb", b"\0\n"]).unwrap();
        assert_eq!(cache.get(key).unwrap(), b"a\nb\0\n");
        assert_eq!(cache.get(Key::of(&[b"other"])), None);
    }

    #[test]
    fn keys_differ_where_parts_are_cut_differently() {
        assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
    }

    #[test]
    fn entry_of_another_kind_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let key = Key::of(&[b"key"]);
        let cache = |kind| Cache::new(folder.path().to_owned(), kind);
        cache("kind 1").put(key, &[b"image"]).unwrap();
        assert!(cache("kind 1").get(key).is_some());
        assert_eq!(cache("kind 2").get(key), None);
    }

    #[test]
    fn entry_with_any_byte_changed_or_cut_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), "kind");
        let key = Key::of(&[b"key"]);
        cache.put(key, &[b"image"]).unwrap();
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
        let cache = Cache::new(folder.path().to_owned(), "kind");
        let keys = [b"a", b"b", b"c"].map(|text| Key::of(&[text]));
        for (age, key) in keys.iter().enumerate() {
            cache.put(*key, &[b"image"]).unwrap();
            let file = fs::File::options()
                .append(true)
                .open(cache.path(*key))
                .unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(100 - age as u64))
                .unwrap();
        }
        let each = fs::metadata(cache.path(keys[0])).unwrap().len();
        cache.trim(2 * each).unwrap();
        assert_eq!(
            keys.map(|key| cache.get(key).is_some()),
            [false, true, true]
        );
    }

    #[test]
    fn own_variable_goes_before_the_shared_one_and_home() {
        let folder = |set: &[(&str, &str)]| {
            user_folder(|name| {
                let found = set.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| PathBuf::from(value))
            })
        };
        let home = ("HOME", "/h");
        let shared = ("XDG_CACHE_HOME", "/x");
        assert_eq!(folder(&[]), None);
        assert_eq!(folder(&[home]), Some("/h/.cache/zinc-cuda".into()));
        assert_eq!(folder(&[home, shared]), Some("/x/zinc-cuda".into()));
        assert_eq!(
            folder(&[home, shared, ("ZINC_CUDA_CACHE", "/o")]),
            Some("/o".into())
        );
    }
}
