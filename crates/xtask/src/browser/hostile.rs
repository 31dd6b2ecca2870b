//! Script injection: texts that would run if a page did not escape them, as names of keys, as a
//! model, in URLs and in search fields. No page may run one, violate its content security policy or
//! show anything but its letters.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::actions::{PASSWORD, sign_in};
use super::page::Page;
use super::stage::BrowserStage;

/// Model with a hostile name.
pub(super) const MODEL: &str = "odd/<img src=x onerror=alert(1)>'\"&";

/// Hostile texts, within the maximum length of a key's name.
pub(super) const HOSTILE_TEXTS: [&str; 40] = [
    "<script>alert(1)</script>",
    "<ScRiPt>alert(1)</sCrIpT>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<script src=//127.0.0.1:9/x.js></script>",
    "<img src=x onerror=alert(1)>",
    "<img/src/onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x>",
    "<body onload=alert(1)>",
    "<iframe src=javascript:alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<object data=javascript:alert(1)>",
    "<embed src=javascript:alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<select autofocus onfocus=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<math><mtext><script>alert(1)</script>",
    "<a href=javascript:alert(1)>x</a>",
    "<form action=javascript:alert(1)><button>x",
    "<base href=//127.0.0.1:9/>",
    "<meta http-equiv=refresh content=0;url=//127.0.0.1:9/>",
    "<link rel=stylesheet href=//127.0.0.1:9/x.css>",
    "<style>@import'//127.0.0.1:9/x.css'</style>",
    "\"><script>alert(1)</script>",
    "'><script>alert(1)</script>",
    "\" onmouseover=alert(1) autofocus onfocus=alert(1) x=\"",
    "' onfocus=alert(1) autofocus='",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "<%= 7*7 %>",
    "<!--<img src=--><img src=x onerror=alert(1)>",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
];

/// Script that runs before the page and records forbidden events.
pub(super) const RECORD_FORBIDDEN: &str = "window.happened = [];\
    for (const name of ['alert', 'confirm', 'prompt', 'open', 'print'])\
      window[name] = () => { window.happened.push(name); return null };\
    document.addEventListener('securitypolicyviolation',\
      (e) => window.happened.push(e.violatedDirective + ' ' + e.blockedURI));";

/// Script that lists elements no text may add to a page.
const LIST_FORBIDDEN: &str = "[...document.querySelectorAll('iframe, object, embed, base, marquee, video, \
     math, style, meta[http-equiv], [onerror], [onload], [onfocus], [onbegin], [ontoggle], \
     [onstart], [onmouseover]')].map((e) => e.outerHTML)\
    .concat([...document.scripts].filter((s) => !s.src.startsWith(location.origin + '/') && \
     s.type !== 'application/json').map((s) => s.outerHTML))\
    .concat([...document.querySelectorAll('[href], [src], [action]')]\
     .filter((e) => /^(javascript:|vbscript:|data:text)/i.test(e.href || e.src || e.action || ''))\
     .map((e) => e.outerHTML)).join('\\n')";

/// Opens a page and fails if a text had an effect.
fn expect_harmless(page: &mut Page<'_>, url: &str) -> Result<()> {
    page.go(url)?;
    shows_no_effect(page, url)
}

/// Fails if a text had an effect on the page.
pub(super) fn shows_no_effect(page: &mut Page<'_>, url: &str) -> Result<()> {
    let happened = page.text("JSON.stringify(window.happened)")?;
    ensure!(happened == "[]", "{url}: {happened}");
    let strange = page.text(LIST_FORBIDDEN)?;
    ensure!(strange.is_empty(), "{url}: {strange}");
    Ok(())
}

/// Percent-encodes a text.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub(super) fn texts(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, .. } = stage;
    let mut page = Page::open(browser)?;
    page.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": RECORD_FORBIDDEN }))?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.says("Overview")?;
    // Calls the endpoints of the forms with the session of the page.
    let make = format!(
        "(async () => {{ const made = []; for (const name of {}) {{\
           const got = await fetch('/console/keys', {{ method: 'POST',\
             body: new URLSearchParams({{ name, unlimited: 'yes' }}) }});\
           const key = (await got.text()).match(/sk-pt-[A-Za-z0-9]+-[A-Za-z0-9]+/);\
           if (!key) return 'no key named ' + name;\
           made.push(key[0]); }}\
         const call = await fetch('/v1/chat/completions', {{ method: 'POST',\
           headers: {{ authorization: 'Bearer ' + made[0], 'content-type': 'application/json' }},\
           body: JSON.stringify({{ model: {}, max_tokens: 9, user: '<svg onload=alert(1)>',\
             metadata: {{ note: '<img src=x onerror=alert(1)>' }},\
             messages: [{{ role: 'user', content: '<script>alert(1)</script>' }}] }}) }});\
         if (!call.ok) return await call.text();\
         return made.map((key) => key.split('-')[2]).join(' '); }})()",
        json!(HOSTILE_TEXTS.as_slice()),
        json!(MODEL)
    );
    let made = page.text(&make)?;
    let ids: Vec<&str> = made.split(' ').collect();
    ensure!(ids.len() == HOSTILE_TEXTS.len(), "{made}");

    let model = escaped(MODEL);
    expect_harmless(&mut page, &format!("{url}/console"))?;
    // Settled calls appear after they are posted to the store.
    page.go(&format!("{url}/console/activity"))?;
    page.wait(&format!(
        "document.body.textContent.includes({}) || (location.reload(), false)",
        json!(MODEL)
    ))?;
    for path in [
        "/console/activity?by=key",
        "/console/activity?by=model",
        "/console/activity?by=lane&range=1y",
        "/console/activity",
        "/console/account",
        "/console/people",
        "/console/playground",
        "/models",
        "/docs",
    ] {
        expect_harmless(&mut page, &format!("{url}{path}"))?;
    }
    expect_harmless(&mut page, &format!("{url}/models/{model}"))?;
    expect_harmless(&mut page, &format!("{url}/console/playground?model={model}"))?;
    expect_harmless(&mut page, &format!("{url}/console/activity?model={model}"))?;
    page.go(&format!("{url}/console/activity"))?;
    page.follow(".calls a.id")?;
    let receipt = page.text("location.href")?;
    expect_harmless(&mut page, &receipt)?;
    for (id, name) in ids.iter().zip(HOSTILE_TEXTS) {
        let text = escaped(name);
        for path in [
            format!("/console/keys/{id}/edit"),
            format!("/models?q={text}"),
            format!("/console/activity?model={text}&key={text}&session={text}&error={text}"),
            format!("/console/activity?by={text}&lane={text}&status={text}"),
            format!("/login?next={text}"),
            format!("/console/{text}"),
        ] {
            expect_harmless(&mut page, &format!("{url}{path}"))?;
        }
        expect_harmless(&mut page, &format!("{url}/console/keys/{id}/revoke"))?;
        page.wait(&format!("document.body.textContent.includes({})", json!(name)))?;
    }
    revoke(&mut page, &ids).context("the keys of this journey are revoked")
}

/// Revokes the keys; only their crossed-out names remain.
fn revoke(page: &mut Page<'_>, ids: &[&str]) -> Result<()> {
    let done = page.eval(&format!(
        "(async () => {{ for (const id of {}) \
           await fetch(`/console/keys/${{id}}/revoke`, {{ method: 'POST' }}); return true }})()",
        json!(ids)
    ))?;
    ensure!(done == Value::Bool(true), "{done}");
    Ok(())
}
