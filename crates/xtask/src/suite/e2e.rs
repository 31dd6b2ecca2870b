//! The official client against a real gateway: a process of its own on a free port, with an empty
//! data folder and the demo models, as a newcomer would start it.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::gateway::{Binary, Server, free_address};
use crate::process::{Scratch, Signal};
use crate::tools::{self, cargo};
use crate::workspace;

/// Builds the gateway, starts it, runs the tests, stops it.
pub(super) fn run() -> Result<()> {
    let root = workspace::root();
    tools::run(&mut cargo(&["build", "-p", "portunus"]))?;
    let python = tools::python(&root.join("tests/e2e/requirements.txt"))?;

    let scratch = Scratch::new("e2e")?;
    let data = scratch.path().join("data");
    let binary = Binary { path: workspace::target().join("debug/portunus"), cores: None };
    let key = binary.create_key(&data)?;
    let address = free_address()?;
    let log = scratch.path().join("log");
    let server = Server::start(
        "portunus serve",
        &mut binary.serve(address, &data, None),
        address,
        "/readyz",
        &log,
    )?;

    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-p", "no:cacheprovider", "tests/e2e"]).current_dir(root);
    tests.env("GATEWAY_URL", format!("http://{address}")).env("GATEWAY_KEY", key);
    // The tests leave nothing behind in the tree.
    let tested = tools::run(tests.env("PYTHONDONTWRITEBYTECODE", "1"));

    let said = server.running.last_words();
    let ended = server.running.stop(Signal::Term);
    tested.with_context(|| format!("the gateway's last words:\n{said}"))?;
    let status = ended?;
    ensure!(status.code() == Some(0), "the gateway ended with {status} when asked to stop\n{said}");
    println!("the gateway ended with exit code 0 when asked to");
    // Whatever the tests did, the books add up.
    tools::run(binary.command().args(["ledger", "verify", "--data"]).arg(&data))
}
