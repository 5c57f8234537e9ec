//! Compares what the compiler made with what the catalog promises to callers.

use cubin_format::{
    AbiMismatch, Cubin, CubinError, Digest, Entry, ImageKind, Parameter, Resources, Target,
    check_abi,
};
use zinc_catalog::Kernel;

use crate::cache::Compiled;

/// How an image breaks its contract.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The cubin cannot be read.
    #[error("kernel {kernel} for {target}: the cubin cannot be read")]
    Cubin {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// Why.
        source: CubinError,
    },
    /// The PTX is not what nvcc writes.
    #[error("kernel {kernel} for {target}: the PTX cannot be read: {reason}")]
    Ptx {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// What is wrong.
        reason: String,
    },
    /// The image is for another architecture.
    #[error("kernel {kernel} for {target}: the image is for {found}")]
    Arch {
        /// The kernel.
        kernel: String,
        /// What was asked for.
        target: Target,
        /// What it is for.
        found: String,
    },
    /// The entry is missing, as where an `#if` leaves it out.
    #[error(
        "kernel {kernel} for {target}: no entry {kernel} in the image; it has {}",
        names(found)
    )]
    EntryMissing {
        /// The kernel, and the entry that is wanted.
        kernel: String,
        /// The target.
        target: Target,
        /// The entries that there are.
        found: Vec<String>,
    },
    /// The file has more entries than its own.
    #[error(
        "kernel {kernel} for {target}: more than its one entry in the image: {}",
        names(found)
    )]
    OtherEntries {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The entries that there are.
        found: Vec<String>,
    },
    /// The parameters are not those of the catalog: buffers in binding order as pointers, then the push struct by value.
    #[error("kernel {kernel} for {target}: not the parameters of the catalog")]
    Parameters {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The first difference.
        source: AbiMismatch,
    },
    /// Registers spill.
    #[error(
        "kernel {kernel} for {target}: {stores} bytes of spill stores and {loads} of spill loads; \
         use fewer registers, or say why this is right in its launch file: [allow] spills = \"reason\""
    )]
    Spills {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// Bytes stored.
        stores: u32,
        /// Bytes loaded.
        loads: u32,
    },
    /// Local memory is used without spills, as for an array that is indexed by a variable.
    #[error(
        "kernel {kernel} for {target}: {bytes} bytes of local memory per thread; \
         index arrays by constants, or say why this is right in its launch file: [allow] local = \"reason\""
    )]
    Local {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// Bytes per thread.
        bytes: u32,
    },
}

fn names(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(" ")
    }
}

/// The SHA-256 of what a caller relies on: fields, buffers, sizes and preconditions, and no prose.
pub fn contract_hash(kernel: &Kernel) -> Digest {
    let mut text = format!(
        "{}\n{} push words, {} bytes ignored\n",
        kernel.name, kernel.push_words, kernel.ignored_push_bytes
    );
    for field in &kernel.fields {
        text += &format!(
            "{} {} {:?} {:?}\n",
            field.name,
            field.scalar.name(),
            field.kind,
            field.default
        );
    }
    for buffer in &kernel.buffers {
        let (bytes, start) = (&buffer.bytes.text, &buffer.start.text);
        text += &format!(
            "{} {} {} {bytes} {start} {}\n",
            buffer.name,
            buffer.access.name(),
            buffer.dtype,
            buffer.align
        );
    }
    text += &format!("{:?}\n", kernel.may_alias);
    kernel
        .requires
        .iter()
        .for_each(|condition| text += &format!("{}\n", condition.text));
    Digest::of(text.as_bytes())
}

/// Checks an image and returns what it needs on the device.
///
/// # Errors
/// Where the image is damaged, is for something else, lacks the entry, has other parameters, or spills without a reason.
pub fn check(
    kernel: &Kernel,
    target: Target,
    compiled: &Compiled,
) -> Result<Resources, CheckError> {
    let name = || kernel.name.clone();
    let (good_arch, arch, entries) = match target.kind {
        ImageKind::Sass => {
            let cubin = Cubin::parse(&compiled.image);
            let cubin = cubin.map_err(|source| CheckError::Cubin {
                kernel: name(),
                target,
                source,
            })?;
            (
                cubin.is_for(target.arch),
                cubin.arch.sass().to_string(),
                cubin.entries,
            )
        }
        ImageKind::Ptx => {
            let (arch, entries) = read_ptx(&compiled.image).map_err(|reason| CheckError::Ptx {
                kernel: name(),
                target,
                reason,
            })?;
            (arch == target.to_string(), arch, entries)
        }
    };
    if !good_arch {
        return Err(CheckError::Arch {
            kernel: name(),
            target,
            found: arch,
        });
    }
    let found: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let Some(entry) = entries.iter().find(|entry| entry.name == kernel.name) else {
        return Err(CheckError::EntryMissing {
            kernel: name(),
            target,
            found,
        });
    };
    if found.len() > 1 {
        return Err(CheckError::OtherEntries {
            kernel: name(),
            target,
            found,
        });
    }
    check_abi(entry, kernel.buffers.len(), 4 * kernel.fields.len() as u32).map_err(|source| {
        CheckError::Parameters {
            kernel: name(),
            target,
            source,
        }
    })?;
    let Resources {
        spill_store_bytes: stores,
        spill_load_bytes: loads,
        ..
    } = compiled.resources;
    let mut resources = entry.resources(stores, loads);
    // The assembler counts every function of the image, the ELF file the deepest chain of calls.
    resources.local_bytes = resources.local_bytes.max(compiled.resources.local_bytes);
    let spills = stores > 0 || loads > 0;
    if spills && kernel.allow.spills.is_none() {
        return Err(CheckError::Spills {
            kernel: name(),
            target,
            stores,
            loads,
        });
    }
    let local = resources.local_bytes > 0 && !spills;
    if local && kernel.allow.local.is_none() {
        return Err(CheckError::Local {
            kernel: name(),
            target,
            bytes: resources.local_bytes,
        });
    }
    Ok(resources)
}

/// The architecture and the entries of PTX text, from its `.target`, `.entry` and `.param` directives:
///
/// ```text
/// .target sm_120
/// .visible .entry k(
///     .param .u64 .ptr .align 1 k_param_0,
///     .param .align 4 .b8 k_param_1[8]
/// )
/// ```
fn read_ptx(image: &[u8]) -> Result<(String, Vec<Entry>), String> {
    let text = std::str::from_utf8(image).map_err(|_| "it is not UTF-8")?;
    let directive = text.lines().find_map(|line| line.strip_prefix(".target "));
    let arch = directive
        .and_then(|rest| rest.trim().strip_prefix("sm_"))
        .ok_or("it has no .target")?;
    let mut entries = Vec::new();
    for rest in text.split(".entry ").skip(1) {
        let (name, rest) = rest
            .split_once('(')
            .ok_or("an entry has no parameter list")?;
        let (list, _) = rest.split_once(')').ok_or("a parameter list has no end")?;
        let mut parameters = Vec::new();
        let mut end = 0u32;
        for declaration in list
            .split(',')
            .map(str::trim)
            .filter(|declaration| !declaration.is_empty())
        {
            let ordinal = parameters.len() as u16;
            let (offset, size) = ptx_parameter(declaration, end).ok_or(declaration)?;
            end = offset + size;
            parameters.push(Parameter {
                ordinal,
                offset,
                size,
            });
        }
        entries.push(Entry {
            name: name.trim().to_owned(),
            parameters,
            parameter_bytes: end,
            registers: 0,
            shared_bytes: 0,
            frame_bytes: 0,
            stack_bytes: 0,
            max_threads: None,
        });
    }
    Ok((format!("compute_{arch}"), entries))
}

/// Offset and size of a parameter that is declared after others which end at `end`.
fn ptx_parameter(declaration: &str, end: u32) -> Option<(u32, u32)> {
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let (declared, name) = match words.as_slice() {
        [".param", declared @ .., name] => (declared, name),
        _ => return None,
    };
    let bits = declared.iter().find_map(|word| {
        word.trim_start_matches(['.', 'b', 'u', 's', 'f'])
            .parse::<u32>()
            .ok()
    });
    let (element, count) = match name.split_once('[') {
        Some((_, count)) => (1, count.strip_suffix(']')?.parse().ok()?),
        None => (bits? / 8, 1),
    };
    // For a pointer, `.align` speaks of the memory behind it.
    let align = match declared {
        [".align", align, ..] => align.parse().ok()?,
        _ => element,
    };
    let offset = end.checked_next_multiple_of(align)?;
    let size = element.checked_mul(count)?;
    offset.checked_add(size).map(|_| (offset, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_parameters_are_laid_out_as_the_abi_does() {
        assert_eq!(
            ptx_parameter(".param .u64 .ptr .align 1 k_param_0", 0),
            Some((0, 8))
        );
        assert_eq!(ptx_parameter(".param .u64 k_param_1", 12), Some((16, 8)));
        assert_eq!(
            ptx_parameter(".param .align 4 .b8 k_param_2[12]", 16),
            Some((16, 12))
        );
        assert_eq!(
            ptx_parameter(".param .align 8 .b8 k_param_2[16]", 12),
            Some((16, 16))
        );
        assert_eq!(ptx_parameter(".param .f32 k_param_3", 4), Some((4, 4)));
        for junk in [
            "",
            ".param",
            ".param x",
            "x .u64 k",
            ".param .b8 k[",
            ".param .align 0 .b8 k[4]",
            ".param .u99999999999 k",
        ] {
            assert_eq!(ptx_parameter(junk, 0), None, "{junk:?}");
        }
    }
}
