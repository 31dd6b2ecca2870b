//! Journey of a program that signs in: it shows a code, a person confirms it for a team, and it makes
//! a call with its key.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::actions::{NEW_PASSWORD, sign_in};
use super::page::Page;
use super::stage::BrowserStage;

pub(super) fn journey(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let begun = send(url, "device_authorization", &["surface=claude_code"])?;
    let code = text(&begun, "user_code")?;
    let device = format!("device_code={}", text(&begun, "device_code")?);
    let grant = "grant_type=urn:ietf:params:oauth:grant-type:device_code";
    let pending = send(url, "token", &[grant, &device])?;
    ensure!(text(&pending, "error")? == "authorization_pending", "{pending}");
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "mia", NEW_PASSWORD)?;
    page.go(&format!("{url}/device"))?;
    page.says("Enter the code that the program shows")?;
    page.inspect("device-code", shots, axe)?;
    page.fill("#user_code", "BBBB-BBBB")?;
    page.send("Continue")?;
    page.says("No program waits with this code")?;
    page.inspect("device-wrong", shots, axe)?;
    page.fill("#user_code", &code.to_lowercase())?;
    page.send("Continue")?;
    page.says("Sign in Claude Code?")?;
    page.says(&code)?;
    page.inspect("device-question", shots, axe)?;
    page.text("(document.querySelector('#owner').selectedIndex = 1).toString()")?;
    page.fill("#name", "mia's laptop")?;
    page.send("Sign it in")?;
    page.says("Signed in")?;
    page.inspect("device-done", shots, axe)?;
    let granted = send(url, "token", &[grant, &device])?;
    let key = text(&granted, "access_token")?;
    let told = curl(&["-H", &format!("authorization: Bearer {key}"), &format!("{url}/v1/key")])?;
    ensure!(text(&told, "name")? == "mia's laptop", "{told}");
    page.send("Sign out")
}

/// Sends a form to an endpoint of the sign-in.
fn send(url: &str, endpoint: &str, fields: &[&str]) -> Result<Value> {
    let mut arguments = Vec::new();
    for field in fields {
        arguments.extend(["--data-urlencode", field]);
    }
    let address = format!("{url}/oauth/{endpoint}");
    arguments.push(&address);
    curl(&arguments)
}

fn curl(arguments: &[&str]) -> Result<Value> {
    let output = Command::new("curl").arg("-sS").args(arguments).output().context("curl")?;
    serde_json::from_slice(&output.stdout).context("an answer in JSON")
}

fn text(value: &Value, name: &str) -> Result<String> {
    Ok(value
        .get(name)
        .and_then(Value::as_str)
        .with_context(|| format!("{name} in {value}"))?
        .to_owned())
}
