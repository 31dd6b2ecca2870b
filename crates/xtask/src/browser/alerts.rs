//! Alerts: chosen on their page, found by the gateway, told by mail.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::actions::{PASSWORD, sign_in};
use super::page::Page;
use super::stage::BrowserStage;
use crate::gateway::Binary;

pub(super) fn journey(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, mailbox, binary, data, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.follow(".places a[href='/console/alerts']")?;
    page.says("No alerts")?;
    page.says("olga@example.com")?;
    page.inspect("alerts-none", shots, axe)?;
    page.fill("#levels_percent", "half of it")?;
    page.send("Save")?;
    page.says("Write percents from 1 to 100")?;
    page.fill("#levels_percent", "1, 80")?;
    page.fill("[id='webhook.url']", "https://127.0.0.1/hook")?;
    page.send("Save")?;
    page.says("Choose the kind of messages")?;
    page.eval(&set("webhook.form", "slack"))?;
    page.send("Save")?;
    page.wait(
        "document.querySelector('[id=\"webhook.url\"]').getAttribute('aria-invalid') === 'true'",
    )?;
    page.inspect("alerts-wrong", shots, axe)?;
    page.eval(&set("webhook.url", ""))?;
    page.eval(&set("webhook.form", ""))?;
    page.eval(&set("quiet_hours.from", "22:00"))?;
    page.send("Save")?;
    page.says("write another time, such as 07:00")?;
    page.eval(&set("quiet_hours.from", ""))?;
    page.send("Save")?;
    page.says("Saved.")?;
    call_with_tight_key(binary, data, url)?;
    page.go(&format!("{url}/console/alerts"))?;
    let told =
        "(async () => (await (await fetch(location.href)).text()).includes('of its cap of'))()";
    page.wait(told).context("no alert")?;
    page.go(&format!("{url}/console/alerts"))?;
    page.says("The key “tight <b>budget</b>” of olga has spent")?;
    page.inspect("alerts", shots, axe)?;
    mailbox.mail_with("olga@example.com", "of its cap of $0.0005")?;
    page.wait("(async () => (await (await fetch(location.href)).text()).includes('>Sent<'))()")
}

/// Makes a key whose cap is nearly nothing, and a call with it.
fn call_with_tight_key(binary: &Binary, data: &Path, url: &str) -> Result<()> {
    let mut create = binary.command();
    create.args(["keys", "create", "--account", "olga", "--name", "tight <b>budget</b>"]);
    let made = create.args(["--cap", "0.0005", "--json", "--data"]).arg(data).output()?;
    let made: Value = serde_json::from_slice(&made.stdout).context("keys create")?;
    let key = made.get("key").and_then(Value::as_str).context("no key")?;
    let call = json!({
        "model": "demo-chat", "max_tokens": 20, "messages": [{ "role": "user", "content": "hi" }],
    });
    let mut curl = Command::new("curl");
    curl.args(["-s", "-S", "--fail", "-H", &format!("Authorization: Bearer {key}")]);
    curl.args(["-H", "Content-Type: application/json", "-d", &call.to_string()]);
    let answer = curl.arg(format!("{url}/v1/chat/completions")).output()?;
    ensure!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    Ok(())
}

fn set(field: &str, value: &str) -> String {
    format!("document.getElementById('{field}').value = '{value}'")
}
