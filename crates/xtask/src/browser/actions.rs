//! Actions that several journeys share.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::page::Page;

pub(super) const PASSWORD: &str = "three harbour lights";
pub(super) const NEW_PASSWORD: &str = "four quiet lanterns";

/// Signs in on the sign-in page.
pub(super) fn sign_in(page: &mut Page<'_>, url: &str, login: &str, password: &str) -> Result<()> {
    page.go(&format!("{url}/login"))?;
    page.fill("#login", login)?;
    page.fill("#password", password)?;
    page.send("Sign in")
}

/// Makes the call that the page of a new key shows.
pub(super) fn call_as_shown(page: &mut Page<'_>) -> Result<()> {
    let curl = page.text("document.getElementById('curl').textContent")?;
    let answer = Command::new("sh").args(["-c", &format!("{curl} -s -S")]).output()?;
    let answer: Value = serde_json::from_slice(&answer.stdout).context("the call failed")?;
    ensure!(answer.pointer("/choices/0/message/content").is_some(), "no answer: {answer}");
    Ok(())
}
