//! Runs nvcc for one kernel and one target, and reads what the assembler reports.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use cubin_format::{ImageKind, Resources, Target};

use crate::cache::Compiled;
use crate::sources::KERNELS;
use crate::toolkit::Toolkit;

/// The flags of every compilation, apart from target and paths. No fast math: the contracts ask for IEEE results.
pub const FLAGS: [&str; 4] = ["-std=c++17", "-O3", "-Xptxas", "-v"];

/// Why a compilation gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// nvcc could not be started.
    #[error("kernel {kernel} for {target}: cannot run {}", nvcc.display())]
    Run {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// The nvcc.
        nvcc: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// nvcc refused the source.
    #[error("kernel {kernel} for {target}: nvcc failed ({status}):\n{output}")]
    Failed {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// How nvcc ended.
        status: ExitStatus,
        /// All that it printed.
        output: String,
    },
    /// nvcc was content, yet wrote nothing.
    #[error("kernel {kernel} for {target}: nvcc wrote no output; it printed:\n{output}")]
    NoOutput {
        /// The kernel.
        kernel: String,
        /// The target.
        target: Target,
        /// All that it printed.
        output: String,
        /// Why the output cannot be read.
        source: std::io::Error,
    },
}

/// The paths of a compilation.
#[derive(Debug, Clone, Copy)]
pub struct Paths<'a> {
    /// The project's root: nvcc runs there, so that no message or symbol depends on where the project lies.
    pub root: &'a Path,
    /// The directory of the generated headers.
    pub generated: &'a Path,
    /// A directory for temporary files.
    pub scratch: &'a Path,
}

/// What nvcc is given.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// A source file, by its path below kernels-cu.
    Source(&'a str),
    /// PTX text, which is only assembled.
    Ptx(&'a [u8]),
}

/// Compiles `input`, which has the code of `kernel`, for `target`.
///
/// # Errors
/// Where nvcc cannot be run, fails, or writes nothing; its text is part of the error.
pub fn compile(
    toolkit: &Toolkit,
    paths: Paths<'_>,
    kernel: &str,
    input: Input<'_>,
    target: Target,
) -> Result<Compiled, CompileError> {
    let name = || kernel.to_owned();
    let run_error = |source| CompileError::Run {
        kernel: kernel.to_owned(),
        target,
        nvcc: toolkit.nvcc.clone(),
        source,
    };
    let (form, extension) = match target.kind {
        ImageKind::Sass => ("-cubin", "cubin"),
        ImageKind::Ptx => ("-ptx", "ptx"),
    };
    let output_path = paths.scratch.join(format!("{kernel}.{target}.{extension}"));
    let mut command = toolkit.environment.command(&toolkit.nvcc);
    command
        .current_dir(paths.root)
        .arg(form)
        .arg(format!("-arch={target}"))
        .args(FLAGS);
    if toolkit.host.explicit {
        command.arg("-ccbin").arg(&toolkit.host.program);
    }
    match input {
        Input::Source(cu) => {
            let source = format!("{KERNELS}/{cu}");
            // The front end makes the names of internal symbols from the full path of the source, unless it is told another.
            command.args(["-Xcicc", "--orig_src_path_name", "-Xcicc", &source]);
            command
                .args(["-I", &format!("{KERNELS}/include"), "-I"])
                .arg(paths.generated);
            command.arg(&source);
        }
        Input::Ptx(text) => {
            let path = paths.scratch.join(format!("{kernel}.for_{target}.ptx"));
            std::fs::write(&path, text).map_err(run_error)?;
            command.arg(path);
        }
    }
    command.arg("-o").arg(&output_path);
    let output = command.output();
    let output = output.map_err(run_error)?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if !output.status.success() {
        return Err(CompileError::Failed {
            kernel: name(),
            target,
            status: output.status,
            output: printed,
        });
    }
    let image = std::fs::read(&output_path);
    let image = image.map_err(|source| CompileError::NoOutput {
        kernel: name(),
        target,
        output: printed.clone(),
        source,
    })?;
    let report = Report::parse(&printed, kernel);
    Ok(Compiled {
        image,
        resources: report.resources,
        warnings: report.warnings,
    })
}

/// What `ptxas -v` reports for one compilation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Report {
    /// Registers and shared memory of the entry; stack and spills of all functions together.
    resources: Resources,
    /// Every other line.
    warnings: String,
}

impl Report {
    /// Reads the text of nvcc. Its lines, for each function:
    ///
    /// ```text
    /// ptxas info    : Compiling entry function 'k' for 'sm_90'
    /// ptxas info    : Function properties for k
    ///     760 bytes stack frame, 796 bytes spill stores, 888 bytes spill loads
    /// ptxas info    : Used 32 registers, used 1 barriers, 760 bytes cumulative stack size, 64 bytes smem
    /// ```
    fn parse(text: &str, entry: &str) -> Self {
        let mut report = Self::default();
        let mut current = "";
        for line in text.lines() {
            if let Some(info) = line.strip_prefix("ptxas info") {
                let info = info.trim_start_matches([' ', ':']);
                if let Some(rest) = info.strip_prefix("Compiling entry function '") {
                    current = rest.split('\'').next().unwrap_or_default();
                } else if info.starts_with("Used ") && current == entry {
                    report.resources.registers = number_before(info, " registers");
                    report.resources.shared_bytes = number_before(info, " bytes smem");
                }
            } else if line.contains(" bytes stack frame, ") {
                report.resources.local_bytes += number_before(line, " bytes stack frame");
                report.resources.spill_store_bytes += number_before(line, " bytes spill stores");
                report.resources.spill_load_bytes += number_before(line, " bytes spill loads");
            } else if !line.trim().is_empty() {
                report.warnings += line;
                report.warnings.push('\n');
            }
        }
        report
    }
}

/// The number in front of `unit`, 0 if the unit is not mentioned.
fn number_before(text: &str, unit: &str) -> u32 {
    let Some((before, _)) = text.split_once(unit) else {
        return 0;
    };
    let digits = before.bytes().rev().take_while(u8::is_ascii_digit).count();
    before[before.len() - digits..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assembler_report_is_read_and_the_rest_kept_as_warnings() {
        let text = "\
k.cu(3): warning #177-D: variable \"x\" was declared but never referenced
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    760 bytes stack frame, 796 bytes spill stores, 888 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 760 bytes cumulative stack size, 64 bytes smem, 400 bytes cmem[0]
ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads
ptxas warning : Value of threads per SM for entry k is out of range
";
        let wanted = Resources {
            registers: 32,
            shared_bytes: 64,
            local_bytes: 768,
            spill_store_bytes: 800,
            spill_load_bytes: 888,
        };
        let report = Report::parse(text, "k");
        assert_eq!(report.resources, wanted);
        assert_eq!(report.warnings.lines().count(), 2, "{}", report.warnings);
        assert!(
            report.warnings.contains("never referenced")
                && report.warnings.contains("out of range")
        );
    }
}
