//! The page of activity: its chart is a way to the calls.

use anyhow::{Context as _, Result};

use super::actions::{PASSWORD, sign_in};
use super::page::Page;
use super::stage::BrowserStage;

/// The figure of the calls, the rows of the table and those of the file.
pub(super) const PARTS_AGREE: &str = "(async () => {\
    const named = [...document.querySelectorAll('.figures dt')].find((dt) => dt.textContent === 'Calls');\
    const rows = document.querySelectorAll('.calls tbody tr').length;\
    const file = await (await fetch(document.querySelector('.actions a').href)).text();\
    return rows > 0 && Number(named.nextElementSibling.textContent) === rows\
        && file.trim().split('\\r\\n').length - 1 === rows; })()";
const DAYS: &str = "document.querySelectorAll('.chart svg a')";

pub(super) fn journey(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    let start = format!("{url}/console/activity?what=calls&by=format");
    page.go(&start)?;
    page.wait(PARTS_AGREE).context("all calls")?;
    page.follow(".legend a")?;
    page.wait("new URL(location.href).searchParams.get('format')?.length > 0")?;
    page.wait("document.querySelector('details.more').open")?;
    page.wait(PARTS_AGREE).context("calls of a format")?;
    page.inspect("activity-of-a-format", shots, axe)?;
    // The last day has the calls, and is reached without a mouse.
    page.go(&start)?;
    page.wait(&format!("{DAYS}.length > 29"))?;
    page.eval(&format!("window.left = true; [...{DAYS}].at(-1).focus()"))?;
    page.enter()?;
    page.wait("new URL(location.href).searchParams.get('from')?.length === 10")?;
    page.wait(PARTS_AGREE).context("calls of a day")?;
    page.go(&start)?;
    let (from, to) = (middle(&mut page, -3)?, middle(&mut page, -1)?);
    page.drag(from, to)?;
    page.wait(
        "(() => { const given = new URL(location.href).searchParams; \
         return (Date.parse(given.get('to')) - Date.parse(given.get('from'))) / 864e5 === 2; })()",
    )?;
    page.wait(PARTS_AGREE).context("calls of three days")
}

/// Returns the middle of a step of the chart on the screen.
fn middle(page: &mut Page<'_>, step: i32) -> Result<(f64, f64)> {
    let area = format!("[...{DAYS}].at({step}).querySelector('.touch')");
    page.eval(&format!("{area}.scrollIntoView({{ block: 'center' }})"))?;
    let side = |page: &mut Page<'_>, from: &str, length: &str| {
        let value = page.eval(&format!(
            "(() => {{ const area = {area}.getBoundingClientRect(); return area.{from} + area.{length} / 2; }})()"
        ))?;
        value.as_f64().context("the chart has no place")
    };
    Ok((side(page, "x", "width")?, side(page, "y", "height")?))
}
