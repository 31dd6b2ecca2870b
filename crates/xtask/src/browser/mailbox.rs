//! A real mail server that keeps what it is sent in a folder, and somebody who reads it.

use std::collections::HashSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::process::Running;

const PATIENCE: Duration = Duration::from_secs(30);

/// A mail server with its mails.
pub(crate) struct Mailbox {
    folder: PathBuf,
    read: HashSet<PathBuf>,
    _running: Running,
}

impl Mailbox {
    /// Starts the server.
    pub(crate) fn start(python: &Path, address: SocketAddr, folder: &Path) -> Result<Self> {
        let mails = folder.join("mails");
        let mut command = Command::new(python);
        command.args(["-m", "aiosmtpd", "-n", "-l", &address.to_string()]);
        command.args(["-c", "aiosmtpd.handlers.Mailbox"]).arg(&mails);
        let mut running = Running::start("aiosmtpd", &mut command, &folder.join("mail.log"))?;
        running.wait_until(PATIENCE, || TcpStream::connect(address).is_ok())?;
        Ok(Self { folder: mails, read: HashSet::new(), _running: running })
    }

    /// The link in the next mail to an address: both parts of the mail must have it.
    pub(crate) fn link(&mut self, to: &str) -> Result<String> {
        let begin = Instant::now();
        loop {
            for entry in fs::read_dir(self.folder.join("new")).into_iter().flatten().flatten() {
                let path = entry.path();
                let mail = fs::read_to_string(&path)?;
                let ours = mail.lines().any(|line| line.trim() == format!("To: {to}"));
                if !ours || !self.read.insert(path) {
                    continue;
                }
                // Long lines are cut, and the equals sign is the knife.
                let plain = mail.replace("=\r\n", "").replace("=\n", "").replace("=3D", "=");
                let links: Vec<&str> = plain
                    .match_indices("http://localhost:")
                    .filter_map(|(at, _)| plain.get(at..))
                    .filter_map(|rest| rest.split(['"', '<', '\r', '\n', ' ']).next())
                    .filter(|link| link.contains("/link/"))
                    .collect();
                let Some(first) = links.first() else { continue };
                ensure!(links.len() >= 2, "a link is missing in one part of\n{plain}");
                ensure!(links.iter().all(|link| link == first), "two links in\n{plain}");
                return Ok((*first).to_owned());
            }
            if begin.elapsed() > PATIENCE {
                bail!("no mail with a link came to {to}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
