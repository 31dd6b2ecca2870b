//! The API description of a running gateway: a linter reads it, a generator makes a client from it,
//! and the client calls every surface.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::node::{self, Node};
use crate::gateway::{Binary, Server, free_address};
use crate::http::Client;
use crate::process::TempFolder;
use crate::tools;
use crate::workspace;

/// Name of the description beside the client.
const DOCUMENT: &str = "openapi.json";

/// Runs the step.
pub(super) fn run() -> Result<()> {
    let node = node::install("openapi", &workspace::root().join("tests/openapi"))?;
    let scratch = TempFolder::new("openapi")?;
    let binary = Binary::build()?;
    let data = scratch.path().join("data");
    let key = binary.create_key(&data)?;
    let address = free_address()?;
    let mut serve = binary.serve(address, &data, None);
    let log = scratch.path().join("gateway");
    let gateway = Server::start("portunus serve", &mut serve, address, "/readyz", &log)?;

    fetch_document(&gateway, &node.folder.join(DOCUMENT))?;
    let mut lint = script(&node, "@redocly/cli/bin/cli.js");
    tools::run(lint.args(["lint", DOCUMENT]).env("REDOCLY_TELEMETRY", "off"))?;
    let mut generate = script(&node, "openapi-typescript/bin/cli.js");
    generate.args([DOCUMENT, "--default-non-nullable=false", "--output", "schema.d.ts"]);
    tools::run(&mut generate)?;
    tools::run(script(&node, "typescript/bin/tsc").args(["--project", "."]))?;
    let mut client = node.command();
    client.arg("client.ts").current_dir(&node.folder);
    client.env("GATEWAY_URL", format!("http://{address}")).env("GATEWAY_KEY", key);
    tools::run(&mut client)
}

/// Returns a command that runs a script of a package.
fn script(node: &Node, path: &str) -> Command {
    let mut command = node.command();
    command.arg(Path::new("node_modules").join(path)).current_dir(&node.folder);
    command
}

fn fetch_document(gateway: &Server, file: &Path) -> Result<()> {
    let request = "GET /openapi.json HTTP/1.1\r\nhost: gateway\r\n\r\n";
    let mut document = Vec::new();
    let answer = Client::open(gateway.address)?.exchange(request.as_bytes(), &mut document)?;
    ensure!(answer.status == 200, "/openapi.json: {}", answer.status);
    fs::write(file, document)?;
    Ok(())
}
