//! Journeys through the playground.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::actions::{PASSWORD, new_account, sign_in};
use super::hostile::{HOSTILE_TEXTS, RECORD_FORBIDDEN, shows_no_effect};
use super::page::Page;
use super::stage::BrowserStage;

/// Number of answers with a price.
const PRICED: &str = "[...document.querySelectorAll('.turn.assistant .facts')]\
                      .filter((facts) => facts.textContent.includes('$')).length";

/// Opens the playground with a model, and waits for its script.
fn open(page: &mut Page<'_>, url: &str, model: &str) -> Result<()> {
    page.go(&format!("{url}/console/playground?model={model}"))?;
    ready(page)
}

fn ready(page: &mut Page<'_>) -> Result<()> {
    page.wait("document.getElementById('play').dataset.ready === 'true'")
}

/// Asks and waits until that many answers have a price.
fn ask(page: &mut Page<'_>, text: &str, priced: usize) -> Result<()> {
    page.fill("#text", text)?;
    page.press("button[name='send']")?;
    page.wait(&format!("{PRICED} === {priced}"))?;
    page.wait("!document.querySelector('.turn.failed')")
}

/// Waits until elements are there that many times.
fn counts(page: &mut Page<'_>, what: &str, count: usize) -> Result<()> {
    page.wait(&format!("document.querySelectorAll({}).length === {count}", json!(what)))
}

/// Presses the button with that text in an element.
fn press_in(page: &mut Page<'_>, part: &str, label: &str) -> Result<()> {
    let find = format!(
        "[...document.querySelectorAll({} + ' button')].find((b) => b.textContent === {})",
        json!(part),
        json!(label)
    );
    page.wait(&format!("Boolean({find})"))?;
    page.eval(&format!("{find}.click()"))?;
    Ok(())
}

/// A question in every format, its price, and its receipt.
pub(super) fn question(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    open(&mut page, url, "demo-chat")?;
    for (before, format) in ["chat", "responses", "messages", "native"].into_iter().enumerate() {
        page.text(&format!("document.getElementById('format').value = '{format}'"))?;
        page.fill("#text", "Hello there!")?;
        page.press("button[name='send']")?;
        page.wait(&format!("{PRICED} === {}", before + 1))
            .with_context(|| format!("asked in {format}"))?;
    }
    page.wait("!document.querySelector('.turn.failed')")?;
    page.inspect("playground", shots, axe)?;
    page.press("button[name='show-code']")?;
    page.wait("document.getElementById('code-text').textContent.startsWith('curl ')")?;
    page.go(&format!("{url}/console/activity"))?;
    page.says("demo-chat")?;
    page.inspect("activity", shots, axe)?;
    page.follow(".calls a.id")?;
    page.says("Charges")?;
    page.inspect("receipt", shots, axe)?;
    page.go(&format!("{url}/docs"))?;
    page.inspect("reference", shots, axe)
}

/// The controls of the playground follow the record of the chosen model.
pub(super) fn controls(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    let is_hidden = |name: &str, hidden: bool| {
        let around = if name == "tools" { "details" } else { ".field" };
        let field = format!("document.querySelector('[name={name}]').closest('{around}')");
        format!("{field}.hidden === {hidden}")
    };
    let offers = |name: &str, words: &[&str]| {
        let options = format!("[...document.querySelectorAll('#{name} option')]");
        format!(
            "{options}.map((one) => one.value).filter(Boolean).join() === '{}'",
            words.join(",")
        )
    };
    open(&mut page, url, "demo-image")?;
    page.wait(&offers("size", &["auto", "1024x1024", "1536x1024", "1024x1536"]))?;
    page.wait(&offers("quality", &["auto", "low", "medium", "high"]))?;
    page.wait(&offers("file-format", &["png", "jpeg", "webp"]))?;
    for (name, hidden) in
        [("size", false), ("ratio", true), ("effort", true), ("tools", true), ("limit", true)]
    {
        page.wait(&is_hidden(name, hidden)).with_context(|| format!("{name} of demo-image"))?;
    }
    page.inspect("playground-picture", shots, axe)?;
    page.text("document.getElementById('size').value = '1024x1536'")?;
    page.fill("#text", "A lighthouse")?;
    page.press("button[name='send']")?;
    let picture = "document.querySelector('.turn.assistant img')";
    page.wait(&format!("{picture}?.naturalHeight > {picture}?.naturalWidth"))?;
    open(&mut page, url, "demo-echo")?;
    for (name, hidden) in [("size", true), ("tools", true), ("limit", false), ("system", false)] {
        page.wait(&is_hidden(name, hidden)).with_context(|| format!("{name} of demo-echo"))?;
    }
    page.wait("document.getElementById('limit').max === '8192'")?;
    page.wait("document.querySelector('label[for=image]').hidden")?;
    open(&mut page, url, "demo-embed")?;
    for name in ["format", "system", "effort", "temperature", "limit", "tools", "size"] {
        page.wait(&is_hidden(name, true)).with_context(|| format!("{name} of demo-embed"))?;
    }
    page.fill("#text", "A heron by the harbour")?;
    page.press("button[name='send']")?;
    let said = "document.querySelector('.turn.assistant .said')?.textContent";
    page.wait(&format!("{said}.startsWith('256 values: ')"))?;
    page.wait("document.querySelector('.turn.assistant .facts').textContent.includes('$')")?;
    page.wait("!document.querySelector('.turn.failed')")?;
    page.inspect("playground-vector", shots, axe)?;
    page.press("button[name='show-code']")?;
    let code = page.text("document.getElementById('code-text').textContent")?;
    ensure!(code.contains("/v1/embeddings") && code.contains("demo-embed"), "{code}");
    Ok(())
}

/// An answer with every part of Markdown that the page renders.
const MARKDOWN: &str = "# Harbour\n\nSome **bold**, *slanted*, ~~gone~~ and `code`.\n\n\
    1. one\n   - inner\n2. two\n\n- [x] done\n\n> A quote\n\n\
    | Name | Height |\n|:--|--:|\n| Bell Rock | 35 m |\n\n---\n\n\
    ```python\nprint('light')\n```\n\n\
    [kept](https://example.com/a) [lost](javascript:alert(1)) ![cat](https://example.com/c.png)";

/// Answers are Markdown; tags in them stay text.
pub(super) fn markdown(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    page.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": RECORD_FORBIDDEN }))?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    open(&mut page, url, "demo-echo")?;
    ask(&mut page, MARKDOWN, 1)?;
    for part in [
        "h3.level-1",
        "strong",
        "em",
        "del",
        "p > code",
        "ol > li > ul",
        "li.task",
        "blockquote > p",
        ".scroll[tabindex] td.end",
        "hr",
        ".fence .copy",
    ] {
        counts(&mut page, &format!(".turn.assistant .said {part}"), 1)
            .with_context(|| format!("{part} of the answer"))?;
    }
    page.wait("document.querySelector('.fence code').textContent === \"print('light')\"")?;
    page.wait("document.querySelector('.fence .strip span').textContent === 'python'")?;
    let links = "[...document.querySelectorAll('.turn.assistant a')]\
                 .map((a) => `${a.href} ${a.rel} ${a.target}`).join('\\n')";
    let links = page.text(links)?;
    let rel = "noopener noreferrer nofollow _blank";
    let wanted = format!("https://example.com/a {rel}\nhttps://example.com/c.png {rel}");
    ensure!(links == wanted, "{links}");
    counts(&mut page, ".turn img", 0)?;
    page.inspect("playground-markdown", shots, axe)?;
    page.press("#raw")?;
    page.wait("document.querySelector('.turn.assistant .said').textContent.includes('**bold**')")?;
    page.press("#raw")?;
    counts(&mut page, ".turn.assistant .said strong", 1)?;

    let hostile = HOSTILE_TEXTS.join("\n\n");
    ask(&mut page, &hostile, 2)?;
    shows_no_effect(&mut page, "the answer with hostile texts")?;
    let elements = "[...document.querySelectorAll('.turn.assistant:last-child .said *')]\
                    .map((e) => e.localName).filter((name) => name !== 'p' && name !== 'br').join()";
    let elements = page.text(elements)?;
    ensure!(elements.is_empty(), "elements of hostile texts: {elements}");
    // A text that is costly for careless patterns is shown at once.
    let flood = "(async () => { const begin = performance.now(); \
         const said = document.querySelector('.turn.assistant .said'); \
         const module = [...document.querySelectorAll('link[rel=modulepreload]')] \
           .find((link) => /\\/markdown-[0-9a-f]+\\.js$/.test(link.href)).href; \
         const { showMarkdown } = await import(module); \
         for (const part of ['[', '*a ', '> ', '`', '[a](', '_a', '- ', '| ', '![']) \
           showMarkdown(document.createElement('div'), part.repeat(200000 / part.length)); \
         return performance.now() - begin < 20000; })()";
    ensure!(page.eval(flood)? == json!(true), "Markdown takes too long");
    Ok(())
}

/// A conversation survives a reload, is listed, and belongs to its account.
pub(super) fn kept(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, binary, data, .. } = stage;
    let link = new_account(binary, data, url, "pia")?;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/playground"))?;
    ready(&mut page)?;
    page.press("button[name='show-kept']")?;
    page.says("No conversations yet")?;
    page.inspect("playground-kept-none", shots, axe)?;
    page.press("#close-kept")?;
    open(&mut page, url, "demo-echo")?;
    page.fill("#system", "Answer briefly.")?;
    ask(&mut page, "The **first** question", 1)?;
    let cost = page.text("document.getElementById('cost').textContent")?;
    page.wait("location.search === ''")?;
    page.go(&format!("{url}/console/playground"))?;
    ready(&mut page)?;
    counts(&mut page, ".turn.assistant .said strong", 1)?;
    page.wait("document.getElementById('model-1').value === 'demo-echo'")?;
    page.wait("document.getElementById('system').value === 'Answer briefly.'")?;
    page.wait(&format!("document.getElementById('cost').textContent === {}", json!(cost)))?;
    page.press("button[name='new']")?;
    counts(&mut page, ".turn", 0)?;
    ask(&mut page, "Another question", 1)?;
    page.press("button[name='show-kept']")?;
    counts(&mut page, "#kept-list li", 2)?;
    page.inspect("playground-kept", shots, axe)?;
    press_in(&mut page, "#kept-list li:last-child", "Rename")?;
    page.fill("#kept-list input", "Lighthouses")?;
    page.enter()?;
    press_in(&mut page, "#kept-list", "Lighthouses")?;
    page.wait("document.querySelector('.turn.user').textContent.includes('first')")?;

    // Another account in the same browser does not see them.
    page.send("Sign out")?;
    page.go(&link)?;
    page.fill("#password", PASSWORD)?;
    page.fill("#again", PASSWORD)?;
    page.send("Set the password")?;
    page.go(&format!("{url}/console/keys/new"))?;
    page.fill("#name", "of pia")?;
    page.fill("#cap", "1")?;
    page.send("Create key")?;
    page.go(&format!("{url}/console/playground"))?;
    ready(&mut page)?;
    counts(&mut page, ".turn", 0)?;
    page.press("button[name='show-kept']")?;
    page.says("No conversations yet")?;
    page.press("#close-kept")?;
    page.send("Sign out")?;

    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/playground"))?;
    ready(&mut page)?;
    page.press("button[name='show-kept']")?;
    counts(&mut page, "#kept-list li", 2)?;
    press_in(&mut page, "#kept-list li:last-child", "Delete")?;
    press_in(&mut page, "#kept-list li:last-child", "Really delete?")?;
    counts(&mut page, "#kept-list .link", 1)?;
    press_in(&mut page, "#kept-actions", "Delete all")?;
    press_in(&mut page, "#kept-actions", "Really delete all?")?;
    page.says("No conversations yet")?;

    // The sign-out deletes what its account chose to delete.
    page.press("#delete-at-sign-out")?;
    page.press("#close-kept")?;
    ask(&mut page, "A secret", 1)?;
    page.send("Sign out")?;
    // Only the database of the other account is left.
    page.wait("indexedDB.databases().then((all) => all.length === 1)")
}

/// A link carries a conversation to another browser.
pub(super) fn shared(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let link = {
        let mut page = Page::open(browser)?;
        sign_in(&mut page, url, "olga", PASSWORD)?;
        open(&mut page, url, "demo-echo")?;
        page.fill("#system", "Answer as a pilot.")?;
        ask(&mut page, "A **shared** question", 1)?;
        page.press("button[name='show-share']")?;
        page.wait("document.getElementById('share-link').textContent.includes('#s=')")?;
        page.inspect("playground-share", shots, axe)?;
        let link = page.text("document.getElementById('share-link').textContent")?;
        page.press("#close-share")?;
        // Letters without a pattern cannot be compressed.
        page.eval(
            "document.getElementById('system').value = Array.from({ length: 40000 }, () => \
             String.fromCharCode(33 + Math.random() * 90)).join('')",
        )?;
        page.press("button[name='show-share']")?;
        page.says("Chat programs and mail cut links")?;
        link
    };
    let mut page = Page::open(browser)?;
    let calls = "window.calls = []; const real = window.fetch; \
                 window.fetch = (...all) => { window.calls.push(String(all[0])); return real(...all) };";
    page.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": calls }))?;
    page.go(&link)?;
    page.fill("#login", "olga")?;
    page.fill("#password", PASSWORD)?;
    page.send("Sign in")?;
    page.says("This is a copy of a shared conversation")?;
    counts(&mut page, ".turn.assistant .said strong", 1)?;
    page.wait("document.getElementById('model-1').value === 'demo-echo'")?;
    page.wait("document.getElementById('system').value === 'Answer as a pilot.'")?;
    page.wait("location.hash === ''")?;
    page.inspect("playground-shared", shots, axe)?;
    page.wait("window.calls.length === 0")?;
    ask(&mut page, "And one more", 1)?;
    page.wait("window.calls.length > 0")?;
    for damaged in ["#s=%25", "#s=AAAA", &format!("#s={}", "A".repeat(500_000))] {
        page.go("about:blank")?;
        page.go(&format!("{url}/console/playground{damaged}"))?;
        page.says("The shared link cannot be opened")?;
    }
    Ok(())
}

/// Up to four models answer, each with its price. The sum is exact.
pub(super) fn compared(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    open(&mut page, url, "demo-chat")?;
    for count in 2..=4 {
        page.press("button[name='add-model']")?;
        counts(&mut page, ".column", count)?;
    }
    page.wait("document.querySelector('button[name=add-model]').hidden")?;
    ask(&mut page, "Four at once", 4)?;
    page.inspect("playground-four", shots, axe)?;
    let sum = "(() => { const nanos = (text) => { const [whole, part] = text.split('.'); \
         return BigInt(whole + part.padEnd(9, '0')); }; \
         const amounts = [...document.querySelectorAll('.facts')] \
           .map((facts) => nanos(facts.textContent.match(/[$]([0-9.]+)/)[1])); \
         const shown = nanos(document.getElementById('cost').textContent.match(/[$]([0-9.]+)/)[1]); \
         return amounts.length === 4 && shown > 0n && amounts.reduce((a, b) => a + b) === shown; })()";
    page.wait(sum)?;
    let models =
        "new Set([...document.querySelectorAll('.column select')].map((s) => s.value)).size";
    page.wait(&format!("{models} === 4"))?;
    page.press(".column:last-child .remove")?;
    counts(&mut page, ".column", 3)?;

    // A preset keeps the models and the settings.
    page.fill("#system", "Be kind.")?;
    page.press("details:has(#preset) summary")?;
    page.fill("#preset-name", "three models")?;
    page.press("button[name='save-preset']")?;
    page.wait("document.getElementById('preset-status').textContent.startsWith('Saved')")?;
    open(&mut page, url, "demo-echo")?;
    page.press("button[name='load-preset']")?;
    counts(&mut page, ".column", 3)?;
    page.wait("document.getElementById('system').value === 'Be kind.'")?;
    page.wait("document.getElementById('model-1').value === 'demo-chat'")?;
    page.press("button[name='delete-preset']")?;
    page.wait("document.querySelector('button[name=load-preset]').disabled")
}

/// Wrong tools and schemas are refused with the place of the error; right ones are sent.
pub(super) fn checked(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    open(&mut page, url, "demo-chat")?;
    page.press("details:has(#schema) summary")?;
    page.fill(
        "#schema",
        "{\n  \"type\": \"object\",\n  \"required\": [\"city\"],\n  \"properties\": {}\n}",
    )?;
    page.fill("#text", "A city?")?;
    page.press("button[name='send']")?;
    page.says("JSON schema: Line 3, column 16 (schema.required[0])")?;
    counts(&mut page, ".turn", 0)?;
    page.wait("document.activeElement.id === 'schema'")?;
    page.inspect("playground-schema", shots, axe)?;
    page.press("button[name='example-schema']")?;
    for (before, format) in ["chat", "responses", "messages", "native"].into_iter().enumerate() {
        page.text(&format!("document.getElementById('format').value = '{format}'"))?;
        ask(&mut page, "A city?", before + 1).with_context(|| format!("asked in {format}"))?;
        let answer = "JSON.parse([...document.querySelectorAll('.turn.assistant .said')].at(-1).textContent)";
        page.wait(&format!(
            "typeof {answer}.city === 'string' && Number.isInteger({answer}.population)"
        ))
        .with_context(|| format!("the schema in {format}"))?;
    }
    page.fill("#schema", " ")?;
    page.press("details:has(#tools) summary")?;
    page.fill("#tools", "[{ \"name\": \"get weather\" }]")?;
    page.fill("#text", "And the weather?")?;
    page.press("button[name='send']")?;
    page.says("Tools: Line 1, column 12 (tools[0].name)")?;
    page.press("button[name='example-tool']")?;
    page.press("button[name='new']")?;
    ask(&mut page, "Use the get_weather tool with {\"city\": \"Oslo\"}", 1)?;
    page.wait("document.querySelector('.turn.calls').textContent.includes('Oslo')")?;
    page.go(&format!("{url}/console/playground"))?;
    ready(&mut page)?;
    page.fill(".turn.calls input", "sunny")?;
    page.press(".turn.calls button")?;
    page.wait(&format!("{PRICED} === 2"))?;
    page.wait("!document.querySelector('.turn.failed')")
}
