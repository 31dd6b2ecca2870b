//! Every test in Rust. One PostgreSQL serves all of them. Valkey, S3 server, nginx and Pebble
//! are started and broken by the tests that need them.

use std::thread;

use anyhow::Result;

use super::postgres::Postgres;
use crate::{tools, workspace};

/// Runs the tests, with these arguments for `cargo test`.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let valkey = tools::valkey()?;
    let python = tools::python("s3", &workspace::root().join("tests/s3/requirements.txt"))?;
    let nginx = tools::nginx()?;
    let pebble = tools::pebble()?;
    let postgres = Postgres::start()?;
    let processors = thread::available_parallelism()?.get();
    let mut tests = tools::cargo_workspace("test");
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
    let tested = tools::run(&mut tests);
    postgres.end(tested)
}
