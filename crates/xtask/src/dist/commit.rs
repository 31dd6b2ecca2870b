//! Commit that the packages are made from.

use std::process::Command;

use anyhow::{Context, Result};
use jiff::Timestamp;

use crate::workspace;

/// Time of packages without a commit: 1980-01-01, the first that a zip archive can tell.
const NO_COMMIT_EPOCH: u64 = 315_532_800;

/// Commit and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceCommit {
    /// Hash; `-modified` behind it if files differ from it. Empty without git.
    pub(super) id: String,
    /// Day, as `2026-11-18`.
    pub(super) date: String,
    /// Time in seconds, for every file of the packages. `SOURCE_DATE_EPOCH` sets it
    /// (<https://reproducible-builds.org/specs/source-date-epoch/>).
    pub(super) epoch: u64,
}

impl SourceCommit {
    /// Asks git. Sources without git have no commit.
    pub(super) fn read() -> Result<Self> {
        let set = std::env::var("SOURCE_DATE_EPOCH").ok().filter(|text| !text.is_empty());
        let set = set.map(|text| text.parse::<u64>().context("SOURCE_DATE_EPOCH is not a number"));
        let found = git(&["log", "-1", "--format=%H %ct"]);
        let (mut id, time) = found
            .as_deref()
            .and_then(|line| line.split_once(' '))
            .map_or((String::new(), None), |(id, time)| (id.to_owned(), time.parse().ok()));
        if !id.is_empty()
            && git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty())
        {
            id.push_str("-modified");
        }
        let epoch = set.transpose()?.or(time).unwrap_or(NO_COMMIT_EPOCH);
        let day = Timestamp::from_second(i64::try_from(epoch)?)?;
        Ok(Self { id, date: day.strftime("%Y-%m-%d").to_string(), epoch })
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).current_dir(workspace::root()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
