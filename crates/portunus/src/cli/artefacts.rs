//! Files for other programs: the schema of the configuration, completions of shells, manual pages.

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::path::Path;
use std::process::ExitCode;

use super::CliArguments;
use super::output::{print_bytes, print_line};

/// Prints the JSON Schema of the configuration file.
pub(super) fn print_schema() -> anyhow::Result<ExitCode> {
    print_line(&serde_json::to_string_pretty(&config::json_schema())?);
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions for a shell.
pub(super) fn print_completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut CliArguments::command(), "portunus", &mut text);
    print_bytes(&text);
    Ok(ExitCode::SUCCESS)
}

/// Writes all manual pages to a folder, or prints the main page.
pub(super) fn write_manual(folder: Option<&Path>) -> anyhow::Result<ExitCode> {
    let command = CliArguments::command();
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        print_bytes(&page);
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| format!("the manual pages cannot be written to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
