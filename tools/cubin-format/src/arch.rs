//! GPU architectures, the targets that code is compiled for, and which target runs on which device.

use std::fmt;
use std::str::FromStr;

/// What an architecture name promises beyond its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Suffix {
    /// No suffix: code for this and later minor revisions.
    None,
    /// `f`: features of a family; runs on the same and later minor revisions of the major.
    F,
    /// `a`: features of exactly this architecture; runs on nothing else.
    A,
}

/// A GPU architecture, such as 75, 90a or 120.
///
/// Ordered by number, then by how specific the suffix is (none, `f`, `a`). The text is the number
/// and the suffix; parsing also takes the prefixes `sm_` and `compute_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    number: u32,
    suffix: Suffix,
}

/// The text is not an architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchError {
    /// There are no two or three digits where the number belongs.
    #[error(
        "{text:?} is not a GPU architecture: wanted a number such as 75, sm_90a or compute_120"
    )]
    NotANumber {
        /// What was given.
        text: String,
    },
    /// Something other than `a` or `f` follows the number.
    #[error("unknown suffix {suffix:?} in GPU architecture {text:?}: wanted none, a or f")]
    UnknownSuffix {
        /// What was given.
        text: String,
        /// What follows the number.
        suffix: String,
    },
}

impl Arch {
    /// The architecture `number` without a suffix. The number is ten times the major plus the minor
    /// revision.
    ///
    /// # Errors
    /// `NotANumber` where the number is not 10 to 999.
    pub fn new(number: u32, suffix: Suffix) -> Result<Self, ArchError> {
        if (10..1000).contains(&number) {
            Ok(Self { number, suffix })
        } else {
            Err(ArchError::NotANumber {
                text: number.to_string(),
            })
        }
    }

    /// Ten times the major plus the minor revision, such as 90.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The suffix.
    pub fn suffix(self) -> Suffix {
        self.suffix
    }

    /// The major revision, such as 9.
    pub fn major(self) -> u32 {
        self.number / 10
    }

    /// The minor revision, such as 0.
    pub fn minor(self) -> u32 {
        self.number % 10
    }

    /// The machine code target of this architecture.
    pub fn sass(self) -> Target {
        Target {
            kind: ImageKind::Sass,
            arch: self,
        }
    }

    /// The PTX target of this architecture.
    pub fn ptx(self) -> Target {
        Target {
            kind: ImageKind::Ptx,
            arch: self,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.suffix {
            Suffix::None => "",
            Suffix::F => "f",
            Suffix::A => "a",
        };
        write!(f, "{}{suffix}", self.number)
    }
}

impl FromStr for Arch {
    type Err = ArchError;

    fn from_str(text: &str) -> Result<Self, ArchError> {
        let bare = text
            .strip_prefix("sm_")
            .or_else(|| text.strip_prefix("compute_"))
            .unwrap_or(text);
        let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = bare.split_at(digits);
        let not_a_number = || ArchError::NotANumber {
            text: text.to_owned(),
        };
        if !(2..=3).contains(&digits) || number.starts_with('0') {
            return Err(not_a_number());
        }
        let number = number.parse().map_err(|_| not_a_number())?;
        let suffix = match suffix {
            "" => Suffix::None,
            "f" => Suffix::F,
            "a" => Suffix::A,
            other => {
                return Err(ArchError::UnknownSuffix {
                    text: text.to_owned(),
                    suffix: other.to_owned(),
                });
            }
        };
        Ok(Self { number, suffix })
    }
}

/// What form the code of a target has. PTX sorts after machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ImageKind {
    /// Machine code in a cubin ELF file.
    Sass,
    /// PTX assembly text, which the driver compiles.
    Ptx,
}

/// What one image is compiled for. Its text is `sm_90a` or `compute_120`; parsing takes a bare
/// number as machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Machine code or PTX.
    pub kind: ImageKind,
    /// The architecture.
    pub arch: Arch,
}

impl Target {
    /// Whether this image runs on a device.
    ///
    /// Machine code runs on the same major revision with the same or a later minor one; PTX runs on
    /// the same or any later device. Suffix `a` limits both to exactly their number, suffix `f`
    /// to their major revision.
    pub fn runs_on(self, device: Capability) -> bool {
        let (wanted, found) = (self.arch.number, device.number());
        let same_major = self.arch.major() == device.major;
        match (self.kind, self.arch.suffix) {
            (_, Suffix::A) => wanted == found,
            (ImageKind::Sass, _) | (_, Suffix::F) => same_major && wanted <= found,
            (ImageKind::Ptx, Suffix::None) => wanted <= found,
        }
    }
}

impl AsRef<Target> for Target {
    fn as_ref(&self) -> &Target {
        self
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            ImageKind::Sass => "sm_",
            ImageKind::Ptx => "compute_",
        };
        write!(f, "{prefix}{}", self.arch)
    }
}

impl FromStr for Target {
    type Err = ArchError;

    fn from_str(text: &str) -> Result<Self, ArchError> {
        let kind = if text.starts_with("compute_") {
            ImageKind::Ptx
        } else {
            ImageKind::Sass
        };
        Ok(Self {
            kind,
            arch: text.parse()?,
        })
    }
}

macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Arch, Target);

/// The compute capability of a device, such as 8.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Capability {
    /// The major revision.
    pub major: u32,
    /// The minor revision, 0 to 9.
    pub minor: u32,
}

impl Capability {
    /// Capability `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Ten times the major plus the minor revision: the number of the architecture.
    pub const fn number(self) -> u32 {
        self.major.saturating_mul(10).saturating_add(self.minor)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// No embedded image runs on the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no code for a device of compute capability {wanted}; embedded: {}",
    list(embedded)
)]
pub struct NoTarget {
    /// The device.
    pub wanted: Capability,
    /// What there is.
    pub embedded: Vec<Target>,
}

fn list(targets: &[Target]) -> String {
    if targets.is_empty() {
        return "nothing".to_owned();
    }
    targets
        .iter()
        .map(Target::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The image to load on `device`: machine code for exactly its number, else the highest machine
/// code of its major revision that runs on it, else the highest PTX that runs on it. Between equal
/// numbers the more specific suffix wins.
///
/// # Errors
/// `NoTarget` names the device's capability and everything in `targets`.
pub fn choose<T: AsRef<Target>>(targets: &[T], device: Capability) -> Result<&T, NoTarget> {
    targets
        .iter()
        .filter(|target| (*target).as_ref().runs_on(device))
        .max_by_key(|target| {
            let target = (*target).as_ref();
            (target.kind == ImageKind::Sass, target.arch)
        })
        .ok_or_else(|| NoTarget {
            wanted: device,
            embedded: targets.iter().map(|target| *target.as_ref()).collect(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<Target> {
        text.split_whitespace()
            .map(|name| name.parse().unwrap())
            .collect()
    }

    fn chosen(text: &str, major: u32, minor: u32) -> Option<String> {
        choose(&targets(text), Capability::new(major, minor))
            .ok()
            .map(Target::to_string)
    }

    #[test]
    fn arch_text_parses_with_every_prefix_and_suffix() {
        for (text, number, suffix) in [
            ("90", 90, Suffix::None),
            ("sm_90", 90, Suffix::None),
            ("90a", 90, Suffix::A),
            ("sm_100f", 100, Suffix::F),
            ("compute_120", 120, Suffix::None),
        ] {
            assert_eq!(text.parse(), Arch::new(number, suffix), "{text}");
        }
        assert_eq!("sm_90a".parse::<Arch>().unwrap().to_string(), "90a");
        assert_eq!("90a".parse::<Target>().unwrap().to_string(), "sm_90a");
        assert_eq!(
            "compute_120".parse::<Target>().unwrap().to_string(),
            "compute_120"
        );
    }

    #[test]
    fn arch_junk_is_a_typed_error_that_names_it() {
        for text in [
            "", "sm_", "9", "1234", "x90", "sm_sm_90", "SM_90", " 90", "090", "-90", "٩٠", "native",
        ] {
            assert_eq!(
                text.parse::<Arch>(),
                Err(ArchError::NotANumber {
                    text: text.to_owned()
                })
            );
        }
        for (text, suffix) in [
            ("90b", "b"),
            ("90A", "A"),
            ("90af", "af"),
            ("90 ", " "),
            ("sm_120é", "é"),
        ] {
            let error = ArchError::UnknownSuffix {
                text: text.to_owned(),
                suffix: suffix.to_owned(),
            };
            assert_eq!(text.parse::<Arch>(), Err(error));
        }
        assert!(Arch::new(9, Suffix::None).is_err() && Arch::new(1000, Suffix::None).is_err());
    }

    #[test]
    fn arch_order_is_by_number_then_specificity() {
        let mut archs: Vec<Arch> = ["120", "90a", "75", "100f", "90", "100"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        archs.sort();
        assert_eq!(
            archs.iter().map(Arch::to_string).collect::<Vec<_>>(),
            ["75", "90", "90a", "100", "100f", "120"]
        );
    }

    #[test]
    fn choose_takes_exact_then_same_major_then_ptx() {
        let embedded = "75 80 86 89 90 100 120 compute_120";
        for (major, minor, wanted) in [
            (7, 5, Some("sm_75")),
            (8, 0, Some("sm_80")),
            (8, 6, Some("sm_86")),
            (8, 7, Some("sm_86")),
            (8, 9, Some("sm_89")),
            (9, 0, Some("sm_90")),
            (10, 3, Some("sm_100")),
            (12, 1, Some("sm_120")),
            (13, 0, Some("compute_120")),
            (11, 0, None),
            (7, 0, None),
            (6, 1, None),
        ] {
            assert_eq!(
                chosen(embedded, major, minor).as_deref(),
                wanted,
                "{major}.{minor}"
            );
        }
    }

    #[test]
    fn choose_never_runs_an_a_suffix_on_another_device() {
        assert_eq!(chosen("90 90a", 9, 0).as_deref(), Some("sm_90a"));
        assert_eq!(chosen("100a compute_100a", 10, 3), None);
        assert_eq!(
            chosen("100a 100 compute_90", 10, 3).as_deref(),
            Some("sm_100")
        );
    }

    #[test]
    fn choose_keeps_an_f_suffix_inside_its_family() {
        assert_eq!(chosen("100 100f", 10, 3).as_deref(), Some("sm_100f"));
        assert_eq!(chosen("100f compute_100f", 12, 0), None);
        assert_eq!(
            chosen("compute_100f", 10, 3).as_deref(),
            Some("compute_100f")
        );
        assert_eq!(chosen("103f", 10, 0), None);
    }

    #[test]
    fn choose_prefers_lower_sass_over_exact_ptx() {
        assert_eq!(chosen("80 compute_89", 8, 9).as_deref(), Some("sm_80"));
        assert_eq!(
            chosen("compute_75 compute_80", 8, 9).as_deref(),
            Some("compute_80")
        );
    }

    #[test]
    fn no_target_names_the_device_and_what_is_embedded() {
        let error = choose(&targets("75 compute_120"), Capability::new(6, 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no code for a device of compute capability 6.1; embedded: sm_75 compute_120"
        );
        let error = choose::<Target>(&[], Capability::new(9, 0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no code for a device of compute capability 9.0; embedded: nothing"
        );
    }

    #[test]
    fn target_in_json_is_its_text() {
        let target: Target = "sm_90a".parse().unwrap();
        assert_eq!(serde_json::to_string(&target).unwrap(), "\"sm_90a\"");
        assert_eq!(
            serde_json::from_str::<Target>("\"sm_90a\"").unwrap(),
            target
        );
        assert!(serde_json::from_str::<Target>("\"sm_90b\"").is_err());
    }
}
