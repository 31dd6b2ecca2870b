//! Journeys of an administrator.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};

use super::actions::{PASSWORD, sign_in};
use super::page::Page;
use super::stage::BrowserStage;
use crate::gateway::{Server, free_address};
use crate::http::{self, Client};

/// Stops the automatic refresh of a page for its screenshot.
fn still(page: &mut Page<'_>) -> Result<()> {
    page.wait("document.querySelector('[data-live] input').checked")?;
    page.press("[data-live] input")
}

pub(super) fn look_around(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/providers"))?;
    // The refresh restores the content without a new page.
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

pub(super) fn person(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
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

/// Creates a provider and a model in the console and calls the model at once.
pub(super) fn provider(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, binary, data, url, shots, axe, .. } = stage;
    let house = free_address()?;
    let mut command = binary.simulate(house, &[]);
    let log = data.join("house.log");
    let _house = Server::start("portunus simulate", &mut command, house, "/", &log)?;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/providers/new"))?;
    page.text("document.getElementById('like').value = ''")?;
    page.send("Go on")?;
    page.fill("#id", "house")?;
    page.fill("#base", &format!("http://{house}"))?;
    page.eval("document.querySelector(\"[name='speaks'][value='chat']\").checked = true")?;
    page.fill("#value", "sk-of-the-house")?;
    page.send("Add the provider")?;
    page.says("Check whether it accepts the credential")?;
    page.send("Check the credentials")?;
    page.says("accepted · 200")?;
    page.inspect("provider-checked", shots, axe)?;
    page.go(&format!("{url}/console/models/new"))?;
    page.fill("#id", "house/chat:1")?;
    page.fill("#lanes", "house/demo-chat")?;
    page.fill("[name='price.input']", "1")?;
    page.fill("[name='price.output']", "two")?;
    page.send("Add the model")?;
    page.wait("Boolean(document.getElementById('price.output-wrong'))")?;
    page.fill("[name='price.output']", "2")?;
    page.send("Add the model")?;
    page.wait("document.querySelector(\"[name='price.output']\").value === '2'")?;
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    let gateway = SocketAddr::from(([127, 0, 0, 1], port.context("the gateway has a port")?));
    let key = binary.create_key(data)?;
    let ask = r#"{"model":"house/chat:1","messages":[{"role":"user","content":"Hello!"}]}"#;
    let mut answer = Vec::new();
    let request = http::post(gateway, "/v1/chat/completions", &key, ask);
    let status = Client::open(gateway)?.exchange(&request, &mut answer)?.status;
    ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&answer));
    page.go(&format!("{url}/console/providers/house"))?;
    page.says("house/demo-chat")?;
    let seen = page.text("document.documentElement.outerHTML")?;
    ensure!(!seen.contains("sk-of-the-house"), "the credential is shown");
    Ok(())
}
