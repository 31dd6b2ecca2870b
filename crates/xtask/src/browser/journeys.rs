//! The journeys. Later ones build on earlier ones.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::actions::{NEW_PASSWORD, PASSWORD, call_as_shown, sign_in};
use super::office;
use super::page::{DEFAULT_SCREEN, Page, SCREENS};
use super::stage::BrowserStage;

type Journey = fn(&mut BrowserStage) -> Result<()>;

/// All journeys with their names.
pub(super) const ALL: [(&str, Journey); 17] = [
    ("from the set-up link to the first answered call", first_call),
    ("an address is confirmed by mail", confirm),
    ("a question in every format, and where its price is told", playground),
    ("controls that a model has, a picture and a vector", playground_controls),
    ("groups and days of a chart lead to their calls", super::activity::journey),
    ("a key is edited, rotated and revoked", keys),
    ("texts that would be scripts stay texts", super::hostile::texts),
    ("signing up with an address that is proved by mail", sign_up),
    ("another password by mail", reset),
    ("a team, a member, a key they share, and what it cost", super::teams::journey),
    ("a program shows a code and is signed in for a team", super::agents::journey),
    ("signing in through a provider of identities", identity),
    ("an app with codes as the second step", totp),
    ("a passkey as the second step and instead of a password", passkey),
    ("what the gateway is made of, seen by an administrator", office::look_around),
    ("a provider and a model, made in the console and served at once", office::provider),
    ("an account is capped and its ways in are kept", office::person),
];

fn first_call(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, setup, .. } = stage;
    let mut page = Page::open(browser)?;
    page.go(setup)?;
    page.inspect("setup", shots, axe)?;
    page.fill("#username", "olga")?;
    page.fill("#email", "olga@example.com")?;
    page.fill("#password", "short")?;
    page.fill("#again", "short")?;
    page.send("Create the owner")?;
    page.says("At least 10 characters")?;
    page.inspect("setup-wrong", shots, axe)?;
    page.fill("#password", PASSWORD)?;
    page.fill("#again", PASSWORD)?;
    page.send("Create the owner")?;
    page.says("Overview")?;
    page.inspect("overview", shots, axe)?;
    page.send("New key")?;
    page.inspect("key-new", shots, axe)?;
    page.fill("#name", "first steps")?;
    page.fill("#cap", "5")?;
    page.send("Create key")?;
    page.says("Copy first steps now")?;
    page.inspect("key-shown", shots, axe)?;
    call_as_shown(&mut page)?;
    page.go(&format!("{url}/console"))?;
    page.says("first steps")
}

fn confirm(stage: &mut BrowserStage) -> Result<()> {
    let link = stage.mailbox.link("olga@example.com")?;
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    page.go(&link)?;
    ensure!(!page.text("location.href")?.contains("/link/"), "the word stays in the address");
    page.inspect("confirm", shots, axe)?;
    page.send("Confirm the address")?;
    sign_in(&mut page, url, "olga@example.com", PASSWORD)?;
    page.says("Overview")
}

fn playground(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.go(&format!("{url}/console/playground?model=demo-chat"))?;
    for (before, format) in ["chat", "responses", "messages", "native"].into_iter().enumerate() {
        page.text(&format!("document.getElementById('format').value = '{format}'"))?;
        page.fill("#text", "Hello there!")?;
        page.press("button[name='send']")?;
        let priced = "[...document.querySelectorAll('.turn.assistant .facts')]\
                      .filter((facts) => facts.textContent.includes('$')).length";
        page.wait(&format!("{priced} === {}", before + 1))
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
fn playground_controls(stage: &mut BrowserStage) -> Result<()> {
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
    page.go(&format!("{url}/console/playground?model=demo-image"))?;
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
    page.go(&format!("{url}/console/playground?model=demo-echo"))?;
    for (name, hidden) in [("size", true), ("tools", true), ("limit", false), ("system", false)] {
        page.wait(&is_hidden(name, hidden)).with_context(|| format!("{name} of demo-echo"))?;
    }
    page.wait("document.getElementById('limit').max === '8192'")?;
    page.wait("document.querySelector('label[for=image]').hidden")?;
    page.go(&format!("{url}/console/playground?model=demo-embed"))?;
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

fn keys(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "olga", PASSWORD)?;
    page.follow("a[href$='/edit']")?;
    page.inspect("key-edit", shots, axe)?;
    page.press("details summary")?;
    page.fill("#rpm", "60")?;
    page.fill("#ips", "127.0.0.1")?;
    page.send("Save")?;
    page.follow("a[href$='/edit']")?;
    page.wait("document.querySelector('#rpm').value === '60'")?;
    page.follow("a[href$='/rotate']")?;
    page.inspect("key-rotate", shots, axe)?;
    page.send("Make the new value")?;
    page.says("The new value")?;
    page.go(&format!("{url}/console/keys"))?;
    page.inspect("keys", shots, axe)?;
    page.fill("#q", "no such key")?;
    page.send("Search")?;
    page.says("No matching keys")?;
    page.inspect("keys-no-match", shots, axe)?;
    page.follow(".empty a")?;
    page.follow("th a.sort[href*='sort=spent']")?;
    page.wait("document.querySelector('th[aria-sort]').textContent.includes('Spent')")?;
    page.press("input.choice")?;
    page.send("Revoke the chosen keys")?;
    page.says("Revoke 1 key?")?;
    page.inspect("keys-revoke", shots, axe)?;
    page.follow("main .actions a")?;
    let [_, _, phone] = SCREENS;
    page.look(phone)?;
    let list = "getComputedStyle(document.querySelector('.places ul')).display";
    page.wait(&format!("{list} === 'none'"))?;
    page.press(".places label")?;
    page.wait(&format!("{list} === 'grid'"))?;
    page.follow(".places a[href='/console/keys']")?;
    page.look(DEFAULT_SCREEN)?;
    page.follow("a[href$='/revoke']")?;
    page.inspect("key-revoke", shots, axe)?;
    page.send("Revoke the key")?;
    page.says("Revoked")
}

fn sign_up(stage: &mut BrowserStage) -> Result<()> {
    {
        let BrowserStage { browser, url, shots, axe, .. } = stage;
        let mut page = Page::open(browser)?;
        sign_in(&mut page, url, "olga", PASSWORD)?;
        page.go(&format!("{url}/console/people"))?;
        page.inspect("people", shots, axe)?;
        page.send("Settings")?;
        page.press("input[name=signup][value=open]")?;
        page.fill("#signup_cap_usd", "5")?;
        page.inspect("settings", shots, axe)?;
        page.send("Save")?;
        page.says("Saved.")?;
        page.go(&format!("{url}/signup"))?;
        page.inspect("signup", shots, axe)?;
        page.fill("#email", "mia@example.com")?;
        page.send("Send me the link")?;
        page.says("Look into your mail")?;
        page.inspect("signup-sent", shots, axe)?;
    }
    let link = stage.mailbox.link("mia@example.com")?;
    let BrowserStage { browser, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    page.go(&link)?;
    page.inspect("signup-new", shots, axe)?;
    page.fill("#username", "mia")?;
    page.fill("#password", PASSWORD)?;
    page.says("ood.")?;
    page.fill("#again", PASSWORD)?;
    page.send("Create the account")?;
    page.says("No keys yet")?;
    page.inspect("overview-empty", shots, axe)?;
    page.go(&link)?;
    page.says("This link does not work")?;
    page.inspect("link-dead", shots, axe)
}

fn reset(stage: &mut BrowserStage) -> Result<()> {
    {
        let BrowserStage { browser, url, shots, axe, .. } = stage;
        let mut page = Page::open(browser)?;
        sign_in(&mut page, url, "mia", "not my password")?;
        page.says("do not go together")?;
        page.inspect("login-wrong", shots, axe)?;
        page.follow("a[href='/reset']")?;
        page.inspect("reset", shots, axe)?;
        page.fill("#login", "mia")?;
        page.send("Send me the link")?;
        page.says("Look into your mail")?;
    }
    let link = stage.mailbox.link("mia@example.com")?;
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    page.go(&link)?;
    page.inspect("reset-new", shots, axe)?;
    page.fill("#password", NEW_PASSWORD)?;
    page.fill("#again", NEW_PASSWORD)?;
    page.send("Set the password")?;
    page.says("Overview")?;
    page.send("Sign out")?;
    sign_in(&mut page, url, "mia", NEW_PASSWORD)?;
    page.says("Overview")
}

fn identity(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    page.go(&format!("{url}/login"))?;
    page.inspect("login", shots, axe)?;
    page.send("Continue with corp")?;
    page.fill("input[name=login]", "carla")?;
    page.fill("input[name=password]", "anything")?;
    page.follow("button[type=submit]")?;
    page.follow("button[type=submit]")?;
    page.says("Overview")?;
    page.says("carla")?;
    page.go(&format!("{url}/console/account"))?;
    page.says("carla@corp.example")?;
    page.inspect("account-linked", shots, axe)
}

/// Script that computes the code of an authenticator app (RFC 6238).
const TOTP_SCRIPT: &str = r"(async (secret) => {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
  const bits = [...secret].map((c) => letters.indexOf(c).toString(2).padStart(5, '0')).join('');
  const bytes = Uint8Array.from(bits.match(/.{8}/g), (b) => parseInt(b, 2));
  const step = new DataView(new ArrayBuffer(8));
  step.setBigUint64(0, BigInt(Math.floor(Date.now() / 30000) + ahead));
  const way = { name: 'HMAC', hash: 'SHA-1' };
  const key = await crypto.subtle.importKey('raw', bytes, way, false, ['sign']);
  const tag = new DataView(await crypto.subtle.sign('HMAC', key, step));
  const number = tag.getUint32(tag.getUint8(19) & 15) & 0x7fffffff;
  return String(number % 1000000).padStart(6, '0');
})";

fn code(page: &mut Page<'_>, secret: &str, ahead: u8) -> Result<String> {
    page.text(&format!("{}({})", TOTP_SCRIPT.replace("ahead", &ahead.to_string()), json!(secret)))
}

fn totp(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, .. } = stage;
    let mut page = Page::open(browser)?;
    sign_in(&mut page, url, "mia", NEW_PASSWORD)?;
    page.go(&format!("{url}/console/account"))?;
    page.inspect("account", shots, axe)?;
    page.send("Add an app with codes")?;
    page.inspect("totp", shots, axe)?;
    let secret = page.text("document.querySelector('input[name=secret]').value")?;
    let now = code(&mut page, &secret, 0)?;
    page.fill("#code", &now)?;
    page.send("Add it")?;
    page.says("Your recovery codes")?;
    page.inspect("recovery-codes", shots, axe)?;
    page.send("I have kept them")?;
    page.send("Sign out")?;
    sign_in(&mut page, url, "mia", NEW_PASSWORD)?;
    page.says("One more step")?;
    page.inspect("second", shots, axe)?;
    // The current code was used to add the app; the next one is already valid.
    let next = code(&mut page, &secret, 1)?;
    page.fill("#code", &next)?;
    page.send("Go on")?;
    page.says("Overview")
}

fn passkey(stage: &mut BrowserStage) -> Result<()> {
    let BrowserStage { browser, url, shots, axe, binary, data, .. } = stage;
    let made = binary
        .command()
        .args(["users", "create", "nora", "--json", "--data"])
        .arg(data)
        .output()?;
    let made: Value = serde_json::from_slice(&made.stdout).context("users create")?;
    let link = made.get("link").and_then(Value::as_str).context("no link")?;
    let path = link.split_once("/link/").context("no link")?.1;
    let mut page = Page::open(browser)?;
    page.call("WebAuthn.enable", json!({}))?;
    let device = json!({ "options": {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": true,
        "hasUserVerification": true, "isUserVerified": true, "automaticPresenceSimulation": true,
    } });
    page.call("WebAuthn.addVirtualAuthenticator", device)?;
    page.go(&format!("{url}/link/{path}"))?;
    page.fill("#password", PASSWORD)?;
    page.fill("#again", PASSWORD)?;
    page.send("Set the password")?;
    page.go(&format!("{url}/console/account"))?;
    page.fill("form[data-passkey] #name", "phone")?;
    page.send("Add a passkey")?;
    page.says("Your recovery codes")?;
    page.send("I have kept them")?;
    page.says("phone")?;
    page.inspect("account-passkey", shots, axe)?;
    page.send("Sign out")?;
    sign_in(&mut page, url, "nora", PASSWORD)?;
    page.inspect("second-passkey", shots, axe)?;
    page.send("Use your passkey")?;
    page.says("Overview")?;
    page.send("Sign out")?;
    page.send("Sign in with a passkey")?;
    page.says("Overview")?;
    page.says("nora")
}
