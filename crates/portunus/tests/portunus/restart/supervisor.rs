//! systemd: sockets that it passes, and the news it wants to hear.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{Site, free_address, readiness};

/// Longer than any news takes.
const DEADLINE: Duration = Duration::from_secs(60);

struct Manager {
    messages: mpsc::Receiver<String>,
    path: String,
}

impl Manager {
    /// Listens and reads all the time, as a service manager does: the kernel keeps ten messages, and a program
    /// waits for room for the next one.
    fn new(site: &Site) -> Self {
        let path = site.folder.join("notify").display().to_string();
        let socket = UnixDatagram::bind(&path).unwrap();
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1_024];
            while let Ok(length) = socket.recv(&mut bytes) {
                let message = String::from_utf8(bytes[..length].to_vec()).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { messages, path }
    }

    /// Waits for a message with that line, and returns it.
    fn wait_for(&self, line: &str) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let message = self.receive(line, end);
            if message.lines().any(|one| one == line) {
                return message;
            }
        }
    }

    fn receive(&self, awaited: &str, end: Instant) -> String {
        let left = end.saturating_duration_since(Instant::now());
        let message = self.messages.recv_timeout(left).ok().filter(|_| !left.is_zero());
        message.unwrap_or_else(|| panic!("no {awaited} within {DEADLINE:?}"))
    }

    /// Hangs up until the reload is told. A hangup in the moment of the start is too early for one.
    fn wait_for_reload(&self, hang_up: impl Fn()) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            hang_up();
            for _ in 0..20 {
                let message = self.receive("RELOADING=1", end);
                if message.lines().any(|one| one == "RELOADING=1") {
                    return message;
                }
            }
        }
    }

    fn program(&self, site: &Site) -> Command {
        let mut command = site.program("data");
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "200000");
        command
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_hears_of_every_state() {
    let site = Site::new("0s", "").await;
    let manager = Manager::new(&site);
    let old = site.start_command(manager.program(&site), &free_address(), &[]);
    manager.wait_for("READY=1");
    manager.wait_for("WATCHDOG=1");
    let reloading = manager.wait_for_reload(|| old.signal("-HUP"));
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.wait_for("READY=1");
    std::fs::write(site.folder.join("p.toml"), "[server]\nlisten = 7\n").unwrap();
    manager.wait_for_reload(|| old.signal("-HUP"));
    manager.wait_for("READY=1");
    std::fs::write(site.folder.join("p.toml"), "[server]\nlinger = \"0s\"\n").unwrap();
    let new = site.start_command(manager.program(&site), &old.address.clone(), &["--take-over"]);
    manager.wait_for(&format!("MAINPID={}", new.id()));
    manager.wait_for("READY=1");
    assert_eq!(old.ended().await, Some(0));
    new.signal("-TERM");
    // The end of the old process is not the end of the service.
    manager.wait_for("STOPPING=1");
    assert_eq!(new.ended().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_manager_that_does_not_read_stops_nothing() {
    let site = Site::new("0s", "").await;
    let path = site.folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    // The kernel takes no message more.
    let full = UnixDatagram::unbound().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.send_to(b"STATUS=full", &path).is_ok() {}
    let program = || {
        let mut command = site.program("data");
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "20000");
        command
    };
    let old = site.start_command(program(), &free_address(), &[]);
    for _ in 0..200 {
        assert_eq!(readiness(&old.address).await, Some(200));
    }
    old.signal("-HUP");
    let new = site.start_command(program(), &old.address.clone(), &["--take-over"]);
    assert_eq!(old.ended().await, Some(0));
    assert_eq!(readiness(&new.address).await, Some(200));
    new.signal("-TERM");
    assert_eq!(new.ended().await, Some(0));
    assert!(site.log().contains("does not read its socket"), "{}", site.log());
    drop(socket);
}

/// Passes the socket as descriptor 3, as a service manager does.
fn activated(site: &Site, socket: &TcpListener) -> Command {
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    let program = site.program("data");
    let mut command = Command::new("sh");
    command.current_dir(&site.folder).env_clear().args(["-c", script]);
    command.arg(program.get_program()).args(program.get_args());
    command.stdin(Stdio::from(OwnedFd::from(socket.try_clone().unwrap())));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passed_socket_is_served_and_keeps_connections_between_two_processes() {
    let site = Site::new("0s", "").await;
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    // The service manager chooses the address.
    let first = site.start_command(activated(&site, &socket), &free_address(), &[]);
    assert_eq!(readiness(&address).await, Some(200));
    first.signal("-TERM");
    assert_eq!(first.ended().await, Some(0));
    let waiting = tokio::spawn({
        let address = address.clone();
        async move { readiness(&address).await }
    });
    let second = site.start_command(activated(&site, &socket), &free_address(), &[]);
    assert_eq!(waiting.await.unwrap(), Some(200));
    // A successor gets it too, and leaves it as it is.
    let third = site.start("data", &free_address(), &["--take-over"]);
    assert_eq!(second.ended().await, Some(0));
    assert_eq!(readiness(&address).await, Some(200));
    third.signal("-TERM");
    assert_eq!(third.ended().await, Some(0));
    let fourth = site.start_command(activated(&site, &socket), &free_address(), &[]);
    assert_eq!(readiness(&address).await, Some(200));
    drop(fourth);
}
