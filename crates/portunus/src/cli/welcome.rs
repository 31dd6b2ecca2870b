//! The greeting of a start: addresses, and at the first start a key and a link to set up the console.
//!
//! Both are secrets, and standard output often ends in a log that many may read. So they are printed only to
//! a terminal, or to the program that started this one and reads its output. With JSON logs, and below
//! systemd, they are written to a file of the data folder instead, and a log line names the file.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use super::logs;
use super::output::print_text;
use crate::app::{App, FirstStart};
use crate::private_file;

/// File in the data folder with the secrets of the first start.
const SECRETS_FILE: &str = "first-start.txt";
/// Variable in which systemd names the stream that it reads into its journal:
/// <https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#%24JOURNAL_STREAM>.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// Greets on standard output, or in the log if that is read by others.
pub(super) fn greet(app: &App, link: Option<&str>, first: Option<&FirstStart>) {
    let text = greeting(app, link, first);
    if may_print(logs::is_json(), io::stdout().is_terminal(), is_journal()) {
        print_text(format!("{text}\n"));
        return;
    }
    let config = app.config();
    let (version, models) = (env!("CARGO_PKG_VERSION"), config.catalog.len());
    let api = config.public_url.as_str();
    tracing::info!(version, models, api, "Portunus {version} serves {models} models at {api}");
    if first.is_none() && link.is_none() {
        return;
    }
    let file = config.data_folder.join(SECRETS_FILE);
    match save(&file, &text, first.is_some()) {
        Ok(()) => tracing::info!(
            file = %file.display(),
            "the first key or the set-up link is in {}; delete the file when you have read it",
            file.display()
        ),
        // The key would be shown to nobody, and is worth nothing then.
        Err(e) => tracing::error!(
            file = %file.display(),
            "the first key or the set-up link could not be written to {}: {e}; make a key with \
             `portunus keys create`, and an owner with `portunus users create`",
            file.display()
        ),
    }
}

/// Returns true if the greeting goes to standard output.
const fn may_print(has_json_logs: bool, is_terminal: bool, is_journal: bool) -> bool {
    is_terminal || (!has_json_logs && !is_journal)
}

/// Returns true if systemd reads standard output into its journal.
fn is_journal() -> bool {
    let Ok(named) = std::env::var(JOURNAL_VARIABLE) else { return false };
    let found = rustix::fs::fstat(io::stdout().as_fd());
    found.is_ok_and(|found| named == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Writes the secrets for the owner of the process alone. Without a new key, a file that is there stays: it may
/// have the first key.
fn save(file: &Path, text: &str, is_new: bool) -> io::Result<()> {
    if !is_new && file.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return Ok(());
    }
    private_file::replace(file, &format!("{text}\n"))
}

fn greeting(app: &App, link: Option<&str>, first: Option<&FirstStart>) -> String {
    let config = app.config();
    let address = &config.public_url;
    let (version, models) = (env!("CARGO_PKG_VERSION"), config.catalog.len());
    let console = match link {
        Some(link) => format!("{link}   (one-time set-up link)"),
        None => format!("{address}/console"),
    };
    let head = format!(
        "Portunus {version} serves {models} models\n\n  API      {address}\n  Console  {console}\n"
    );
    let Some(FirstStart { key }) = first else {
        return format!("{head}\nMake a key with: portunus keys create --name NAME --unlimited\n");
    };
    format!(
        "{head}  Key      {key}   (shown only this once)\n\nTry it:\n\n  \
         curl {address}/v1/chat/completions \\\n    -H 'Authorization: Bearer {key}' \\\n    \
         -H 'Content-Type: application/json' \\\n    \
         -d '{{\"model\":\"demo-chat\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello!\"}}]}}'\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn secrets_are_printed_to_terminals_and_to_those_who_read_a_pipe() {
        for (json, terminal, journal, prints) in [
            (false, true, false, true),
            (true, true, false, true),
            (false, false, false, true),
            (true, false, false, false),
            (false, false, true, false),
            (true, false, true, false),
        ] {
            assert_eq!(may_print(json, terminal, journal), prints, "{json} {terminal} {journal}");
        }
    }

    #[test]
    fn a_later_start_leaves_the_file_of_the_first_one() {
        let folder = std::env::temp_dir().join(format!("portunus-welcome-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(SECRETS_FILE);
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        save(&file, "only a link", false).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        save(&file, "a new key", true).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a new key\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // A link is replaced, and its target stays as it is.
        let elsewhere = folder.join("elsewhere");
        std::fs::write(&elsewhere, "precious").unwrap();
        for is_new in [true, false] {
            std::fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
            save(&file, "a secret", is_new).unwrap();
            assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "precious");
            assert!(std::fs::symlink_metadata(&file).unwrap().is_file());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
