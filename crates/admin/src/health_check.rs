//! Health checks of a node: one list, which `/readyz`, the administration and `portunus doctor` show.

use serde::{Deserialize, Serialize};

/// Part of the gateway that a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    /// The node accepts new calls, because it is not stopping.
    Shutdown,
    /// The database answers.
    Store,
    /// The keys in use have money on this node.
    Leases,
    /// The journal is written and whole.
    Journal,
    /// The disks have room.
    Disk,
    /// The shared limits answer.
    Valkey,
    /// The file store answers.
    Files,
    /// The vault can seal and open secrets.
    Vault,
    /// The certificates are valid for a while.
    Certificates,
    /// The clock agrees with that of the database.
    Clock,
    /// The providers accept their credentials.
    Credentials,
    /// The configuration and the stored entries can be used as they are.
    Configuration,
    /// The nodes have the same configuration.
    Drift,
    /// The process may open enough files.
    Descriptors,
}

impl CheckName {
    /// The word in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Store => "store",
            Self::Leases => "leases",
            Self::Journal => "journal",
            Self::Disk => "disk",
            Self::Valkey => "valkey",
            Self::Files => "files",
            Self::Vault => "vault",
            Self::Certificates => "certificates",
            Self::Clock => "clock",
            Self::Credentials => "credentials",
            Self::Configuration => "configuration",
            Self::Drift => "drift",
            Self::Descriptors => "descriptors",
        }
    }
}

/// State of a part. A better state is a smaller value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Nothing is to be done.
    Good,
    /// Calls are served, but somebody must look.
    Warning,
    /// Calls cannot be served.
    Failing,
}

impl CheckState {
    /// The word in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Failing => "failing",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// Part that was checked.
    pub name: CheckName,
    /// Its state.
    pub state: CheckState,
    /// The finding in a sentence, for operators only.
    pub message: String,
    /// Remedy; `None` for a good part.
    pub hint: Option<String>,
}

impl HealthCheck {
    /// Creates the result of a part that is as it should be.
    pub fn good(name: CheckName, message: impl Into<String>) -> Self {
        Self { name, state: CheckState::Good, message: message.into(), hint: None }
    }

    /// Creates the result of a part that somebody must look at, while calls are served.
    pub fn warning(name: CheckName, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (message, hint) = (message.into(), Some(hint.into()));
        Self { name, state: CheckState::Warning, message, hint }
    }

    /// Creates the result of a part without which no call can be served.
    pub fn failing(name: CheckName, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { state: CheckState::Failing, ..Self::warning(name, message, hint) }
    }
}

/// Results of all checks of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// The results, in the order of [`CheckName`].
    pub checks: Vec<HealthCheck>,
}

impl HealthReport {
    /// Returns true if calls can be served.
    pub fn is_ready(&self) -> bool {
        self.failing().next().is_none()
    }

    /// Returns the parts without which no call can be served.
    pub fn failing(&self) -> impl Iterator<Item = CheckName> {
        let failing = self.checks.iter().filter(|check| check.state == CheckState::Failing);
        failing.map(|check| check.name)
    }
}
