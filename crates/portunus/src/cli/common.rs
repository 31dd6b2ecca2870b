//! Options and output shared by the commands.

use clap::Args;
use config::{Config, LoadOptions};
use std::io::Write as _;
use std::path::PathBuf;

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(super) struct CommonArgs {
    /// Configuration file
    #[arg(long, global = true, value_name = "FILE", env = "PORTUNUS_CONFIG")]
    config: Option<PathBuf>,
    /// Data folder
    #[arg(long, global = true, value_name = "DIR", default_value = "data", env = "PORTUNUS_DATA")]
    data: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

impl CommonArgs {
    /// Returns the options to load the configuration with.
    pub(super) fn load_options(&self, listen: Option<String>) -> LoadOptions {
        LoadOptions {
            file: self.config.clone(),
            listen_address: listen,
            data_folder: self.data.clone(),
        }
    }

    /// Loads the configuration.
    pub(super) fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.load_options(None))?)
    }
}

/// Prints one line. A closed pipe is not an error.
pub(super) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
