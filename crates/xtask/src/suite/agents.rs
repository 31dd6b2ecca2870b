//! Tests of coding agents against a real gateway: Claude Code, Codex and Gemini CLI, each with
//! every kind of upstream. The agents are large, so this step runs only by name.

use std::process::Command;

use anyhow::Result;

use super::{e2e, node};
use crate::tools;
use crate::workspace;

/// Installs the agents, starts a gateway, lets each agent answer and use a tool.
pub(super) fn run() -> Result<()> {
    let root = workspace::root();
    let python = e2e::python()?;
    let agents = node::install("agents", &root.join("tests/e2e/agents"))?;
    let stage = e2e::GatewayStage::start(&python)?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-p", "no:cacheprovider", "tests/e2e/agents"]).current_dir(&root);
    tests.env("AGENTS_BIN", agents.folder.join("node_modules/.bin")).env("NODE_BIN", agents.bin());
    let tested = tools::run(stage.tell(&mut tests));
    stage.end(tested)
}
