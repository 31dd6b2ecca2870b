//! `portunus import`: takes over from another gateway, its configuration and its database.

mod apply;
mod channel_kinds;
mod channels;
mod litellm;
mod litellm_database;
mod litellm_notes;
mod litellm_values;
mod one_api;
mod plan;
mod plan_names;
mod providers;
mod source_data;
mod source_database;
mod source_row;
mod spend_split;

use admin::{AccountAdmin, Actor};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use config::Config;
use ledger::Clock as _;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::AccountRole;

use super::common::{CommonArgs, close_accounts, inspect_accounts, open_accounts};
use super::output::print_bytes;
use crate::private_file;
use apply::{ImportReport, apply};
use channel_kinds::ChannelProgram;
use channels::{ChannelConfig, ChannelSecret, SecretPlace};
use one_api::SourceOptions;
use plan::{ImportPlan, Planner, SourceName};
use source_data::SourceData;
use source_database::{SourceDatabase, is_postgres, require_file, resolve_address};

/// Gateway that is taken over.
#[derive(Debug, Subcommand)]
pub(super) enum ImportCommand {
    /// A LiteLLM proxy: its `config.yaml`, or the keys, teams and users of its database
    Litellm {
        /// The file to convert, postgres://USER:PASSWORD@HOST/NAME, or env:NAME for a variable that has it
        source: String,
        /// File to write the configuration to instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        options: DatabaseArgs,
    },
    /// One API: the users, tokens and channels of its database
    OneApi(ChannelArgs),
    /// New API: the users, tokens and channels of its database
    NewApi(ChannelArgs),
}

/// Options of an import from a database.
#[derive(Clone, Debug, Args)]
pub(super) struct DatabaseArgs {
    /// Tell what would be made and what does not carry, and make nothing
    #[arg(long)]
    dry_run: bool,
    /// Word that tells two installations of the same program apart
    #[arg(long, value_name = "WORD", default_value = "")]
    label: String,
}

/// Options of an import of users, tokens and channels.
#[derive(Clone, Debug, Args)]
pub(super) struct ChannelArgs {
    /// SQLite file, postgres://USER:PASSWORD@HOST/NAME, or env:NAME for a variable that has it
    source: String,
    /// File to write the channels to, as configuration
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Folder for the keys of channels, one file each; without it the configuration names variables
    #[arg(long, value_name = "FOLDER", requires = "out")]
    secrets: Option<PathBuf>,
    #[command(flatten)]
    options: DatabaseArgs,
}

/// The resulting configuration, and notes about everything that was not imported.
struct ImportResult {
    text: String,
    notes: Vec<String>,
}

pub(super) async fn run(common: &CommonArgs, command: ImportCommand) -> anyhow::Result<ExitCode> {
    match command {
        ImportCommand::Litellm { source, out, options } => {
            let address = resolve_address(&source)?;
            if is_postgres(&address) {
                import_litellm(common, &address, &options).await
            } else {
                require_file(&address)?;
                convert_litellm(Path::new(&address), out.as_deref())
            }
        }
        ImportCommand::OneApi(args) => import_channels(common, ChannelProgram::OneApi, &args).await,
        ImportCommand::NewApi(args) => import_channels(common, ChannelProgram::NewApi, &args).await,
    }
}

/// Converts the `config.yaml` of a LiteLLM proxy.
fn convert_litellm(file: &Path, out: Option<&Path>) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read", file.display()))?;
    let ImportResult { text, notes } = litellm::convert(&text, &|name| std::env::var(name).ok())
        .with_context(|| file.display().to_string())?;
    for note in &notes {
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    match out {
        Some(out) => write_config(out, &text)?,
        None => {
            print_bytes(text.as_bytes());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_config(out: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(out, text).with_context(|| format!("{} cannot be written", out.display()))
}

/// Imports the database of a LiteLLM proxy.
async fn import_litellm(
    common: &CommonArgs,
    address: &str,
    options: &DatabaseArgs,
) -> anyhow::Result<ExitCode> {
    let mut database = SourceDatabase::open(address).await?;
    let now = ledger::SystemClock.now();
    let data = litellm_database::read(&mut database, now).await;
    database.close().await;
    let source = SourceName { program: "litellm", label: &options.label };
    import_data(common, data?, source, options.dry_run, ImportReport::new(common.json)).await
}

/// Imports the database of One API or New API.
async fn import_channels(
    common: &CommonArgs,
    program: ChannelProgram,
    args: &ChannelArgs,
) -> anyhow::Result<ExitCode> {
    let ChannelArgs { source, out, secrets, options } = args;
    let mut database = SourceDatabase::open(&resolve_address(source)?).await?;
    let folder = secrets.as_deref().map(std::path::absolute).transpose()?;
    let folder_text = folder.as_deref().map(|folder| folder.display().to_string());
    let place = folder_text.as_deref().map_or(SecretPlace::Environment, SecretPlace::Folder);
    let read = async {
        let settings = SourceOptions::read(&mut database).await?;
        let now = ledger::SystemClock.now();
        let data = one_api::read(&mut database, &settings, now).await?;
        let channels = channels::read(&mut database, program, &settings, place).await?;
        anyhow::Ok((data, channels))
    };
    let read = read.await;
    database.close().await;
    let (mut data, channels) = read?;
    let ChannelConfig { text, secrets, notes, providers, models } = channels;
    match out {
        Some(_) => data.notes.extend(notes),
        None if providers.is_empty() => {}
        None => data.notes.push(format!(
            "{} channels are not converted; repeat with --out FILE to write them as configuration",
            providers.len()
        )),
    }
    if let Some(out) = out.as_deref().filter(|_| !options.dry_run) {
        if let Some(folder) = &folder {
            write_secrets(folder, &secrets)?;
        }
        write_config(out, &format!("# Made from the channels of {}.\n\n{text}", program.word()))?;
    }
    let report = ImportReport::new(common.json);
    if let Some(out) = out {
        let (written, out) =
            (if options.dry_run { "to be written" } else { "written" }, out.display());
        report.note(&format!(
            "{} providers and {} models are {written} to {out}: {}",
            providers.len(),
            models.len(),
            providers.join(", ")
        ));
    }
    let source = SourceName { program: program.word(), label: &options.label };
    import_data(common, data, source, options.dry_run, report).await
}

/// Writes each secret to a file that only its owner reads.
fn write_secrets(folder: &Path, secrets: &[ChannelSecret]) -> anyhow::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    for ChannelSecret { name, text } in secrets {
        let path = folder.join(name);
        private_file::replace(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Plans the import of data and makes it.
async fn import_data(
    common: &CommonArgs,
    data: SourceData,
    source: SourceName<'_>,
    dry_run: bool,
    mut report: ImportReport,
) -> anyhow::Result<ExitCode> {
    let config: Config = common.load()?;
    let admin = match dry_run {
        true => inspect_accounts(&config).await?,
        false => open_accounts(&config).await?,
    };
    let planned = plan(&admin, data, source, dry_run).await;
    let done = match planned {
        Ok(plan) => {
            apply(&admin, plan, dry_run, &mut report).await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    close_accounts(&config, &admin, done.is_ok() && !dry_run).await?;
    done?;
    if report.end() { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::FAILURE) }
}

async fn plan(
    admin: &AccountAdmin,
    data: SourceData,
    source: SourceName<'_>,
    dry_run: bool,
) -> anyhow::Result<ImportPlan> {
    // The owner must exist first: the first start creates it only while there is no account.
    let owner = if dry_run {
        let mut accounts = admin.store.accounts().await?.into_iter();
        accounts.find(|account| account.role == AccountRole::Owner).map(|owner| owner.id)
    } else {
        Some(admin.owner_or_create(&Actor::Operator).await?.id)
    };
    Planner::open(admin, source).await?.plan(data, &owner.unwrap_or_default()).await
}
