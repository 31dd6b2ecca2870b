//! The time zone of the browser: pages show times and days in it, and links keep their days.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::actions::{PASSWORD, sign_in};
use super::activity::PARTS_AGREE;
use super::page::Page;
use super::stage::BrowserStage;

/// True if the full time of every element is what the browser makes of its instant.
const TIMES_ARE_LOCAL: &str = "(() => {\
    const times = [...document.querySelectorAll('time')];\
    const local = (time) => new Date(time.dateTime).toLocaleString('sv-SE');\
    return times.length > 0 && times.every((time) => time.title.startsWith(local(time) + ' ')); })()";
/// The day of the newest call, as the browser has it.
const NEWEST_DAY: &str =
    "new Date(document.querySelector('.calls time').dateTime).toLocaleDateString('sv-SE')";

fn is_in(zone: &str) -> String {
    format!("document.querySelector('label[for=from]').textContent === 'From ({zone})'")
}

pub(super) fn journey(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    let start = format!("{url}/console/activity?what=calls&by=model");
    page.call("Emulation.setTimezoneOverride", json!({ "timezoneId": "Asia/Kolkata" }))?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.wait(TIMES_ARE_LOCAL).context("times of the overview")?;
    // Some browsers still call it Asia/Calcutta.
    let kolkata = page.text("Intl.DateTimeFormat().resolvedOptions().timeZone")?;
    page.go(&start)?;
    page.wait(&is_in(&kolkata))?;
    page.wait(TIMES_ARE_LOCAL).context("times of the calls")?;
    let day = page.text(NEWEST_DAY)?;
    let bar = format!("document.querySelector(\".chart svg a[href*='from={day}']\")");
    let bar = page.text(&format!("{bar}.getAttribute('href')"))?;
    page.go(&format!("{url}{bar}"))?;
    let zone = "new URL(location.href).searchParams.get('zone')";
    page.wait(&format!("{zone} === '{kolkata}'"))?;
    page.wait(PARTS_AGREE).context("calls of a day")?;
    page.wait(&format!("{NEWEST_DAY} === '{day}'"))?;
    page.inspect("activity-of-a-zone", shots, axe)?;
    let shared = page.text("location.href")?;
    let calls = page.eval("document.querySelectorAll('.calls tbody tr').length")?;
    // Another viewer has the same days, and may have their own instead.
    page.call("Emulation.setTimezoneOverride", json!({ "timezoneId": "America/New_York" }))?;
    page.go(&start)?;
    page.go(&shared)?;
    page.wait(&is_in(&kolkata))?;
    page.says("Show those of America/New_York")?;
    page.wait(PARTS_AGREE).context("calls of a shared day")?;
    page.wait(&format!("document.querySelectorAll('.calls tbody tr').length === {calls}"))?;
    page.follow("#main p.muted a[href*='zone=America']")?;
    page.wait(&is_in("America/New_York"))?;
    page.go(&start)?;
    page.wait(&is_in("America/New_York"))?;
    page.wait(TIMES_ARE_LOCAL).context("times of the other browser")?;
    choice(&mut page, url, "Europe/Berlin", "Europe/Berlin")?;
    page.inspect("account-zone", shots, axe)?;
    page.go(&start)?;
    page.wait(&is_in("Europe/Berlin"))?;
    choice(&mut page, url, "", "America/New_York")
}

/// Chooses a zone on the page of the account.
fn choice(page: &mut Page<'_>, url: &str, name: &str, shown: &str) -> Result<()> {
    page.go(&format!("{url}/console/account"))?;
    page.eval("document.querySelector('#zone').value = ''")?;
    page.fill("#zone", name)?;
    page.send("Save the zone")?;
    page.says("Pages show times in that zone.")?;
    page.says(&format!("Pages show times and days of {shown}."))
}
