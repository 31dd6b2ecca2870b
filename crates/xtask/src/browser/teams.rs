//! Journey of a team: one person creates it, another is added and creates a key in it, and both see
//! the cost.

use anyhow::Result;
use serde_json::Value;

use super::actions::{NEW_PASSWORD, PASSWORD, call_as_shown, sign_in};
use super::page::Page;
use super::stage::BrowserStage;

pub(super) fn journey(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/teams"))?;
    page.says("No teams")?;
    page.inspect("teams-none", shots, axe)?;
    page.fill("#name", "Night shift")?;
    page.fill("#cap", "0")?;
    page.send("Create the team")?;
    page.says("At least 0.01 dollars")?;
    page.inspect("teams-wrong", shots, axe)?;
    page.fill("#cap", "25")?;
    page.fill("#budget", "10")?;
    page.send("Create the team")?;
    page.says("Nobody belongs to it")?;
    let team = page.text("location.pathname")?;
    page.fill("#login", "nobody-at-all")?;
    page.send("Add")?;
    page.says("There is nobody with this username or address")?;
    page.fill("#login", "mia@example.com")?;
    page.send("Add")?;
    page.says("mia")?;
    page.fill("#login", "olga")?;
    page.send("Add")?;
    page.says("· you")?;
    page.text("document.querySelector(\"[aria-label='Role of olga']\").value = 'manager'")?;
    page.follow("[aria-label='Role of olga'] + button")?;
    page.wait("document.querySelector(\"[aria-label='Role of olga']\").value === 'manager'")?;
    page.send("Sign out")?;

    sign_in(&mut page, url, "mia", NEW_PASSWORD)?;
    page.says("Acting for")?;
    page.follow(".acting a[href*='for=']")?;
    page.says("Keys and calls of Night shift")?;
    page.send("New key")?;
    page.inspect("team-key-new", shots, axe)?;
    page.fill("#name", "night batch")?;
    page.fill("#cap", "5")?;
    page.send("Create key")?;
    page.says("Copy night batch now")?;
    call_as_shown(&mut page)?;
    page.send("I have copied it")?;
    page.says("night batch")?;
    page.inspect("team-overview", shots, axe)?;
    page.go(&format!("{url}/console"))?;
    page.says("No keys yet")?;
    page.go(&format!("{url}{team}"))?;
    page.says("night batch")?;
    page.inspect("team-as-member", shots, axe)?;
    used(&mut page)?;
    page.send("Sign out")?;

    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/teams"))?;
    page.says("Night shift")?;
    page.inspect("teams", shots, axe)?;
    page.go(&format!("{url}{team}"))?;
    page.says("made by mia")?;
    page.inspect("team", shots, axe)?;
    used(&mut page)?;
    page.go(&format!("{url}{team}"))?;
    page.follow("a[href$='/remove']")?;
    page.says("night batch")?;
    page.inspect("team-remove", shots, axe)?;
    page.send("Cancel")
}

/// Opens the activity of a team and waits for the settled call.
fn used(page: &mut Page<'_>) -> Result<()> {
    page.send("Activity")?;
    let place = page.text("location.href")?;
    let told = "document.body.innerText.includes('Spend over time')";
    for _ in 0..100 {
        if page.eval(told)? == Value::Bool(true) {
            break;
        }
        page.go(&place)?;
    }
    page.says("Spend over time")?;
    page.says("demo-")
}
