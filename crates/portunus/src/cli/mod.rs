//! The command line. Exit codes: 0 good, 1 failed, 2 used wrongly.

mod check;
mod import;
mod keys;
mod ledger;
mod logs;
mod models;
mod serve;
mod simulate;
mod users;

use clap::{Args, Parser, Subcommand};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use config::{Config, LoadOptions, parse_duration};

/// A model gateway: one key, four request formats, every model, exact money.
#[derive(Debug, Parser)]
#[command(name = "portunus", version, max_term_width = 100)]
struct CliArguments {
    #[command(flatten)]
    common: CommonArgs,
    /// Where to listen, when no command is given
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
struct CommonArgs {
    /// The configuration file
    #[arg(long, global = true, value_name = "FILE", env = "PORTUNUS_CONFIG")]
    config: Option<PathBuf>,
    /// The folder everything is kept in
    #[arg(long, global = true, value_name = "DIR", default_value = "data", env = "PORTUNUS_DATA")]
    data: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl CommonArgs {
    fn given(&self, listen: Option<String>) -> LoadOptions {
        LoadOptions {
            file: self.config.clone(),
            listen_address: listen,
            data_folder: self.data.clone(),
        }
    }

    fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.given(None))?)
    }
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve the gateway (the default)
    Serve {
        /// Where to listen
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
    },
    /// Check a configuration without serving it
    Check,
    /// Make, list, revoke and rotate API keys
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Make, list and lock accounts, and hand out links to get into them
    #[command(subcommand)]
    Users(users::UsersCommand),
    /// List the models this gateway serves
    Models,
    /// Prove the ledger, or export it
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Serve the demo models as a stand-alone provider, to point anything at
    #[command(after_long_help = simulate::faults_help())]
    Simulate {
        /// Where to listen
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9001")]
        listen: String,
        /// Answer every call from prepared bytes, for measuring what stands in front
        #[arg(long, conflicts_with = "faults")]
        canned: bool,
        /// Pause so long before each piece of a stream
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        pace: Option<Duration>,
        /// Fail as the rules in this file say; --help lists the faults
        #[arg(long, value_name = "FILE")]
        faults: Option<PathBuf>,
    },
    /// Turn the configuration of another gateway into one for this one
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Bring the database up to date and stop
    Migrate,
}

/// Runs the command the arguments name.
pub fn main() -> ExitCode {
    let arguments = match CliArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(e) => {
            // Help and version are no errors; clap prints each where it belongs.
            let _ = e.print();
            return ExitCode::from(u8::from(e.use_stderr()) * 2);
        }
    };
    logs::start();
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return exit_with_error("TLS cannot be set up");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return exit_with_error(&format!("no threads can be started: {e}")),
    };
    match runtime.block_on(run(arguments)) {
        Ok(code) => code,
        Err(e) => exit_with_error(&format!("{e:#}")),
    }
}

async fn run(arguments: CliArguments) -> anyhow::Result<ExitCode> {
    let CliArguments { common, listen, command } = arguments;
    match command.unwrap_or(CliCommand::Serve { listen: None }) {
        CliCommand::Serve { listen: own } => serve::serve(&common, own.or(listen)).await,
        CliCommand::Check => check::check(&common),
        CliCommand::Keys(command) => keys::run(&common, command).await,
        CliCommand::Users(command) => users::run(&common, command).await,
        CliCommand::Models => models::list(&common),
        CliCommand::Ledger(command) => ledger::run(&common, command).await,
        CliCommand::Simulate { listen, canned, pace, faults } => {
            simulate::simulate(&listen, canned, pace, faults.as_deref()).await
        }
        CliCommand::Import(command) => import::run(&command),
        CliCommand::Migrate => {
            let config = common.load()?;
            crate::app::open_store(&config).await?.close().await;
            print_line("the database is up to date");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// One line for the user. A closed pipe is no reason to fail.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn exit_with_error(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "portunus: {why}");
    ExitCode::FAILURE
}
