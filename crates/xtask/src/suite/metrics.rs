//! Alert rules, dashboard and metrics, as Prometheus' own checker reads them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::gateway::{Binary, Server, free_address};
use crate::http::Client;
use crate::process::TempFolder;
use crate::tools;
use crate::workspace;

/// Calls of a demo model before the metrics are read, so that there are samples of every kind.
const CALLS: usize = 3;

/// Runs the step.
pub(super) fn run() -> Result<()> {
    let promtool = tools::promtool()?;
    let rules = workspace::root().join("deploy/prometheus");
    tools::run(Command::new(&promtool).args(["check", "rules", "alerts.yml"]).current_dir(&rules))?;
    let mut tests = Command::new(&promtool);
    tools::run(tests.args(["test", "rules", "alerts_test.yml"]).current_dir(&rules))?;
    let scratch = TempFolder::new("metrics")?;
    check_dashboard(&promtool, scratch.path())?;
    check_exposition(&promtool, scratch.path())
}

/// Checks the expressions of the dashboard, as the rules of a file that is thrown away.
fn check_dashboard(promtool: &Path, folder: &Path) -> Result<()> {
    let text = fs::read_to_string(workspace::root().join("deploy/grafana/portunus.json"))?;
    let dashboard: Value = serde_json::from_str(&text).context("the dashboard is not JSON")?;
    let panels = dashboard.get("panels").and_then(Value::as_array).context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel.get("targets")?.as_array()).flatten();
    let queries = targets.filter_map(|target| target.get("expr")?.as_str());
    let rules: Vec<Value> = queries
        .enumerate()
        .map(|(number, query)| {
            let query = query.replace("$__rate_interval", "5m");
            serde_json::json!({ "record": format!("dashboard:query:{number}"), "expr": query })
        })
        .collect();
    ensure!(!rules.is_empty(), "the dashboard asks for nothing");
    // JSON is YAML.
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let file = folder.join("dashboard.yml");
    fs::write(&file, rules.to_string())?;
    tools::run(Command::new(promtool).args(["check", "rules"]).arg(&file))
}

/// Checks the metrics of a running gateway after some calls.
fn check_exposition(promtool: &Path, folder: &Path) -> Result<()> {
    let binary = Binary::build()?;
    let (data, metrics) = (folder.join("data"), free_address()?);
    let config = folder.join("portunus.toml");
    fs::write(&config, format!("[server]\nmetrics = \"{metrics}\"\n"))?;
    let key = binary.create_key(&data)?;
    let address = free_address()?;
    let mut serve = binary.serve(address, &data, Some(&config));
    let log = folder.join("gateway");
    let _gateway = Server::start("portunus serve", &mut serve, address, "/readyz", &log)?;
    let body = r#"{"model":"demo-chat","messages":[{"role":"user","content":"Hello!"}]}"#;
    let call = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (mut client, mut answer) = (Client::open(address)?, Vec::new());
    for _ in 0..CALLS {
        let answered = client.exchange(call.as_bytes(), &mut answer)?;
        ensure!(answered.status == 200, "a call failed: {}", answered.status);
    }
    let request = "GET /metrics HTTP/1.1\r\nhost: gateway\r\n\r\n";
    let answered = Client::open(metrics)?.exchange(request.as_bytes(), &mut answer)?;
    ensure!(answered.status == 200, "/metrics: {}", answered.status);
    let file = folder.join("metrics.txt");
    fs::write(&file, &answer)?;
    let input = Stdio::from(fs::File::open(&file)?);
    tools::run(Command::new(promtool).args(["check", "metrics"]).stdin(input))
}
