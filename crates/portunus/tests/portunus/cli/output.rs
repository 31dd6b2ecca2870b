//! The program while nobody reads its output.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::process::{Child, Command, Output, Stdio};

use super::{Folder, fails, holds_soon, program};

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

/// Runs a command whose standard output is a full disk.
fn run_on_full_disk(folder: &Folder, arguments: &[&str]) -> Output {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    program(folder).args(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn every_command_fails_when_its_output_is_lost() {
    let folder = Folder::new("lost-output");
    let made = folder.json(&["keys", "create", "--name", "a", "--unlimited", "--json"]);
    let id = made["id"].as_str().unwrap();
    let commands: [&[&str]; 21] = [
        &["check", "--offline"],
        &["doctor", "--offline"],
        &["keys", "list"],
        &["keys", "account"],
        &["keys", "set", id, "--name", "b"],
        &["users", "list"],
        &["scim", "token", "list"],
        &["models"],
        &["agents"],
        &["directory", "show"],
        &["ledger", "verify"],
        &["ledger", "verify", "--json"],
        &["ledger", "export", "--format", "csv"],
        &["archive", "verify"],
        &["audit"],
        &["migrate"],
        &["migrate", "--check"],
        &["schema"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ];
    for arguments in commands {
        let seen = folder.run(arguments);
        if seen.stdout.is_empty() {
            panic!("{arguments:?} prints nothing: {seen:?}");
        }
        let lost = run_on_full_disk(&folder, arguments);
        fails(&lost, 1, "standard output cannot be written: No space left");
        assert_closed_pipe_is_no_error(&folder, arguments, seen.status.code());
    }
}

/// A reader that has seen enough closes the pipe.
fn assert_closed_pipe_is_no_error(folder: &Folder, arguments: &[&str], code: Option<i32>) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = program(folder).args(arguments).stdout(writer).stderr(Stdio::piped()).output();
    let output = output.unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (code, 0), "{arguments:?}: {output:?}");
}

#[test]
fn a_secret_that_nobody_saw_is_named() {
    let folder = Folder::new("lost-secret");
    let lost = |arguments: &[&str]| {
        let output = run_on_full_disk(&folder, arguments);
        fails(&output, 1, "standard output cannot be written");
        String::from_utf8(output.stderr).unwrap()
    };
    for more in [None, Some("--json")] {
        let create = ["keys", "create", "--name", "unseen", "--unlimited"];
        let said = lost(&[&create[..], more.as_slice()].concat());
        let id = said.split("`portunus keys revoke ").nth(1).unwrap().split('`').next().unwrap();
        assert!(folder.run(&["keys", "revoke", id]).status.success(), "{said}");
    }
    let made = folder.json(&["keys", "create", "--name", "a", "--unlimited", "--json"]);
    let id = made["id"].as_str().unwrap();
    assert!(lost(&["keys", "rotate", id]).contains(&format!("the key {id} has a new value")));
    let said = lost(&["users", "create", "anna"]);
    assert!(said.contains("`portunus users reset-password anna`"), "{said}");
    let said = lost(&["users", "reset-password", "anna"]);
    assert!(said.contains("make another"), "{said}");
    let said = lost(&["users", "invite"]);
    assert!(said.contains("make another"), "{said}");
}

#[test]
fn an_export_to_a_full_disk_fails() {
    let folder = Folder::new("cut-export");
    let (child, greeting) = super::serve(&folder, "127.0.0.1:0");
    let curl = greeting.split_once("Try it:").unwrap().1.trim().to_owned();
    let called = Command::new("sh").args(["-c", &format!("{curl} -s -S")]).output().unwrap();
    assert!(called.status.success(), "{called:?}");
    assert_eq!(super::terminate(child), Some(0));
    for arguments in [&["ledger", "export"][..], &["ledger", "export", "--format", "csv"]] {
        assert!(!folder.run(arguments).stdout.is_empty(), "{arguments:?}");
        let lost = run_on_full_disk(&folder, arguments);
        fails(&lost, 1, "standard output cannot be written: No space left");
        assert_closed_pipe_is_no_error(&folder, arguments, Some(0));
    }
}
