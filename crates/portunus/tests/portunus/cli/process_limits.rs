//! The program and its process: who may read its files, how many it may open.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Folder, terminate};

/// Starts the program by a shell line before it. Returns it with its address.
fn start(folder: &Folder, first: &str) -> (Child, String) {
    let file = folder.0.join("p.toml");
    let config = if file.exists() { "--config p.toml" } else { "" };
    let script = format!("{first}; exec \"$0\" serve --data data --listen 127.0.0.1:0 {config}");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_portunus")])
        .current_dir(&folder.0)
        .env_clear()
        .env("PORTUNUS_SERVER_LINGER", "0s")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut greeting = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let url = greeting.find_map(|line| Some(line.split_once("http://")?.1.trim().to_owned()));
    // Read to its end, so that the program can write.
    std::thread::spawn(move || greeting.count());
    (child, url.unwrap())
}

fn paths_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => [vec![path.clone()], paths_below(&path)].concat(),
            false => vec![path],
        })
        .collect()
}

fn health(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn only_the_user_of_the_program_may_read_its_files() {
    let folder = Folder::new("hidden");
    let data = folder.0.join("data");
    // A folder of an earlier version.
    std::fs::create_dir_all(&data).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
    let (child, address) = start(&folder, "umask 022");
    assert!(health(&address).starts_with("HTTP/1.1 200"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    let below = paths_below(&data);
    assert!(below.iter().any(|path| path.ends_with("journal")), "{below:?}");
    for path in &below {
        assert_eq!(mode(path) & 0o077, 0, "{}", path.display());
    }
    assert_eq!(terminate(child), Some(0));
    // They can lie outside of the data folder, so their own rights count too.
    let open = |path: &&PathBuf| path.ends_with("files") || path.extension() == Some("db".as_ref());
    let opened: Vec<&PathBuf> = below.iter().filter(open).collect();
    assert_eq!(opened.len(), 2, "{below:?}");
    for path in &opened {
        let bits = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
    }
    let (child, address) = start(&folder, "umask 022");
    assert!(health(&address).starts_with("HTTP/1.1 200"));
    for path in opened {
        assert_eq!(mode(path) & 0o077, 0, "{}", path.display());
    }
    assert_eq!(terminate(child), Some(0));
}

#[test]
fn idle_connections_leave_descriptors_for_the_journal() {
    let folder = Folder::new("descriptors");
    let (child, address) = start(&folder, "ulimit -n 320");
    // 320 less the reserve of 256 is room for 32 callers and their providers.
    let idle: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(address.as_str()).unwrap()).collect();
    let answer = health(&address);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count();
    assert!(open < 200, "{open} descriptors are open");
    drop(idle);
    assert!(super::holds_soon(|| health(&address).starts_with("HTTP/1.1 200")));
    assert_eq!(terminate(child), Some(0));
}

/// A probe at the metrics listener must not depend on the callers of the API.
#[test]
fn idle_connections_leave_the_metrics_listener_alone() {
    let folder = Folder::new("metrics-room");
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!("[server]\nmetrics = \"{free}\"\n");
    std::fs::write(folder.0.join("p.toml"), config).unwrap();
    let (child, address) = start(&folder, "ulimit -n 320");
    let idle: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(address.as_str()).unwrap()).collect();
    assert!(health(&address).starts_with("HTTP/1.1 503"));
    let metrics = free.to_string();
    assert!(health(&metrics).starts_with("HTTP/1.1 200"));
    // It has limits of its own: a probe takes the place of a connection that waits.
    let probes: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(metrics.as_str()).unwrap()).collect();
    assert!(health(&metrics).starts_with("HTTP/1.1 200"));
    drop((idle, probes));
    assert!(super::holds_soon(|| health(&address).starts_with("HTTP/1.1 200")));
    assert_eq!(terminate(child), Some(0));
}

#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let folder = Folder::new("soft-limit");
    let (child, address) = start(&folder, "ulimit -S -n 300");
    let idle: Vec<TcpStream> =
        (0..350).map(|_| TcpStream::connect(address.as_str()).unwrap()).collect();
    assert!(health(&address).starts_with("HTTP/1.1 200"));
    drop(idle);
    assert_eq!(terminate(child), Some(0));
}
