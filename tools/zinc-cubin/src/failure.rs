//! How a command ends: the exit codes, and which errors belong to which.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not end well.
#[derive(Debug)]
pub enum Failure {
    /// A comparison, a hash or a run on the device came out wrong; the command has printed what (exit code 1).
    Check(anyhow::Error),
    /// The arguments or an input file cannot be used (exit code 2).
    Input(anyhow::Error),
    /// The device that was asked for is not there or cannot run these kernels (exit code 3).
    NoDevice(anyhow::Error),
}

impl Failure {
    /// A failed check with this summary.
    pub fn check(summary: impl std::fmt::Display) -> Self {
        Self::Check(anyhow::anyhow!("{summary}"))
    }

    /// Unusable input with this explanation.
    pub fn input(text: impl std::fmt::Display) -> Self {
        Self::Input(anyhow::anyhow!("{text}"))
    }

    /// The process's exit code, as `--help` documents it.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Check(_) => 1,
            Self::Input(_) => 2,
            Self::NoDevice(_) => 3,
        })
    }

    fn error(&self) -> &anyhow::Error {
        match self {
            Self::Check(error) | Self::Input(error) | Self::NoDevice(error) => error,
        }
    }
}

/// The error and its causes; a cause that the text in front of it ends with is not repeated.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::new();
        for cause in self.error().chain() {
            let text = cause.to_string();
            if shown.is_empty() {
                shown = text;
            } else if !shown.ends_with(&text) {
                shown.push_str(": ");
                shown.push_str(&text);
            }
        }
        f.write_str(&shown)
    }
}

/// Errors that carry no class of their own are about the input: files, names, arguments.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Input(error.into())
    }
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

/// Gives an error of the device its class.
pub trait OnDevice<T> {
    /// The run on the device failed.
    fn or_check(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OnDevice<T> for Result<T, E> {
    fn or_check(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Check(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn failure_shows_every_cause_once() {
        let error = anyhow::anyhow!("cut").context("file x: cut").context("run");
        assert_eq!(Failure::Input(error).to_string(), "run: file x: cut");
        let error: anyhow::Result<()> = Err(anyhow::anyhow!("end")).context("start");
        assert_eq!(Failure::from(error.unwrap_err()).to_string(), "start: end");
    }
}
