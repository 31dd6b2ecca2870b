//! The official clients against a real gateway: a process of its own on a free port, with an empty
//! data folder, and behind it an upstream of each format, so that every request but those in the
//! upstream's own format is translated. What works is written down as `docs/compatibility.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::node;
use crate::gateway::{Binary, Server, free_address};
use crate::process::{Scratch, Signal};
use crate::tools::{self, cargo};
use crate::workspace;

/// A gateway with its upstreams. Dropping it ends all of them.
pub(super) struct Stage {
    /// The gateway; the upstreams behind it end after it.
    gateway: Server,
    _upstreams: Vec<Server>,
    binary: Binary,
    data: PathBuf,
    /// The key of the tests.
    key: String,
    /// Keys with limits nobody reaches, and with one that is reached at once.
    roomy: String,
    tight: String,
    scratch: Scratch,
}

impl Stage {
    /// Builds the gateway and starts everything.
    pub(super) fn start(python: &Path) -> Result<Self> {
        tools::run(&mut cargo(&["build", "--workspace", "--bin", "portunus"]))?;
        let scratch = Scratch::new("e2e")?;
        let folder = scratch.path();
        let binary = Binary { path: workspace::target().join("debug/portunus"), cores: None };

        let simulated = free_address()?;
        let mut simulate = binary.command();
        simulate.args(["simulate", "--listen", &simulated.to_string()]);
        let log = folder.join("simulated");
        let ours =
            Server::start("portunus simulate", &mut simulate, simulated, "/v1/models", &log)?;

        let independent = free_address()?;
        let mut llama = Command::new(python);
        llama.arg(workspace::root().join("tests/e2e/independent.py"));
        llama.arg(independent.port().to_string());
        let log = folder.join("independent");
        let theirs = Server::start("llama.cpp", &mut llama, independent, "/v1/models", &log)?;

        let config = folder.join("gateway.toml");
        let template = fs::read_to_string(workspace::root().join("tests/e2e/gateway.toml"))?;
        let filled = template
            .replace("{simulated}", &simulated.to_string())
            .replace("{independent}", &independent.to_string());
        fs::write(&config, filled)?;

        let data = folder.join("data");
        let key = binary.create_key(&data)?;
        let roomy = binary.create_key_with(&data, &["--rpm", "1000", "--tpm", "1000000"])?;
        let tight = binary.create_key_with(&data, &["--rpm", "1"])?;
        let address = free_address()?;
        let mut serve = binary.serve(address, &data, Some(&config));
        let log = folder.join("gateway");
        let gateway = Server::start("portunus serve", &mut serve, address, "/readyz", &log)?;
        Ok(Self {
            gateway,
            _upstreams: vec![ours, theirs],
            binary,
            data,
            key,
            roomy,
            tight,
            scratch,
        })
    }

    /// A folder for what the tests leave; it goes with the gateway.
    pub(super) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Tells a command where the gateway is. It leaves nothing behind in the tree.
    pub(super) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("GATEWAY_URL", format!("http://{}", self.gateway.address))
            .env("GATEWAY_KEY", &self.key)
            .env("GATEWAY_BINARY", &self.binary.path)
            .env("GATEWAY_ROOMY_KEY", &self.roomy)
            .env("GATEWAY_TIGHT_KEY", &self.tight)
            .env("PYTHONDONTWRITEBYTECODE", "1")
    }

    /// Asks the gateway to end and checks its books, whatever the tests did.
    pub(super) fn end(self, tested: Result<()>) -> Result<()> {
        let said = self.gateway.running.last_words();
        let ended = self.gateway.running.stop(Signal::Term);
        tested.with_context(|| format!("the gateway's last words:\n{said}"))?;
        let status = ended?;
        let good = status.code() == Some(0);
        ensure!(good, "the gateway ended with {status} when asked to stop\n{said}");
        println!("the gateway ended with exit code 0 when asked to");
        let mut verify = self.binary.command();
        tools::run(verify.args(["ledger", "verify", "--data"]).arg(&self.data))
    }
}

/// The Python the tests run on, with the official clients.
pub(super) fn python() -> Result<PathBuf> {
    tools::python("e2e", &workspace::root().join("tests/e2e/requirements.txt"))
}

/// Starts everything, runs the tests of both languages, compares what works with what is told.
pub(super) fn run() -> Result<()> {
    let root = workspace::root();
    let python = python()?;
    let node = node::install("e2e", &root.join("tests/e2e/node"))?;
    let stage = Stage::start(&python)?;
    let cells = stage.folder().join("cells");
    fs::create_dir_all(&cells)?;

    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-p", "no:cacheprovider", "--tb=short"]);
    tests
        .args(["--ignore=tests/e2e/agents", "tests/e2e"])
        .current_dir(&root)
        .env("E2E_CELLS", cells.join("python.json"));
    let in_python = tools::run(stage.tell(&mut tests));

    let mut tests = node.command();
    tests.args(["--test", "--test-reporter=dot"]).current_dir(&node.folder);
    tests.env("E2E_CELLS", &cells);
    let in_node = tools::run(stage.tell(&mut tests));

    let compared = compare(&python, &cells);
    // Whatever failed first is told first, but nothing hides what comes after it.
    stage.end(first_of([in_python, in_node, compared]))
}

/// Writes the table into `target`, and checks the committed one against the same cells.
fn compare(python: &Path, cells: &Path) -> Result<()> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(cells)?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let made = workspace::target().join("e2e");
    fs::create_dir_all(&made)?;
    let matrix = |what: &str, page: PathBuf| {
        let mut command = Command::new(python);
        command.arg(workspace::root().join("tests/e2e/matrix.py")).arg(what).arg(page);
        tools::run(command.args(&files).env("PYTHONDONTWRITEBYTECODE", "1"))
    };
    matrix("write", made.join("compatibility.md"))?;
    matrix("check", workspace::root().join("docs/compatibility.md"))
}

/// The first failure; the others are printed.
fn first_of(results: [Result<()>; 3]) -> Result<()> {
    let mut failures = results.into_iter().filter_map(Result::err);
    let Some(first) = failures.next() else { return Ok(()) };
    for other in failures {
        println!("{other:#}");
    }
    Err(first)
}
