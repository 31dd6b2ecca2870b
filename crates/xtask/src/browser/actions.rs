//! Actions that several journeys share.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::page::Page;
use crate::gateway::Binary;

pub(super) const PASSWORD: &str = "three harbour lights";
pub(super) const NEW_PASSWORD: &str = "four quiet lanterns";

/// Signs in on the sign-in page.
pub(super) fn sign_in(page: &mut Page<'_>, url: &str, login: &str, password: &str) -> Result<()> {
    page.go(&format!("{url}/login"))?;
    page.fill("#login", login)?;
    page.fill("#password", password)?;
    page.send("Sign in")
}

/// Makes an account with the command line. Returns the link on which it chooses a password.
pub(super) fn new_account(binary: &Binary, data: &Path, url: &str, name: &str) -> Result<String> {
    let made =
        binary.command().args(["users", "create", name, "--json", "--data"]).arg(data).output()?;
    let made: Value = serde_json::from_slice(&made.stdout).context("users create")?;
    let link = made.get("link").and_then(Value::as_str).context("no link")?;
    let path = link.split_once("/link/").context("no link")?.1;
    Ok(format!("{url}/link/{path}"))
}

/// Makes the call that the page of a new key shows.
pub(super) fn call_as_shown(page: &mut Page<'_>) -> Result<()> {
    let curl = page.text("document.getElementById('curl').textContent")?;
    let answer = Command::new("sh").args(["-c", &format!("{curl} -s -S")]).output()?;
    let answer: Value = serde_json::from_slice(&answer.stdout).context("the call failed")?;
    ensure!(answer.pointer("/choices/0/message/content").is_some(), "no answer: {answer}");
    Ok(())
}
