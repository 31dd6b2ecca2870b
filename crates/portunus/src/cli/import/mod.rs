//! `portunus import`: converts the configuration of another gateway.

mod litellm;
mod providers;

use anyhow::Context as _;
use clap::Subcommand;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Gateway the configuration comes from.
#[derive(Debug, Subcommand)]
pub(super) enum ImportCommand {
    /// The `config.yaml` of a LiteLLM proxy
    Litellm {
        /// The file to convert
        file: PathBuf,
        /// File to write instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// The resulting configuration, and notes about everything that was not imported.
struct ImportResult {
    text: String,
    notes: Vec<String>,
}

pub(super) fn run(command: &ImportCommand) -> anyhow::Result<ExitCode> {
    let ImportCommand::Litellm { file, out } = command;
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read", file.display()))?;
    let ImportResult { text, notes } = litellm::convert(&text, &|name| std::env::var(name).ok())
        .with_context(|| file.display().to_string())?;
    for note in &notes {
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    match out {
        Some(out) => std::fs::write(out, text)
            .with_context(|| format!("{} cannot be written", out.display()))?,
        None => std::io::stdout().write_all(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
