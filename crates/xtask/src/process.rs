//! Child processes for the duration of a test or a measurement. Each writes to a log of its own and
//! ends when its value is dropped.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Timeout of a server to end after a signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server. Dropping it stops it.
pub(crate) struct ChildServer {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Signal that stops a server.
#[derive(Clone, Copy)]
pub(crate) enum Signal {
    /// SIGTERM.
    Term,
    /// SIGINT: PostgreSQL's fast shutdown, without waiting for clients.
    Int,
}

impl ChildServer {
    /// Starts a server with its output in `log`.
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

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` returns true. Fails if the server ends before that or the limit expires.
    pub(crate) fn wait_until(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once: {status}\n{}", self.name, self.log_tail());
            }
            if begin.elapsed() > limit {
                bail!("{} is not ready after {limit:?}\n{}", self.name, self.log_tail());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Stops the server and waits for its end. A server that does not end is killed, which is an
    /// error.
    pub(crate) fn stop(mut self, signal: Signal) -> Result<ExitStatus> {
        self.end(signal)
    }

    /// Returns the exit status if the server has ended.
    pub(crate) fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Returns the complete log.
    pub(crate) fn log_text(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))
    }

    /// Returns the end of the log, for error messages.
    pub(crate) fn log_tail(&self) -> String {
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
        // The shell's built-in `kill`: not every system has a program of that name.
        let id = self.id().to_string();
        Command::new("sh").args(["-c", "kill \"$0\" \"$1\"", signal, &id]).status()?;
        let begin = Instant::now();
        while begin.elapsed() < STOP_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("{} did not end within {STOP_TIMEOUT:?}\n{}", self.name, self.log_tail())
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        if let Err(error) = self.end(Signal::Term) {
            println!("{error:#}");
        }
    }
}

/// A temporary folder that is removed on drop.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates an empty folder in the system's temporary folder.
    pub(crate) fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("portunus-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!("could not remove {}: {error}", self.0.display());
        }
    }
}

/// Kills a group of processes; none may be left of it.
pub(crate) fn kill_group(id: u32) -> Result<()> {
    // The shell's built-in `kill`. The one of dash takes a group only behind `-s KILL --`.
    let kill = "kill -s KILL -- \"-$0\" 2>/dev/null || ! kill -s 0 -- \"-$0\" 2>/dev/null";
    let ended = Command::new("sh").args(["-c", kill, &id.to_string()]).status()?;
    ensure!(ended.success(), "the group of processes {id} cannot be killed");
    Ok(())
}

/// Returns a free port. Another process could take it first, but the kernel hands out ports in
/// turn, so that this does not happen in practice.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;

    #[test]
    fn a_server_ends_when_asked_and_its_folder_goes() {
        let folder = TempFolder::new("process").unwrap();
        let path = folder.path().to_path_buf();
        let mut command = Command::new("sleep");
        let sleep = ChildServer::start("sleep", command.arg("60"), &path.join("log")).unwrap();
        assert!(!sleep.stop(Signal::Term).unwrap().success());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_group_is_killed_with_those_that_its_first_process_left() {
        let folder = TempFolder::new("group").unwrap();
        let path = folder.path().join("left");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $! >\"$0\""]).arg(&path).process_group(0);
        let mut first = command.spawn().unwrap();
        first.wait().unwrap();
        let left = fs::read_to_string(&path).unwrap();
        let stat = Path::new("/proc").join(left.trim()).join("stat");
        // A zombie, if nobody waits for it.
        let runs = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        assert!(runs());
        kill_group(first.id()).unwrap();
        let begin = Instant::now();
        while runs() {
            assert!(begin.elapsed() < STOP_TIMEOUT, "it still runs");
            thread::sleep(Duration::from_millis(1));
        }
        kill_group(first.id()).unwrap();
    }

    #[test]
    fn a_server_that_ends_early_leaves_its_last_words() {
        let folder = TempFolder::new("process").unwrap();
        let mut command = Command::new("sh");
        let command = command.args(["-c", "echo unknown option; exit 3"]);
        let mut server = ChildServer::start("server", command, &folder.path().join("log")).unwrap();
        let error = server.wait_until(Duration::from_secs(10), || false).unwrap_err();
        assert!(error.to_string().contains("unknown option"), "{error}");
    }
}
