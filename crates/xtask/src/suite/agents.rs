//! Journeys of coding agents against a real gateway, each agent with every kind of upstream. The
//! agents are large, so this step runs only by name. The results are documented in
//! `docs/clients/matrix.md`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{e2e, node};
use crate::tools;
use crate::workspace;

/// Installs the agents, starts a gateway, runs every journey and compares the results with the
/// documented ones.
pub(super) fn run() -> Result<()> {
    let root = workspace::root();
    let folder = root.join("tests/e2e/agents");
    let python = e2e::python()?;
    let agents = node::install("agents", &folder)?;
    // Their dependencies exclude each other.
    let aider = tools::python("aider", &folder.join("aider.txt"))?;
    let llm = tools::python("llm", &folder.join("llm.txt"))?;
    tools::keyring()?;
    let made = workspace::target().join("agents");
    fs::create_dir_all(&made)?;
    let cells = made.join("cells.json");
    let stage = e2e::GatewayStage::start(&python)?;

    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-p", "no:cacheprovider", "--tb=short"]);
    tests.arg("tests/e2e/agents").current_dir(&root);
    tests.env("AGENTS_BIN", agents.folder.join("node_modules/.bin")).env("NODE_BIN", agents.bin());
    tests.env("AIDER_BIN", aider.with_file_name("aider")).env("LLM_BIN", llm.with_file_name("llm"));
    tests.env("AGENTS_CELLS", &cells);
    let tested = tools::run(stage.tell(&mut tests));

    let table = |what: &str, page: &Path| {
        let mut command = Command::new(&python);
        command.arg(folder.join("table.py")).arg(what).arg(page).arg(&cells);
        tools::run(command.env("PYTHONDONTWRITEBYTECODE", "1"))
    };
    let compared = table("write", &made.join("matrix.md"))
        .and_then(|()| table("check", &root.join("docs/clients/matrix.md")));
    stage.end(tested.and(compared))
}
