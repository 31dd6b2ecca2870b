//! The Debian package under a systemd of its own, which boots in a container. The root of the container is
//! this machine's, with a layer over it that vanishes.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::succeed;
use crate::dist::VERSION;
use crate::gateway::free_address;
use crate::http::{self, Client};
use crate::process::{ChildServer, Signal};
use crate::tools::{apt, find};

/// Timeout of the boot, and of a restart by the watchdog.
const SYSTEMD_TIMEOUT: Duration = Duration::from_secs(60);
/// Mounts the layer and boots. `$0` is an empty folder.
const BOOT: &str = "mount -t tmpfs none \"$0\" && mkdir \"$0/upper\" \"$0/work\" \"$0/root\" && mount -t overlay \
     none -o \"lowerdir=/,upperdir=$0/upper,workdir=$0/work\" \"$0/root\" && exec systemd-nspawn --quiet \
     --directory \"$0/root\" --register=no --keep-unit --boot -- systemd.unit=basic.target";

/// A booted system.
struct BootedSystem {
    container: ChildServer,
    /// Its first process, as this machine numbers it.
    first_process: String,
}

impl BootedSystem {
    fn boot(scratch: &Path) -> Result<Self> {
        let folder = scratch.join("system");
        fs::create_dir_all(&folder)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", BOOT]).arg(folder);
        let log = scratch.join("system.log");
        let mut container = ChildServer::start("systemd in a container", &mut command, &log)?;
        let id = container.id();
        let children = PathBuf::from(format!("/proc/{id}/task/{id}/children"));
        let mut first_process = String::new();
        container.wait_until(SYSTEMD_TIMEOUT, || {
            let found = fs::read_to_string(&children).unwrap_or_default();
            first_process = found.split_whitespace().next().unwrap_or_default().to_owned();
            let inside = |arguments: &[&str]| Command::new("nsenter").args(arguments).output();
            let target = ["--all", "--target", &first_process, "systemctl", "is-active", "-q"];
            // A process of the container's builder has not entered all namespaces yet.
            let output = inside(&[&target[..], &["basic.target"]].concat());
            thread::sleep(Duration::from_millis(200));
            !first_process.is_empty() && output.is_ok_and(|output| output.status.success())
        })?;
        Ok(Self { container, first_process })
    }

    /// Runs a command inside and returns its output.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.first_process]).args(arguments);
        let output = succeed(command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns the path of a file inside.
    fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/{path}", self.first_process))
    }

    /// Writes a file inside, with the folders above it.
    fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.file(path);
        fs::create_dir_all(file.parent().context("a file without a folder")?)?;
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    }

    fn property(&self, name: &str) -> Result<String> {
        self.run(&["systemctl", "show", "--value", "--property", name, "portunus.service"])
    }
}

/// Installs the package, whose program is a stand-in, and tries its units with the real one.
pub(super) fn run(scratch: &Path, packages: &Path, binary: &Path) -> Result<()> {
    if find("systemd-nspawn").is_none() {
        apt("systemd-container")?;
    }
    let system = BootedSystem::boot(scratch)?;
    let package = format!("portunus_{VERSION}_amd64.deb");
    fs::copy(packages.join(&package), system.file(&format!("opt/{package}")))?;
    system.run(&["dpkg", "--install", &format!("/opt/{package}")])?;
    fs::copy(binary, system.file("usr/bin/portunus"))?;
    let address = free_address()?;
    system.write("etc/portunus/portunus.toml", &format!("[server]\nlisten = \"{address}\"\n"))?;
    let socket = format!("[Socket]\nListenStream=\nListenStream={address}\n");
    system.write("etc/systemd/system/portunus.socket.d/address.conf", &socket)?;
    // The usual times would only make the test longer.
    let service = "[Service]\nWatchdogSec=5s\nEnvironment=PORTUNUS_SERVER_LINGER=500ms\n";
    system.write("etc/systemd/system/portunus.service.d/times.conf", service)?;
    system.run(&["systemctl", "daemon-reload"])?;
    system.run(&["systemctl", "start", "portunus.socket"])?;
    ensure!(system.property("ActiveState")? == "inactive", "the service runs before a call");
    // The connection waits at the socket until the service has started.
    ensure!(http::status(address, "/readyz") == Some(200), "no call starts the service");
    ensure!(system.property("ActiveState")? == "active", "a call does not start the service");
    restart_under_load(&system, address)?;
    hang(&system, address)?;
    system.run(&["systemctl", "stop", "portunus.socket", "portunus.service"])?;
    ensure!(system.property("Result")? == "success", "the service did not end well");
    system.run(&["dpkg", "--purge", "portunus"])?;
    ensure!(system.file("var/lib/portunus/first-start.txt").is_file(), "purge took the data");
    let BootedSystem { container, .. } = system;
    container.stop(Signal::Term)?;
    Ok(())
}

/// Restarts the service twice. No call fails.
fn restart_under_load(system: &BootedSystem, address: SocketAddr) -> Result<()> {
    let welcome = fs::read_to_string(system.file("var/lib/portunus/first-start.txt"))?;
    let key = welcome.split_whitespace().find(|word| word.starts_with("sk-pt-"));
    let key = key.context("the first start gave no key")?;
    let body = r#"{"model":"demo-chat","messages":[{"role":"user","content":"Hello!"}]}"#;
    let request = http::post(address, "/v1/chat/completions", key, body);
    let call = || -> Result<()> {
        let mut answer = Vec::new();
        let status = Client::open(address)?.exchange(&request, &mut answer)?.status;
        ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    };
    call()?;
    let is_done = AtomicBool::new(false);
    let calls = AtomicU32::new(0);
    let work = || -> Result<()> {
        while !is_done.load(Ordering::Relaxed) {
            call()?;
            calls.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let restart = || -> Result<()> {
        for _ in 0..2 {
            let before = calls.load(Ordering::Relaxed);
            system.run(&["systemctl", "restart", "portunus.service"])?;
            ensure!(calls.load(Ordering::Relaxed) > before, "no call ran during the restart");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers = [0; 4].map(|_| scope.spawn(work));
        let restarted = restart();
        is_done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().ok().context("a thread panicked")??;
        }
        restarted
    })?;
    println!("{} calls during two restarts, none failed", calls.load(Ordering::Relaxed));
    Ok(())
}

/// Stops the process. The watchdog ends it, and a call that waits is answered by its successor.
fn hang(system: &BootedSystem, address: SocketAddr) -> Result<()> {
    let before = system.property("MainPID")?;
    system.run(&["systemctl", "kill", "--signal=STOP", "portunus.service"])?;
    ensure!(http::status(address, "/readyz") == Some(200), "the watchdog brings nothing back");
    ensure!(system.property("MainPID")? != before, "the process was not replaced");
    let journal = system.run(&["journalctl", "--unit=portunus", "--no-pager"])?;
    ensure!(journal.contains("Failed with result 'watchdog'"), "{journal}");
    Ok(())
}
