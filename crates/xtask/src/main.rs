//! Developer commands: `cargo xtask tidy`, `cargo xtask test`, `cargo xtask bench`,
//! `cargo xtask instructions`, `cargo xtask dist`, `cargo xtask soak`, `cargo xtask losses`,
//! `cargo xtask directory`.
//!
//! Nothing here is part of the gateway. The commands install their tools, talk to `127.0.0.1` only,
//! and clean up after themselves.

#![expect(clippy::print_stdout, reason = "a command line speaks on standard output")]

mod bench;
mod browser;
mod directory;
mod dist;
mod gateway;
mod http;
mod losses;
mod process;
mod soak;
mod suite;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of the workspace")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the house rules: crate order, module circles, names, comments, links, leftovers
    Tidy,
    /// Run the whole test suite; installs what it needs
    Test {
        /// Run one step only
        #[arg(long, value_name = "STEP")]
        only: Option<suite::Step>,
        /// Arguments for `cargo test` of the step `unit`, such as `--test store`
        #[arg(last = true, requires = "only")]
        arguments: Vec<String>,
    },
    /// Measure the gateway, nginx and the bare upstream
    Bench {
        /// A few seconds instead of a few minutes; the figures are rougher
        #[arg(long)]
        quick: bool,
        /// Also measure LiteLLM and Portkey, installed from PyPI and npm
        #[arg(long)]
        rivals: bool,
        /// Write docs/performance.md
        #[arg(long)]
        write: bool,
        /// Only measure many streams, idle connections, two processors and overload
        #[arg(long, conflicts_with_all = ["rivals", "write"])]
        scale: bool,
    },
    /// Count instructions, allocations and system calls of each kind of call
    Instructions {
        /// The cargo profile of the measured binary
        #[arg(long, default_value = "dist")]
        profile: String,
        /// Measure the release binary and keep its figures as what a call may cost from now on
        #[arg(long, conflicts_with = "profile")]
        accept: bool,
        /// With `--accept`, only keep the figures of translations, which takes a minute
        #[arg(long, requires = "accept")]
        translations: bool,
    },
    /// Build the programs to hand out and everything to install them from
    Dist(dist::DistArgs),
    /// Run the ledger tests for a long time: crashes, load and full disks
    Soak {
        /// Duration in minutes
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// Seed of the random numbers; a failed round prints its own
        #[arg(long)]
        seed: Option<u64>,
        /// Also fill both databases with that number of calls and time the queries
        #[arg(long, value_name = "CALLS")]
        year: Option<u64>,
    },
    /// Regenerate the lists of translation losses: the golden files and docs/losses.md
    Losses,
    /// Check the model directory, list old facts, and compare its prices with public tables
    Directory(directory::DirectoryArgs),
}

fn main() -> Result<ExitCode> {
    let good = match Cli::parse().command {
        Command::Tidy => tidy::run()?,
        Command::Test { only, arguments } => suite::run(only, &arguments),
        Command::Bench { quick, scale: true, .. } => bench::scale::run(quick)?,
        Command::Bench { quick, rivals, write, scale: false } => bench::run(quick, rivals, write)?,
        Command::Instructions { translations: true, .. } => {
            bench::instructions::keep_translations()?;
            true
        }
        Command::Instructions { profile, accept, translations: false } => {
            bench::instructions::run(&profile, accept)?;
            true
        }
        Command::Dist(args) => {
            dist::run(args)?;
            true
        }
        Command::Soak { minutes, seed, year } => {
            soak::run(minutes, seed, year)?;
            true
        }
        Command::Losses => {
            losses::run()?;
            true
        }
        Command::Directory(args) => directory::run(&args)?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
