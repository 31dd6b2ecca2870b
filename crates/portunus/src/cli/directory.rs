//! `portunus directory`: the signed bundle over the built-in model directory. It works beside running
//! gateways, which take a change up within seconds.

use admin::{AccountAdmin, Actor, DirectoryContext, DirectoryStatus, DirectoryUpdate};
use anyhow::Context as _;
use catalog::{DirectoryDiff, MAX_BUNDLE_BYTES, ModelDirectory};
use clap::{Args, Subcommand};
use config::{Config, DirectoryKey, DirectorySigner};
use http::header::{HOST, LOCATION};
use http::{HeaderValue, Request, Uri};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use transport::HttpClient;

use super::common::{CommonArgs, close_accounts, open_accounts, without_field};
use super::output::print_line;
use crate::app::open_vault;

/// Largest signed bundle.
const MAX_SIGNED_BYTES: usize = MAX_BUNDLE_BYTES + 1024;
/// Time for a download.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Redirects that a download follows.
const MAX_REDIRECTS: usize = 3;

#[derive(Debug, Subcommand)]
pub(super) enum DirectoryCommand {
    /// Show the directory in use: version, date, signer, changes to the built-in one
    Show,
    /// Lay a signed bundle over the built-in directory; it replaces an earlier bundle
    Update(UpdateArgs),
    /// Return to the built-in directory
    Remove,
    /// Create a key pair that signs bundles: the private key in a new file, the public key on the screen
    NewKey {
        /// The new file
        file: PathBuf,
    },
    /// Sign a bundle
    Sign {
        /// The bundle
        file: PathBuf,
        /// File with the private key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// New file for the signed bundle; without it, the bundle itself is replaced
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Replace the file of --out if it exists
        #[arg(long)]
        force: bool,
    },
}

/// Source of an update.
#[derive(Debug, Args)]
pub(super) struct UpdateArgs {
    /// File or https URL of the bundle
    source: String,
    /// Public key to trust for this update, beside those of the configuration
    #[arg(long, value_name = "ed25519:…")]
    key: Vec<DirectoryKey>,
    /// Show the difference without writing anything
    #[arg(long)]
    dry_run: bool,
    /// Install a bundle although a newer one was installed before
    #[arg(long)]
    allow_older: bool,
}

pub(super) async fn run(
    common: &CommonArgs,
    command: DirectoryCommand,
) -> anyhow::Result<ExitCode> {
    match command {
        DirectoryCommand::NewKey { file } => new_key(&file, common.json)?,
        DirectoryCommand::Sign { file, key, out, force } => {
            let out = SignedFile { path: out.as_deref().unwrap_or(&file), force };
            sign(&file, &key, out, common.json)?;
        }
        DirectoryCommand::Show => with_store(common, async |of| of.show().await).await?,
        DirectoryCommand::Update(args) => {
            with_store(common, async |of| of.update(&args).await).await?;
        }
        DirectoryCommand::Remove => with_store(common, async |of| of.remove().await).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the store, runs a command on it and closes it.
async fn with_store(
    common: &CommonArgs,
    command: impl AsyncFnOnce(DirectoryAdmin<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let config = common.load()?;
    let accounts = open_accounts(&config).await?;
    let vault = open_vault(&config, &accounts.store);
    let context = DirectoryContext { config: &config, vault: &vault };
    let outcome =
        command(DirectoryAdmin { common, config: &config, accounts: &accounts, context }).await;
    close_accounts(&config, &accounts, false).await?;
    outcome
}

struct DirectoryAdmin<'a> {
    common: &'a CommonArgs,
    config: &'a Config,
    accounts: &'a AccountAdmin,
    context: DirectoryContext<'a>,
}

impl DirectoryAdmin<'_> {
    async fn show(&self) -> anyhow::Result<()> {
        let DirectoryStatus { installed, diff, issue } =
            self.accounts.directory_status(&Actor::Operator, self.context).await?;
        let embedded = ModelDirectory::embedded();
        let (models, providers) = (embedded.models().count(), embedded.providers().count());
        let as_of = embedded.models().map(|model| model.as_of.as_str()).max().unwrap_or_default();
        let keys: Vec<String> =
            self.config.directory_keys.iter().map(ToString::to_string).collect();
        let bundle = installed.as_ref().map(|installed| {
            let overlaid = installed.overlaid.as_ref().ok();
            let record = installed.record.as_ref();
            let at = record
                .and_then(|record| jiff::Timestamp::from_microsecond(record.installed_at).ok());
            json!({
                "version": installed.version(),
                "as_of": overlaid.map(|overlaid| &overlaid.0.as_of),
                "key": record.map(|record| &record.key),
                "installed_at": at.map(|at| at.to_string()),
                "outdated": overlaid.map(|overlaid| &overlaid.1.outdated),
                "issue": issue,
            })
        });
        if self.common.json {
            let object = json!({
                "built_in": { "models": models, "providers": providers, "as_of": as_of },
                "bundle": bundle,
                "changes": diff_json(&diff),
                "trusted_keys": keys,
            });
            print_line(&object.to_string());
            return Ok(());
        }
        print_line(&format!(
            "built-in: {models} models of {providers} providers, facts up to {as_of}"
        ));
        match &bundle {
            None => {
                print_line("bundle: none; lay one over it with: portunus directory update FILE|URL")
            }
            Some(bundle) => {
                let word = |name: &str| bundle.get(name).map(plain).unwrap_or_default();
                print_line(&format!(
                    "bundle: version {} of {}, signed by {}, installed {}",
                    word("version"),
                    word("as_of"),
                    word("key"),
                    word("installed_at")
                ));
                if let Some(issue) = &issue {
                    print_line(&format!("        it is not used: {issue}"));
                }
                print_line(&format!("        {}", summary(&diff)));
                print_outdated(bundle.get("outdated"));
            }
        }
        match keys.is_empty() {
            true => {
                print_line("trusted keys: none; see `keys` of [directory] in the configuration")
            }
            false => print_line(&format!("trusted keys: {}", keys.join(", "))),
        }
        Ok(())
    }

    async fn update(&self, args: &UpdateArgs) -> anyhow::Result<()> {
        let mut trusted = self.config.directory_keys.clone();
        trusted.extend(&args.key);
        anyhow::ensure!(
            !trusted.is_empty(),
            "no key is trusted; add the publisher's to the configuration (keys = [\"ed25519:…\"] in \
             [directory]) or give it for this update with --key; a key pair of your own is made with: \
             portunus directory new-key FILE"
        );
        let signed = self.read(&args.source).await?;
        let update = self
            .accounts
            .check_directory_update(
                &Actor::Operator,
                self.context,
                &signed,
                &trusted,
                args.allow_older,
            )
            .await
            .map_err(without_field)?;
        if !args.dry_run {
            let installed = self.accounts.install_directory(&Actor::Operator, &update).await;
            installed.map_err(without_field)?;
        }
        let DirectoryUpdate { version, as_of, key, diff, outdated, .. } = &update;
        if self.common.json {
            let object = json!({
                "version": version,
                "as_of": as_of,
                "key": key.to_string(),
                "changes": diff_json(diff),
                "outdated": outdated,
                "installed": !args.dry_run,
            });
            print_line(&object.to_string());
            return Ok(());
        }
        print_line(&format!("version {version} of {as_of}, signed by {key}"));
        for change in &diff.prices {
            print_line(&format!("  {change}"));
        }
        for (word, ids) in [("new", &diff.added), ("gone", &diff.removed)] {
            for id in ids {
                print_line(&format!("  {word:4}  {id}"));
            }
        }
        print_outdated(Some(&json!(outdated)));
        print_line(&summary(diff));
        print_line(match args.dry_run {
            true => "nothing is written (--dry-run)",
            false => "installed; running gateways use it within seconds, for calls that begin then",
        });
        Ok(())
    }

    async fn remove(&self) -> anyhow::Result<()> {
        let removed = self.accounts.remove_directory(&Actor::Operator, self.context).await;
        let removed = removed.map_err(without_field)?;
        if self.common.json {
            let broken = removed.iter().flat_map(|removed| &removed.broken);
            let broken: Vec<_> = broken.map(|(entry, why)| format!("{entry}: {why}")).collect();
            let version = removed.as_ref().and_then(|removed| removed.version);
            let object =
                json!({ "removed": removed.is_some(), "version": version, "broken": broken });
            print_line(&object.to_string());
            return Ok(());
        }
        let Some(removed) = removed else {
            print_line("there is no bundle; the built-in directory is in use");
            return Ok(());
        };
        for (entry, why) in &removed.broken {
            print_line(&format!("warning: stored `{entry}` is left out now: {why}"));
        }
        print_line("the bundle is removed; the built-in directory is used within seconds");
        Ok(())
    }

    /// Reads the bundle from a file or a URL, within its limit.
    async fn read(&self, source: &str) -> anyhow::Result<Vec<u8>> {
        let lower = source.to_ascii_lowercase();
        if lower.starts_with("https://") {
            let download = download(self.config, source);
            return match tokio::time::timeout(DOWNLOAD_TIMEOUT, download).await {
                Ok(bytes) => bytes.with_context(|| format!("{source} cannot be downloaded")),
                Err(_) => anyhow::bail!(
                    "{source} cannot be downloaded: not complete within {} s",
                    DOWNLOAD_TIMEOUT.as_secs()
                ),
            };
        }
        anyhow::ensure!(!lower.contains("://"), "{source}: give a file or an https URL");
        read_file(Path::new(source))
    }
}

async fn download(config: &Config, source: &str) -> anyhow::Result<Vec<u8>> {
    let mut target: Uri = source.parse().context("it is not a URL")?;
    for _ in 0..=MAX_REDIRECTS {
        let host = target.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let host = host.rsplit('@').next().unwrap_or_default();
        let host = HeaderValue::from_str(host)?;
        let request = Request::get(target.clone()).header(HOST, host).body(Vec::new())?;
        let client = HttpClient::network(DOWNLOAD_TIMEOUT, &config.outbound);
        let answer = crate::host::fetch(client, request, MAX_SIGNED_BYTES).await;
        let answer = answer.map_err(|error| match error.0.contains("length limit") {
            true => too_large(),
            false => anyhow::anyhow!(error.0),
        })?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        match location.filter(|_| answer.status().is_redirection()) {
            Some(location) if location.starts_with("https://") => target = location.parse()?,
            Some(_) => anyhow::bail!("it redirects to an address that is not https"),
            None => anyhow::bail!("the server answered {}", answer.status().as_u16()),
        }
    }
    anyhow::bail!("too many redirects")
}

fn too_large() -> anyhow::Error {
    anyhow::anyhow!("the bundle is larger than {MAX_SIGNED_BYTES} bytes")
}

/// Reads a file that is not larger than a signed bundle.
fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("{} cannot be read", path.display());
    // A pipe may never end, and opening it may never return.
    let kind = std::fs::metadata(path).with_context(unreadable)?;
    anyhow::ensure!(kind.is_file(), "{} cannot be read: it is no regular file", path.display());
    let file = std::fs::File::open(path).with_context(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_SIGNED_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(unreadable)?;
    if bytes.len() > MAX_SIGNED_BYTES { Err(too_large()) } else { Ok(bytes) }
}

fn new_key(file: &Path, is_json: bool) -> anyhow::Result<()> {
    let (signer, pem) = DirectorySigner::generate().context("no key can be generated")?;
    let public = signer.public_key().context("no key can be generated")?;
    let mut options = std::fs::OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(file);
    created
        .and_then(|mut created| created.write_all(pem.as_bytes()))
        .with_context(|| format!("{} cannot be written", file.display()))?;
    let shown = json!({ "file": file.display().to_string(), "public_key": public.to_string() });
    print_line(&if is_json { shown.to_string() } else { public.to_string() });
    Ok(())
}

/// File for a signed bundle.
#[derive(Clone, Copy)]
struct SignedFile<'a> {
    path: &'a Path,
    /// True to replace another file.
    force: bool,
}

impl SignedFile<'_> {
    /// Refuses to replace the key, and any file beside the bundle itself unless it is forced.
    fn check(self, bundle: &Path, key: &Path) -> anyhow::Result<()> {
        let place = |path: &Path| Some((path.metadata().ok()?.dev(), path.metadata().ok()?.ino()));
        let (own, shown) = (place(self.path), self.path.display());
        anyhow::ensure!(own.is_none() || own != place(key), "{shown} is the private key");
        anyhow::ensure!(
            own.is_none() || own == place(bundle) || self.force,
            "{shown} exists; --force replaces it"
        );
        Ok(())
    }

    fn write(self, signed: &str, is_new: bool) -> anyhow::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create(true).create_new(is_new).truncate(true);
        let written = opened.open(self.path).and_then(|mut file| file.write_all(signed.as_bytes()));
        written.with_context(|| format!("{} cannot be written", self.path.display()))
    }
}

fn sign(file: &Path, key: &Path, out: SignedFile<'_>, is_json: bool) -> anyhow::Result<()> {
    let pem = read_file(key)?;
    let signer = DirectorySigner::from_pem(&pem)
        .with_context(|| format!("{} is not an Ed25519 key in PEM", key.display()))?;
    let bundle = String::from_utf8(read_file(file)?)
        .with_context(|| format!("{} is not text", file.display()))?;
    out.check(file, key)?;
    // Signs nothing that an update would refuse.
    let parsed = admin::check_bundle(&bundle)?;
    let signed = signer.sign(&bundle).context("the bundle cannot be signed")?;
    let public = signer.public_key().context("the key has no public part")?;
    out.write(&signed, !out.path.exists())?;
    let (out, version, as_of) = (out.path.display().to_string(), parsed.version, &parsed.as_of);
    let entries = parsed.len();
    if is_json {
        let shown = json!({ "file": out, "version": version, "as_of": as_of,
            "entries": entries, "public_key": public.to_string() });
        print_line(&shown.to_string());
        return Ok(());
    }
    print_line(&format!(
        "{out}: version {version} of {as_of} with {entries} entries, signed by {public}"
    ));
    Ok(())
}

/// Describes a difference in one line.
fn summary(diff: &DirectoryDiff) -> String {
    let DirectoryDiff { added, removed, changed, prices } = diff;
    let count = |direction| prices.iter().filter(|p| p.direction == direction).count();
    let others = match count(None) {
        0 => String::new(),
        others => format!(", {others} new or gone"),
    };
    format!(
        "{} changed, {} added, {} removed; {} up, {} down{others}",
        counted(changed.len(), "model"),
        added.len(),
        removed.len(),
        counted(count(Some(Ordering::Less)), "price"),
        count(Some(Ordering::Greater))
    )
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn print_outdated(places: Option<&Value>) {
    let places = places.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for place in places {
        print_line(&format!("  older than the built-in facts and not used: {}", plain(place)));
    }
}

/// Returns a JSON value as people read it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn diff_json(diff: &DirectoryDiff) -> Value {
    let DirectoryDiff { added, removed, changed, prices } = diff;
    let prices = prices.iter().map(|change| {
        json!({
            "lane": change.lane,
            "price": change.name,
            "unit": change.unit,
            "before": change.before,
            "after": change.after,
        })
    });
    json!({
        "added": added,
        "removed": removed,
        "changed": changed,
        "prices": prices.collect::<Vec<_>>(),
    })
}
