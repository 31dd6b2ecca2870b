//! Tests of the official clients against a real gateway: a process on a free port with an empty
//! data folder, and one upstream per format, so that requests in every other format are translated.
//! The results are documented in `docs/compatibility.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::node;
use crate::gateway::{Binary, Server, free_address};
use crate::process::{Signal, TempFolder};
use crate::tools;
use crate::workspace;

/// A gateway with its upstreams. Dropping it stops all of them.
pub(super) struct GatewayStage {
    /// The gateway. It is dropped before the upstreams.
    gateway: Server,
    _upstreams: Vec<Server>,
    binary: Binary,
    config: PathBuf,
    data: PathBuf,
    /// API key of the tests.
    key: String,
    /// Keys with a limit that is never reached, and with one that is reached at once.
    unreached_limit_key: String,
    tight: String,
    scratch: TempFolder,
}

impl GatewayStage {
    /// Builds the gateway and starts everything.
    pub(super) fn start(python: &Path) -> Result<Self> {
        let scratch = TempFolder::new("e2e")?;
        let folder = scratch.path();
        let binary = Binary::build()?;

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
        let unreached_limit_key =
            binary.create_key_with(&data, &["--rpm", "1000", "--tpm", "1000000"])?;
        let tight = binary.create_key_with(&data, &["--rpm", "1"])?;
        let address = free_address()?;
        let mut serve = binary.serve(address, &data, Some(&config));
        let log = folder.join("gateway");
        let gateway = Server::start("portunus serve", &mut serve, address, "/readyz", &log)?;
        Ok(Self {
            gateway,
            _upstreams: vec![ours, theirs],
            binary,
            config,
            data,
            key,
            unreached_limit_key,
            tight,
            scratch,
        })
    }

    /// Folder for output of the tests, removed with the gateway.
    pub(super) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Sets the environment of a command: URL, key, and no files in the source tree.
    pub(super) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("GATEWAY_URL", format!("http://{}", self.gateway.address))
            .env("GATEWAY_KEY", &self.key)
            .env("GATEWAY_BINARY", &self.binary.path)
            .env("GATEWAY_CONFIG", &self.config)
            .env("GATEWAY_ROOMY_KEY", &self.unreached_limit_key)
            .env("GATEWAY_TIGHT_KEY", &self.tight)
            .env("PYTHONDONTWRITEBYTECODE", "1")
    }

    /// Stops the gateway and verifies its ledger, regardless of the tests' result.
    pub(super) fn end(self, tested: Result<()>) -> Result<()> {
        let said = self.gateway.running.log_tail();
        let ended = self.gateway.running.stop(Signal::Term);
        tested.with_context(|| format!("the end of the gateway's log:\n{said}"))?;
        let status = ended?;
        let good = status.code() == Some(0);
        ensure!(good, "the gateway ended with {status} when asked to stop\n{said}");
        println!("the gateway ended with exit code 0 when asked to");
        let mut verify = self.binary.command();
        tools::run(verify.args(["ledger", "verify", "--data"]).arg(&self.data))
    }
}

/// Returns a Python with the official clients.
pub(super) fn python() -> Result<PathBuf> {
    tools::python("e2e", &workspace::root().join("tests/e2e/requirements.txt"))
}

/// Runs the tests of both languages and compares the results with the documented ones.
pub(super) fn run() -> Result<()> {
    let root = workspace::root();
    let python = python()?;
    let node = node::install("e2e", &root.join("tests/e2e/node"))?;
    let stage = GatewayStage::start(&python)?;
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
    // The first failure is returned; later steps still run.
    stage.end(first_of([in_python, in_node, compared]))
}

/// Writes the table into `target` and compares the committed one with it.
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

/// Returns the first failure and prints the others.
fn first_of(results: [Result<()>; 3]) -> Result<()> {
    let mut failures = results.into_iter().filter_map(Result::err);
    let Some(first) = failures.next() else { return Ok(()) };
    for other in failures {
        println!("{other:#}");
    }
    Err(first)
}
