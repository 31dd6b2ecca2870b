//! The command line. Exit codes: 0 success, 1 failure, 2 wrong usage.

mod account_terms;
mod agents;
mod archive;
mod artefacts;
mod audit;
mod backup;
mod check;
mod common;
mod directory;
mod doctor;
mod forget;
mod import;
mod keys;
mod ledger;
mod local_checks;
mod logs;
mod migrate;
mod models;
mod output;
mod provider_bill;
mod reconcile;
mod scim;
mod serve;
mod simulate;
mod users;
mod welcome;

pub(crate) use logs::report_dropped as report_dropped_logs;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use common::CommonArgs;
use config::parse_duration;

use crate::listeners::PassedSockets;
use crate::process_limits;
use serve::ServeOptions;

/// Version, commit and date. `build.rs` finds the last two.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PORTUNUS_BUILD"), ")");

/// A model gateway: one key, four request formats, every model, exact money.
#[derive(Debug, Parser)]
#[command(name = "portunus", version = VERSION, max_term_width = 100)]
struct CliArguments {
    #[command(flatten)]
    common: CommonArgs,
    /// Address to listen on if no command is given
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Replace the gateway that runs on this data folder if no command is given
    #[arg(long)]
    take_over: bool,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve the gateway (the default)
    Serve {
        /// Address to listen on
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
        /// Replace the gateway that runs on this data folder: take its listening sockets, and let it
        /// finish its calls
        #[arg(long)]
        take_over: bool,
    },
    /// Check a configuration and the services it names, without serving it
    Check(check::CheckArgs),
    /// Name every trouble of this gateway, running or not, with a remedy; exits with 1 if there is one
    Doctor(doctor::DoctorArgs),
    /// Create, list, change, revoke and rotate API keys
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Create, list and lock accounts, and issue sign-in links
    #[command(subcommand)]
    Users(users::UsersCommand),
    /// Create, list and revoke tokens with which identity providers manage people (SCIM)
    #[command(subcommand)]
    Scim(scim::ScimCommand),
    /// List the models this gateway serves
    Models,
    /// Print the settings with which coding agents use this gateway
    Agents {
        /// Agent, such as claude-code, codex or opencode; all without one
        agent: Option<String>,
        /// API key to write into the settings
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Show, update, remove and sign the bundle over the built-in model directory
    #[command(subcommand)]
    Directory(directory::DirectoryCommand),
    /// Verify or export the ledger
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Move old calls from the database into files, whose sums stay; `verify` checks the files
    Archive(archive::ArchiveArgs),
    /// Erase the personal data of an account and revoke its keys; its sums stay
    Forget(forget::ForgetArgs),
    /// Print, export or follow the audit log, oldest change first
    Audit(audit::AuditArgs),
    /// Serve the demo models as a stand-alone provider
    #[command(after_long_help = simulate::faults_help())]
    Simulate {
        /// Address to listen on
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9001")]
        listen: String,
        /// Answer every call from prepared bytes, to benchmark the gateway in front
        #[arg(long, conflicts_with = "faults")]
        canned: bool,
        /// Delay before each piece of a stream
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        pace: Option<Duration>,
        /// Fail according to the rules in this file; --help lists the faults
        #[arg(long, value_name = "FILE")]
        faults: Option<PathBuf>,
    },
    /// Take over from another gateway: its configuration, keys, budgets, teams and users
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Migrate the database and exit
    Migrate(migrate::MigrateArgs),
    /// Copy the database and the settled calls of this node's journal into a new file, while gateways run
    Backup(backup::BackupArgs),
    /// Restore the database from a backup; no gateway may run on it
    Restore(backup::RestoreArgs),
    /// Print the JSON Schema of the configuration file, for editors
    Schema,
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages
    Man {
        /// Folder for one page per command; without it the main page is printed
        folder: Option<PathBuf>,
    },
}

/// Time that the end of the process waits for threads that work for it.
const MAX_THREAD_WAIT: Duration = Duration::from_secs(1);

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    let arguments = match CliArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(e) => {
            return print_usage(&e);
        }
    };
    // Before the first thread, because it changes the environment.
    let passed = PassedSockets::from_environment();
    process_limits::hide_new_files();
    let logs = logs::start();
    output::log_panics();
    let code = run_to_end(arguments, passed);
    output::finish_logs(logs);
    code
}

/// Prints an error of the command line, or help or the version, and returns the exit code. With JSON logs an
/// error is a line of the log.
fn print_usage(e: &clap::Error) -> ExitCode {
    if e.use_stderr() && logs::is_json() {
        let line = logs::error_line(e.to_string().trim());
        let _ = io::stderr().write_all(line.as_bytes());
    } else {
        // Help and version are not errors. clap prints each to the right stream.
        let printed = e.print().and_then(|()| io::stdout().flush());
        if !e.use_stderr() {
            output::note_loss(printed, "");
        }
    }
    report_lost_output(ExitCode::from(u8::from(e.use_stderr()) * 2))
}

fn run_to_end(arguments: CliArguments, passed: io::Result<PassedSockets>) -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return exit_with_error("TLS cannot be set up");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return exit_with_error(&format!("no threads can be started: {e}")),
    };
    let code = match runtime.block_on(run(arguments, passed)) {
        Ok(code) => report_lost_output(code),
        Err(e) => match output::lost_output() {
            Some(lost) => exit_with_error(&format!("{e:#}; {lost}")),
            None => exit_with_error(&format!("{e:#}")),
        },
    };
    // A thread that waits for a disk must not keep the process.
    runtime.shutdown_timeout(MAX_THREAD_WAIT);
    code
}

async fn run(
    arguments: CliArguments,
    passed: io::Result<PassedSockets>,
) -> anyhow::Result<ExitCode> {
    let CliArguments { common, listen, take_over, command } = arguments;
    match command.unwrap_or(CliCommand::Serve { listen: None, take_over: false }) {
        CliCommand::Serve { listen: own, take_over: by_command } => {
            let take_over = take_over || by_command;
            let start = ServeOptions { listen: own.or(listen), take_over, passed };
            serve::serve(&common, start).await
        }
        CliCommand::Check(args) => check::check(&common, &args).await,
        CliCommand::Doctor(args) => doctor::run(&common, &args).await,
        CliCommand::Keys(command) => keys::run(&common, command).await,
        CliCommand::Users(command) => users::run(&common, command).await,
        CliCommand::Scim(command) => scim::run(&common, command).await,
        CliCommand::Models => models::list(&common),
        CliCommand::Agents { agent, key } => {
            agents::print(&common, agent.as_deref(), key.as_deref())
        }
        CliCommand::Directory(command) => directory::run(&common, command).await,
        CliCommand::Ledger(command) => ledger::run(&common, command).await,
        CliCommand::Archive(args) => archive::run(&common, args).await,
        CliCommand::Forget(args) => forget::run(&common, args).await,
        CliCommand::Audit(args) => audit::run(&common, args).await,
        CliCommand::Simulate { listen, canned, pace, faults } => {
            simulate::simulate(&listen, canned, pace, faults.as_deref()).await
        }
        CliCommand::Import(command) => import::run(&common, command).await,
        CliCommand::Backup(args) => backup::back_up(&common, &args).await,
        CliCommand::Restore(args) => backup::restore(&common, &args).await,
        CliCommand::Schema => artefacts::print_schema(),
        CliCommand::Completions { shell } => artefacts::print_completions(shell),
        CliCommand::Man { folder } => artefacts::write_manual(folder.as_deref()),
        CliCommand::Migrate(args) => migrate::migrate(&common, &args).await,
    }
}

/// Returns the exit code of a command, or that of a failure if a part of its output is lost.
fn report_lost_output(code: ExitCode) -> ExitCode {
    output::lost_output().map_or(code, |why| exit_with_error(&why))
}

/// Writes the error that ends the process.
fn exit_with_error(why: &str) -> ExitCode {
    output::print_error(why);
    ExitCode::FAILURE
}
