//! Statements: the months with calls, one of them, and its file.

use anyhow::{Context as _, Result};

use super::actions::{PASSWORD, sign_in};
use super::page::Page;
use super::stage::BrowserStage;

/// The cost of the file is that of the page, and each of its lists adds up to it.
const FILE_AGREES: &str = "(async () => {\
    const file = await (await fetch(document.querySelector('.actions a[href*=csv]').href)).text();\
    const lines = file.trim().split('\\r\\n').slice(1).map((line) => line.split(','));\
    const sum = (list) => lines.filter((line) => line[1] === list)\
        .reduce((sum, line) => sum + Math.round(Number(line.at(-1)) * 1e9), 0);\
    const shown = document.querySelector('tfoot .num [title]').title.slice(1);\
    return sum('total') > 0 && sum('total') === Math.round(Number(shown) * 1e9)\
        && sum('model') === sum('total') && sum('account') === sum('total'); })()";

pub(super) fn journey(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.follow(".places a[href='/console/statements']")?;
    page.says("So far")?;
    page.inspect("statements", shots, axe)?;
    page.follow("tbody a.id")?;
    page.says("The month is not over")?;
    page.wait("!document.querySelector('[data-print]').hidden")?;
    page.wait(FILE_AGREES).context("the page and the file")?;
    page.inspect("statement", shots, axe)?;
    page.follow("section:last-of-type tbody a.id")?;
    page.wait("new URL(location.href).searchParams.get('account')?.length > 0")?;
    page.says("By key")?;
    page.follow(".actions a[href*=activity]")?;
    page.says("Activity")
}
