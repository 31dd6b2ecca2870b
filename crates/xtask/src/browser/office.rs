//! The journeys of an administrator.

use anyhow::Result;

use super::Stage;
use super::journeys::{PASSWORD, sign_in};
use super::page::Page;

/// A page that keeps itself fresh is to hold still for its picture.
fn still(page: &mut Page<'_>) -> Result<()> {
    page.wait("document.querySelector('[data-live] input').checked")?;
    page.press("[data-live] input")
}

pub(super) fn look_around(stage: &mut Stage) -> Result<()> {
    let Stage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/providers"))?;
    // It mends itself, without a new page.
    page.eval("document.getElementById('providers').textContent = 'gone'")?;
    page.says("demo/demo-chat")?;
    still(&mut page)?;
    page.inspect("providers", shots, axe)?;
    page.follow("a[href='/console/providers/demo']")?;
    still(&mut page)?;
    page.inspect("provider", shots, axe)?;
    page.go(&format!("{url}/console/providers/new"))?;
    page.inspect("provider-choice", shots, axe)?;
    page.text("document.getElementById('like').value = ''")?;
    page.send("Go on")?;
    page.press("details summary")?;
    page.inspect("provider-new", shots, axe)?;
    page.fill("#id", "demo")?;
    page.fill("#base", "http://127.0.0.1:9")?;
    page.send("Add the provider")?;
    page.says("There is a provider of this name already")?;
    page.go(&format!("{url}/console/models?q=demo"))?;
    page.says("demo-image")?;
    page.inspect("models-prices", shots, axe)?;
    page.follow("a[href$='id=demo-chat']")?;
    page.inspect("model-prices", shots, axe)?;
    page.go(&format!("{url}/console/audit?action=setting"))?;
    page.says("setting.change")?;
    page.inspect("audit", shots, axe)?;
    page.go(&format!("{url}/console/system"))?;
    still(&mut page)?;
    page.says("SQLite")?;
    page.inspect("system", shots, axe)?;
    page.go(&format!("{url}/console/settings"))?;
    page.fill("#name", "Harbour")?;
    page.send("Save")?;
    page.wait("document.querySelector('.brand').textContent === 'Harbour'")
}

pub(super) fn person(stage: &mut Stage) -> Result<()> {
    let Stage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/people"))?;
    page.eval("[...document.querySelectorAll('tbody th a')].find((a) => a.textContent === 'mia').id = 'mia'")?;
    page.follow("#mia")?;
    page.wait("document.getElementById('cap_usd').value === '5'")?;
    page.fill("#cap_usd", "-1")?;
    page.send("Save")?;
    page.says("must not be below zero")?;
    page.fill("#cap_usd", "12.50")?;
    page.press("details summary")?;
    page.inspect("person", shots, axe)?;
    page.send("Save")?;
    page.says("Saved.")?;
    page.go(&format!("{url}/console/account/prove"))?;
    page.inspect("prove", shots, axe)?;
    page.fill("#current", "not my password")?;
    page.send("Go on")?;
    page.says("This is not your password")?;
    page.fill("#current", PASSWORD)?;
    page.send("Go on")?;
    page.says("Who you are")
}
