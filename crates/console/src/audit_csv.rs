//! The audit log as CSV, for the page and the command line.

use std::collections::HashMap;

use admin::AuditEntry;
use canon::Micros;

use crate::csv::csv_line;

/// Columns of the export.
const CSV_COLUMNS: [&str; 10] = [
    "at",
    "actor",
    "actor_id",
    "action",
    "subject",
    "subject_id",
    "detail",
    "key_id",
    "address",
    "agent",
];

/// The first line of the export.
pub fn audit_csv_header() -> String {
    csv_line(CSV_COLUMNS)
}

/// One change as a line of the export. `names` has the names of accounts and keys by id.
pub fn audit_csv_line(change: &AuditEntry, names: &HashMap<String, String>) -> String {
    let AuditEntry { at, actor, action, subject, detail, key_id, address, agent } = change;
    csv_line([
        &export_time(*at),
        display_name(names, actor),
        actor,
        action,
        display_name(names, subject),
        subject,
        detail,
        key_id.as_deref().unwrap_or_default(),
        address.as_deref().unwrap_or_default(),
        agent.as_deref().unwrap_or_default(),
    ])
}

/// Name of an account or key, or else its id.
pub(crate) fn display_name<'a>(names: &'a HashMap<String, String>, id: &'a str) -> &'a str {
    names.get(id).map_or(id, String::as_str)
}

/// A time for the export; empty if it lies outside the calendar.
fn export_time(at: Micros) -> String {
    jiff::Timestamp::from_microsecond(at.get()).map(|at| at.to_string()).unwrap_or_default()
}
