//! A mail server that stores mails in a folder, and a reader for them.

use std::collections::HashSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::process::ChildServer;

const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// A mail server with its mails.
pub(crate) struct Mailbox {
    folder: PathBuf,
    read: HashSet<PathBuf>,
    _running: ChildServer,
}

impl Mailbox {
    /// Starts the server.
    pub(crate) fn start(python: &Path, address: SocketAddr, folder: &Path) -> Result<Self> {
        let mails = folder.join("mails");
        let mut command = Command::new(python);
        command.args(["-m", "aiosmtpd", "-n", "-l", &address.to_string()]);
        command.args(["-c", "aiosmtpd.handlers.Mailbox"]).arg(&mails);
        let mut running = ChildServer::start("aiosmtpd", &mut command, &folder.join("mail.log"))?;
        running.wait_until(PAGE_TIMEOUT, || TcpStream::connect(address).is_ok())?;
        Ok(Self { folder: mails, read: HashSet::new(), _running: running })
    }

    /// Returns the link in the next mail to an address. Both parts of the mail must contain it.
    pub(crate) fn link(&mut self, to: &str) -> Result<String> {
        self.find(to, |plain| {
            let links: Vec<&str> = plain
                .match_indices("http://localhost:")
                .filter_map(|(at, _)| plain.get(at..))
                .filter_map(|rest| rest.split(['"', '<', '\r', '\n', ' ']).next())
                .filter(|link| link.contains("/link/"))
                .collect();
            let Some(first) = links.first() else { return Ok(None) };
            ensure!(links.len() >= 2, "a link is missing in one part of\n{plain}");
            ensure!(links.iter().all(|link| link == first), "two links in\n{plain}");
            Ok(Some((*first).to_owned()))
        })
    }

    /// Waits for a mail to an address with this text in both parts.
    pub(crate) fn mail_with(&mut self, to: &str, text: &str) -> Result<()> {
        self.find(to, |plain| {
            let count = plain.matches(text).count();
            ensure!(count == 0 || count >= 2, "the text is missing in one part of\n{plain}");
            Ok((count > 0).then_some(()))
        })
    }

    /// Waits for an unread mail to an address in which something is found.
    fn find<T>(&mut self, to: &str, look: impl Fn(&str) -> Result<Option<T>>) -> Result<T> {
        let begin = Instant::now();
        loop {
            for entry in fs::read_dir(self.folder.join("new")).into_iter().flatten().flatten() {
                let path = entry.path();
                let mail = fs::read_to_string(&path)?;
                let ours = mail.lines().any(|line| line.trim() == format!("To: {to}"));
                if !ours || !self.read.insert(path) {
                    continue;
                }
                // Quoted-printable breaks long lines with an equals sign (RFC 2045, section 6.7).
                let plain = mail.replace("=\r\n", "").replace("=\n", "").replace("=3D", "=");
                if let Some(found) = look(&plain)? {
                    return Ok(found);
                }
            }
            if begin.elapsed() > PAGE_TIMEOUT {
                bail!("the mail to {to} did not come");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
