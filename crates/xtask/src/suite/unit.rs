//! Every test in Rust. One PostgreSQL serves all of them. Valkey, S3 server, nginx and Pebble
//! are started and broken by the tests that need them.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::postgres::Postgres;
use crate::{tools, workspace};

/// Time after which the tests are ended, because one of them never ends. They take about 13 minutes, and as long again
/// to build if nothing is built.
const MAX_TIME: Duration = Duration::from_secs(35 * 60);
/// Time to wait for the end of the output after `cargo test` has ended.
const LAST_OUTPUT_TIME: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the tests, with these arguments for `cargo test`.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let valkey = tools::valkey()?;
    let python = tools::python("s3", &workspace::root().join("tests/s3/requirements.txt"))?;
    let nginx = tools::nginx()?;
    let pebble = tools::pebble()?;
    let postgres = Postgres::start()?;
    let processors = thread::available_parallelism()?.get();
    let mut tests = tools::cargo_test()?;
    tests
        .arg("--no-fail-fast")
        .args(arguments)
        // A snapshot that is missing or differs fails; it is never written here.
        .env("INSTA_UPDATE", "no")
        // Many tests wait: for a process, a timeout, a lease.
        .env("RUST_TEST_THREADS", (processors + 1).to_string())
        .env("PORTUNUS_TEST_POSTGRES", &postgres.url)
        .env("PORTUNUS_TEST_VALKEY", &valkey)
        .env("PORTUNUS_TEST_S3", python.with_file_name("moto_server"))
        .env("PORTUNUS_TEST_NGINX", &nginx)
        .env("PORTUNUS_TEST_PEBBLE", &pebble);
    let tested = run_tests(&mut tests, MAX_TIME);
    postgres.end(tested)
}

/// Runs `cargo test` and shows its output. Ends it after a time, and names the tests that did not end.
fn run_tests(tests: &mut Command, limit: Duration) -> Result<()> {
    println!("$ {}", tools::describe(tests));
    let mut child = tests.stdout(Stdio::piped()).spawn().context("starting `cargo test`")?;
    let output = child.stdout.take().context("the output of `cargo test`")?;
    let slow = Arc::new(Mutex::new(SlowTests::default()));
    let seen = Arc::clone(&slow);
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            seen.lock().unwrap_or_else(PoisonError::into_inner).read(text.trim_end());
            line.clear();
        }
        ended.send(()).ok();
    });
    let Some(status) = wait_for(&mut child, limit)? else {
        let slow = slow.lock().unwrap_or_else(PoisonError::into_inner);
        bail!("the tests did not end within {limit:?}; still running: {:?}", slow.0);
    };
    // A process that a test left behind may have the output open.
    end.recv_timeout(LAST_OUTPUT_TIME).ok();
    ensure!(status.success(), "`cargo test`: {status}");
    Ok(())
}

/// Waits for the end of `cargo test`. Ends it and the tests after the limit, and returns nothing.
fn wait_for(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL_INTERVAL);
    }
    // Stopped first, because it would begin the next tests.
    let tests = "kill -STOP \"$0\"; kill -KILL $(cat /proc/\"$0\"/task/*/children)";
    Command::new("sh").args(["-c", tests, &child.id().to_string()]).status()?;
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Tests that have run for a minute and have not ended.
#[derive(Default)]
struct SlowTests(BTreeSet<String>);

impl SlowTests {
    /// Reads a line of the test runner.
    fn read(&mut self, line: &str) {
        let Some(told) = line.strip_prefix("test ") else { return };
        if let Some((test, _)) = told.split_once(" has been running for over ") {
            self.0.insert(test.to_owned());
        } else if let Some((test, _)) = told.split_once(" ... ") {
            self.0.remove(test);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_do_not_end_are_named() {
        let mut slow = SlowTests::default();
        for line in [
            "test a::quick ... ok",
            "test b::slow has been running for over 60 seconds",
            "test c::endless has been running for over 60 seconds",
            "test b::slow ... ok",
        ] {
            slow.read(line);
        }
        assert_eq!(slow.0, BTreeSet::from(["c::endless".to_owned()]));
    }

    #[test]
    fn tests_that_take_too_long_are_ended() {
        let mut sleeper = Command::new("sh");
        sleeper.args(["-c", "echo test a has been running for over 60 seconds; sleep 60; true"]);
        let error = run_tests(&mut sleeper, Duration::from_secs(3)).unwrap_err().to_string();
        assert!(error.ends_with(r#"still running: {"a"}"#), "{error}");
    }
}
