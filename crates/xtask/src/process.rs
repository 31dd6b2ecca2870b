//! Servers started for the length of a test or a measurement: each writes to a log of its own and
//! ends with the value that stands for it, whatever happens in between.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a server may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. Dropping it ends it.
pub(crate) struct Running {
    name: String,
    child: Child,
    log: PathBuf,
}

/// How a server is asked to end.
#[derive(Clone, Copy)]
pub(crate) enum Signal {
    /// The usual request.
    Term,
    /// What PostgreSQL takes for "now, without waiting for clients".
    Int,
}

impl Running {
    /// Starts a server; what it prints goes to `log`.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { name: name.into(), child, log: log.into() })
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` says so; fails when the server ends before that, or takes too long.
    pub(crate) fn wait_until(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once: {status}\n{}", self.name, self.last_words());
            }
            if begin.elapsed() > limit {
                bail!("{} is not ready after {limit:?}\n{}", self.name, self.last_words());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Asks the server to end and waits for it; one that does not is killed and counts as failed.
    pub(crate) fn stop(mut self, signal: Signal) -> Result<ExitStatus> {
        self.end(signal)
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// All it printed.
    pub(crate) fn said(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))
    }

    /// The end of the log, for whoever has to find out what went wrong.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default();
        tail.iter().map(|line| format!("    {line}\n")).collect()
    }

    fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        let signal = match signal {
            Signal::Term => "-TERM",
            Signal::Int => "-INT",
        };
        // The shell's own `kill`: there is not always a program of that name.
        let id = self.id().to_string();
        Command::new("sh").args(["-c", "kill \"$0\" \"$1\"", signal, &id]).status()?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("{} did not end within {PATIENCE:?}\n{}", self.name, self.last_words())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.end(Signal::Term) {
            println!("{error:#}");
        }
    }
}

/// A folder that goes when the value goes.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new empty folder under the system's folder for such things.
    pub(crate) fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("portunus-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!("could not remove {}: {error}", self.0.display());
        }
    }
}

/// A port nobody listens on. Another process could take it before it is used, but ports are
/// handed out in turn, so that does not happen within the moment it takes.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_ends_when_asked_and_its_folder_goes() {
        let folder = Scratch::new("process").unwrap();
        let path = folder.path().to_path_buf();
        let mut command = Command::new("sleep");
        let sleep = Running::start("sleep", command.arg("60"), &path.join("log")).unwrap();
        assert!(!sleep.stop(Signal::Term).unwrap().success());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_server_that_ends_early_leaves_its_last_words() {
        let folder = Scratch::new("process").unwrap();
        let mut command = Command::new("sh");
        let command = command.args(["-c", "echo no such door; exit 3"]);
        let mut door = Running::start("door", command, &folder.path().join("log")).unwrap();
        let error = door.wait_until(Duration::from_secs(10), || false).unwrap_err();
        assert!(error.to_string().contains("no such door"), "{error}");
    }
}
