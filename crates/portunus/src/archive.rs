//! Archiving of old calls: a part of them is written to a file, then removed from the database.
//!
//! The files are CSV, compressed by zstd, one or several for each day, each with a manifest. Parquet would be
//! smaller to query, but its crates (`parquet`, `arrow`) are a tree of about forty, and every warehouse reads
//! compressed CSV. Sessions that callers named are left out, because files cannot be erased from here.
//!
//! `store/src/archive.rs` has the protocol. Whatever a killed process left is continued by the next run.

use api::export_json;
use aws_lc_rs::digest;
use bytes::Bytes;
use canon::{Micros, Money};
use config::ArchivePlace;
use ledger::LedgerEntry;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::time::Duration;
use store::{
    ArchiveFile, ArchivePart, ArchiveState, AuditLine, CallPosting, ClusterTurn, Store, TURN_TIME,
};

use crate::archive_place::{list_files, put_file, read_file};
use crate::call_csv::{call_header, call_line, read_line};

/// Pause between two transactions that remove calls, so that postings come between them.
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);
const COMPRESSION_LEVEL: i32 = 3;
/// Ending of a manifest, behind the name of its file.
const MANIFEST_ENDING: &str = ".json";
/// Digits of a file's hash in its name.
const NAMED_DIGITS: usize = 12;
/// Bytes of a file that are decompressed at once.
const READ_BYTES: usize = 256 << 10;
/// Name of archiving in the audit log.
const AUDIT_NAME: &str = "retention";

/// The description of a file, beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ArchiveManifest {
    file: String,
    format: String,
    calls: i64,
    cost_usd: String,
    absorbed_usd: String,
    /// First and last end of its calls, to a quarter of a second.
    first_ended: String,
    last_ended: String,
    bytes: i64,
    sha256: String,
}

/// Calls that left the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchivedTotals {
    pub(crate) parts: usize,
    pub(crate) calls: i64,
    pub(crate) cost: Money,
}

/// Archives calls in a place, or deletes them without a file.
pub(crate) struct CallArchiver<'a> {
    pub(crate) store: &'a Store,
    /// `None` deletes calls without a file.
    pub(crate) place: Option<&'a ArchivePlace>,
    /// Name of the process that has the turn.
    pub(crate) process: &'a str,
}

impl CallArchiver<'_> {
    /// Takes the turn. Returns false if another process has it.
    pub(crate) async fn take_turn(&self) -> anyhow::Result<bool> {
        Ok(self.store.take_turn(ClusterTurn::Retention, self.process, TURN_TIME).await?)
    }

    /// Does work in the turn, prolongs the turn meanwhile, and gives it back.
    pub(crate) async fn in_turn<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        self.store.in_turn(ClusterTurn::Retention, self.process, TURN_TIME, work).await?
    }

    /// Completes what an earlier process left, and archives the calls of blocks that end within the range. The
    /// turn must be taken.
    pub(crate) async fn archive(&self, range: Range<Micros>) -> anyhow::Result<ArchivedTotals> {
        let mut totals = ArchivedTotals::default();
        loop {
            let part = match self.store.unfinished_part().await? {
                Some(part) => Some(part),
                None => self.store.plan_part(range.clone()).await?,
            };
            let Some(part) = part else { return Ok(totals) };
            let written = match part.state {
                ArchiveState::Writing => self.write_part(&part).await?,
                ArchiveState::Written | ArchiveState::Removed => part.file.clone(),
            };
            self.remove_part(part.id).await?;
            self.record(&part, &written).await?;
            totals.parts += 1;
            totals.calls = totals.calls.saturating_add(written.calls);
            totals.cost = totals.cost.saturating_add(written.cost);
        }
    }

    /// Removes the calls of a part whose file is complete, if there is one.
    pub(crate) async fn finish_written(&self) -> anyhow::Result<()> {
        let Some(part) = self.store.unfinished_part().await? else { return Ok(()) };
        match part.state {
            ArchiveState::Written => {
                self.remove_part(part.id).await?;
                self.record(&part, &part.file).await
            }
            ArchiveState::Writing | ArchiveState::Removed => Ok(()),
        }
    }

    /// Writes the file of a part and its manifest, and records both.
    async fn write_part(&self, part: &ArchivePart) -> anyhow::Result<ArchiveFile> {
        let mut file = FileWriter::new()?;
        let mut after_block = i64::MIN;
        while let Some((last, calls)) = self.store.part_calls(part.id, after_block).await? {
            after_block = last;
            let postings = match self.place {
                Some(_) => self.store.postings_of(&calls).await?,
                None => BTreeMap::new(),
            };
            let has_file = self.place.is_some();
            // Off the threads that serve sockets.
            let adding = tokio::task::spawn_blocking(move || {
                file.add(&calls, &postings, has_file).map(|()| file)
            });
            file = adding.await??;
        }
        let FileWriter { calls, cost, absorbed, .. } = file;
        let mut record = ArchiveFile { calls, cost, absorbed, ..ArchiveFile::default() };
        if let Some(place) = self.place {
            let bytes = Bytes::from(file.finish()?);
            record.place.clone_from(&place.url);
            record.sha256 = hex_digest(&bytes);
            record.name = file_name(part, &record.sha256);
            record.bytes = i64::try_from(bytes.len())?;
            put_file(place, &record.name, bytes).await?;
            let manifest = serde_json::to_vec_pretty(&manifest_of(part, &record))?;
            let name = format!("{}{MANIFEST_ENDING}", record.name);
            put_file(place, &name, manifest.into()).await?;
        }
        let is_recorded = self.store.part_written(part.id, &record).await?;
        anyhow::ensure!(is_recorded, "another process archives calls");
        Ok(record)
    }

    async fn remove_part(&self, part: i64) -> anyhow::Result<()> {
        while self.store.remove_part_calls(part).await? > 0 {
            tokio::time::sleep(REMOVAL_PAUSE).await;
        }
        Ok(())
    }

    async fn record(&self, part: &ArchivePart, file: &ArchiveFile) -> anyhow::Result<()> {
        let ArchiveFile { place, name, calls, cost, .. } = file;
        let target = if name.is_empty() { "no file".to_owned() } else { format!("{place} {name}") };
        tracing::info!(
            part = part.id,
            calls,
            "{calls} calls for {cost} USD left the database: {target}"
        );
        let detail = format!("{calls} calls for {cost} USD, {target}");
        let at = Micros::new(jiff::Timestamp::now().as_microsecond());
        let line = AuditLine {
            at,
            actor: AUDIT_NAME,
            key_id: None,
            action: "archive.part",
            subject: &part.id.to_string(),
            detail: &detail,
            address: None,
            agent: None,
        };
        Ok(self.store.add_audit(&line).await?)
    }
}

/// Returns the name of a part's file. The begin of its hash is in it, so that no file is ever replaced by one with
/// other calls: parts of a database that was restored have the numbers of parts that the earlier one had archived.
fn file_name(part: &ArchivePart, sha256: &str) -> String {
    let hash = sha256.get(..NAMED_DIGITS).unwrap_or(sha256);
    format!("calls-{}-{:08}-{hash}.csv.zst", day_text(part.begun), part.id)
}

fn manifest_of(part: &ArchivePart, file: &ArchiveFile) -> ArchiveManifest {
    ArchiveManifest {
        file: file.name.clone(),
        format: "csv+zstd".to_owned(),
        calls: file.calls,
        cost_usd: file.cost.to_string(),
        absorbed_usd: file.absorbed.to_string(),
        first_ended: time_text(part.begun),
        last_ended: time_text(part.ended),
        bytes: file.bytes,
        sha256: file.sha256.clone(),
    }
}

/// A file that grows by pages of calls.
struct FileWriter {
    encoder: zstd::stream::Encoder<'static, Vec<u8>>,
    calls: i64,
    cost: Money,
    absorbed: Money,
}

impl FileWriter {
    fn new() -> anyhow::Result<Self> {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), COMPRESSION_LEVEL)?;
        let header = call_header(&archived_json(&LedgerEntry::default(), &[]));
        encoder.write_all(header.as_bytes())?;
        Ok(Self { encoder, calls: 0, cost: Money::ZERO, absorbed: Money::ZERO })
    }

    fn add(
        &mut self,
        calls: &[LedgerEntry],
        postings: &BTreeMap<String, Vec<CallPosting>>,
        has_file: bool,
    ) -> anyhow::Result<()> {
        for call in calls {
            if has_file {
                let postings = postings.get(&*call.request_id).map(Vec::as_slice);
                let line = call_line(&archived_json(call, postings.unwrap_or_default()));
                self.encoder.write_all(line.as_bytes())?;
            }
            self.calls += 1;
            self.cost = self.cost.saturating_add(call.cost);
            self.absorbed = self.absorbed.saturating_add(call.absorbed);
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<Vec<u8>> {
        Ok(self.encoder.finish()?)
    }
}

/// Returns a call as the export has it, without texts of its caller: session, end user, tags and the message of an error.
fn archived_json(call: &LedgerEntry, postings: &[CallPosting]) -> Value {
    let mut line = export_json(call, postings);
    if let Some(line) = line.as_object_mut() {
        for name in ["session", "end_user", "tags"] {
            line.shift_remove(name);
        }
        if let Some(error) = line.get_mut("error").and_then(Value::as_object_mut) {
            error.retain(|name, _| name == "code");
        }
    }
    line
}

fn hex_digest(bytes: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, bytes);
    hash.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn time_text(at: Micros) -> String {
    jiff::Timestamp::from_microsecond(at.get()).map(|at| at.to_string()).unwrap_or_default()
}

fn day_text(at: Micros) -> String {
    time_text(at).split('T').next().unwrap_or_default().to_owned()
}

/// Result of a look at all files.
#[derive(Debug, Default)]
pub(crate) struct ArchiveFindings {
    /// Numbers of files and calls that are as they were written.
    pub(crate) files: usize,
    pub(crate) calls: i64,
    pub(crate) cost: Money,
    /// Calls that were deleted without a file.
    pub(crate) deleted: i64,
    /// Files that are missing or differ, as text.
    pub(crate) problems: Vec<String>,
    /// Facts that the operator should know.
    pub(crate) notes: Vec<String>,
}

/// Compares every file with its manifest and with the record in the database.
pub(crate) async fn verify_archive(
    store: &Store,
    place: Option<&ArchivePlace>,
) -> anyhow::Result<ArchiveFindings> {
    let mut findings = ArchiveFindings::default();
    let mut known = BTreeSet::new();
    let mut after = 0;
    loop {
        let parts = store.archive_parts(after).await?;
        let Some(last) = parts.last() else { break };
        after = last.id;
        for part in parts {
            let ArchiveFile { name, calls, cost, .. } = &part.file;
            match (part.state, place) {
                (ArchiveState::Writing, _) => {
                    findings.notes.push(format!("part {} is not written yet", part.id));
                }
                (ArchiveState::Written | ArchiveState::Removed, _) if name.is_empty() => {
                    findings.deleted = findings.deleted.saturating_add(*calls);
                }
                (ArchiveState::Written | ArchiveState::Removed, None) => {
                    findings.problems.push(format!("{name}: no archive is configured; use --to"));
                }
                (ArchiveState::Written | ArchiveState::Removed, Some(place)) => {
                    known.insert(name.clone());
                    match file_problem(place, &part).await? {
                        Some(problem) => findings.problems.push(format!("{name}: {problem}")),
                        None => {
                            findings.files += 1;
                            findings.calls = findings.calls.saturating_add(*calls);
                            findings.cost = findings.cost.saturating_add(*cost);
                        }
                    }
                }
            }
        }
    }
    let Some(place) = place else { return Ok(findings) };
    for name in list_files(place).await? {
        let file = name.strip_suffix(MANIFEST_ENDING).unwrap_or(&name);
        if !known.contains(file) {
            findings.notes.push(format!("{name} is not of this database, or was not completed"));
        }
    }
    Ok(findings)
}

/// Returns the difference between a file, its manifest and its record.
async fn file_problem(place: &ArchivePlace, part: &ArchivePart) -> anyhow::Result<Option<String>> {
    let record = &part.file;
    let Some(bytes) = read_file(place, &record.name).await? else {
        let elsewhere = record.place != place.url;
        let hint =
            if elsewhere { format!("; it was written to {}", record.place) } else { String::new() };
        return Ok(Some(format!("the file is missing in {}{hint}", place.url)));
    };
    if hex_digest(&bytes) != record.sha256 {
        return Ok(Some("its SHA-256 is not the recorded one".to_owned()));
    }
    let manifest = read_file(place, &format!("{}{MANIFEST_ENDING}", record.name)).await?;
    let manifest: Option<ArchiveManifest> =
        manifest.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if manifest != Some(manifest_of(part, record)) {
        return Ok(Some("its manifest is missing or differs from the record".to_owned()));
    }
    let summing = tokio::task::spawn_blocking(move || sum_file(&bytes));
    let sums = match summing.await? {
        Ok(sums) => sums,
        Err(e) => return Ok(Some(format!("it cannot be read: {e:#}"))),
    };
    let recorded = (record.calls, record.cost, record.absorbed);
    Ok((sums != recorded).then(|| {
        format!(
            "it has {} calls for {} USD, but {} for {} USD are recorded",
            sums.0, sums.1, recorded.0, recorded.1
        )
    }))
}

/// Returns the number of calls of a file, their cost and the absorbed amount.
fn sum_file(bytes: &[u8]) -> anyhow::Result<(i64, Money, Money)> {
    let mut decoder = zstd::stream::Decoder::new(bytes)?;
    let (mut text, mut chunk) = (Vec::new(), vec![0; READ_BYTES]);
    let mut columns: Option<[usize; 2]> = None;
    let (mut calls, mut cost, mut absorbed) = (0_i64, Money::ZERO, Money::ZERO);
    loop {
        let count = decoder.read(&mut chunk)?;
        text.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let lines = std::str::from_utf8(text.get(..end).unwrap_or_default())?;
        let mut rest = lines;
        while let Some((cells, next)) = read_line(rest) {
            rest = next;
            let Some([cost_at, absorbed_at]) = columns else {
                let column = |name: &str| cells.iter().position(|cell| cell == name);
                let found = column("cost_usd").zip(column("absorbed_usd"));
                let (cost_at, absorbed_at) =
                    found.ok_or_else(|| anyhow::anyhow!("columns are missing"))?;
                columns = Some([cost_at, absorbed_at]);
                continue;
            };
            let amount = |place: usize| -> anyhow::Result<Money> {
                let cell = cells.get(place).map(String::as_str).unwrap_or_default();
                Ok(cell.parse()?)
            };
            calls += 1;
            cost = cost.saturating_add(amount(cost_at)?);
            absorbed = absorbed.saturating_add(amount(absorbed_at)?);
        }
        let used = lines.len() - rest.len();
        text.drain(..used);
        if count == 0 {
            anyhow::ensure!(text.is_empty(), "its last line is not complete");
            return Ok((calls, cost, absorbed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_sums_up_to_its_calls_and_has_no_texts_of_callers() {
        let call = |number: i64| LedgerEntry {
            request_id: format!("req_{number}").into(),
            model: "a \"model\",\r\nwith lines".into(),
            session: "a secret session".into(),
            end_user: "a secret customer".into(),
            tags: [("a secret", "tag")].into_iter().collect(),
            cost: Money::from_nanos(number),
            absorbed: Money::from_nanos(-number),
            ..LedgerEntry::default()
        };
        let calls: Vec<LedgerEntry> = (0..5_000).map(call).collect();
        let mut file = FileWriter::new().unwrap();
        file.add(&calls, &BTreeMap::new(), true).unwrap();
        let sum = Money::from_nanos((0..5_000).sum());
        assert_eq!((file.calls, file.cost), (5_000, sum));
        let bytes = file.finish().unwrap();
        assert_eq!(sum_file(&bytes).unwrap(), (5_000, sum, Money::ZERO.saturating_sub(sum)));
        let text = zstd::stream::decode_all(&*bytes).unwrap();
        assert!(!String::from_utf8(text).unwrap().contains("secret"));
        assert!(sum_file(bytes.get(..bytes.len() / 2).unwrap()).is_err());
    }
}
