//! The program while nobody reads its output.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::process::{Child, Command, Stdio};

use super::{Folder, holds_soon, program};

/// Bytes that a pipe takes before its writer waits
/// (<https://man7.org/linux/man-pages/man7/pipe.7.html>).
const PIPE_BYTES: usize = 65_536;

/// Makes a pipe that is full. Its reader reads nothing.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; PIPE_BYTES]).unwrap();
    (reader, writer)
}

/// Returns true once the program serves: its database is there and its port answers.
fn serves(folder: &Folder, port: u16) -> bool {
    let probe = format!("http://127.0.0.1:{port}/readyz");
    let asked = Command::new("curl").args(["-s", "-o", "/dev/null", "-f", &probe]).status();
    folder.0.join("data").exists() && asked.unwrap().success()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends a signal, and waits for the end of the program.
fn end(mut child: Child) -> Option<i32> {
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let mut code = None;
    let ended = holds_soon_mut(|| {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    if !ended {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("the signal does not end it");
    }
    code.unwrap().code()
}

fn holds_soon_mut(condition: impl FnMut() -> bool) -> bool {
    let condition = std::cell::RefCell::new(condition);
    holds_soon(|| (condition.borrow_mut())())
}

#[test]
fn it_starts_and_ends_while_nobody_reads_its_output() {
    let folder = Folder::new("unread");
    for [stdout_is_full, stderr_is_full] in [[true, true], [false, true], [true, false]] {
        let (_out, out) = full_pipe();
        let (_err, err) = full_pipe();
        let port = free_port();
        let child = program(&folder)
            .args(["serve", "--listen", &format!("127.0.0.1:{port}")])
            .env("PORTUNUS_LOG", "trace")
            .stdout(if stdout_is_full { Stdio::from(out) } else { Stdio::null() })
            .stderr(if stderr_is_full { Stdio::from(err) } else { Stdio::null() })
            .spawn()
            .unwrap();
        assert!(holds_soon(|| serves(&folder, port)), "{stdout_is_full} {stderr_is_full}");
        assert_eq!(end(child), Some(0), "{stdout_is_full} {stderr_is_full}");
    }
}

#[test]
fn it_ends_after_its_output_was_closed() {
    let folder = Folder::new("closed");
    let port = free_port();
    let script = format!("exec \"$0\" serve --listen 127.0.0.1:{port} >&- 2>&- <&-");
    let mut shell = Command::new("sh");
    let child = shell
        .args(["-c", &script, env!("CARGO_BIN_EXE_portunus")])
        .current_dir(&folder.0)
        .env_clear()
        .spawn()
        .unwrap();
    assert!(holds_soon(|| serves(&folder, port)));
    assert_eq!(end(child), Some(0));
}
