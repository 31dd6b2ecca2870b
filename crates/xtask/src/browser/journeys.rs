//! The journeys. Later ones build on earlier ones.

use anyhow::{Result, ensure};
use serde_json::json;

use super::actions::{NEW_PASSWORD, PASSWORD, call_as_shown, new_account, sign_in};
use super::office;
use super::page::{DEFAULT_SCREEN, Page, SCREENS};
use super::playground;
use super::stage::BrowserStage;

type Journey = fn(&mut BrowserStage) -> Result<()>;

/// All journeys with their names.
pub(super) const ALL: [(&str, Journey); 25] = [
    ("from the set-up link to the first answered call", first_call),
    ("an address is confirmed by mail", confirm),
    ("a question in every format, and where its price is told", playground::question),
    ("controls that a model has, a picture and a vector", playground::controls),
    ("Markdown of an answer, and texts that would be scripts", playground::markdown),
    ("a conversation stays in the browser of its account", playground::kept),
    ("a link opens a copy of a conversation", playground::shared),
    ("four models answer, and their costs are summed", playground::compared),
    ("tools and schemas are checked before they are sent", playground::checked),
    ("groups and days of a chart lead to their calls", super::activity::journey),
    ("a statement is opened, and its file has the same sums", super::statements::journey),
    ("times and days are those of the browser's zone", super::zones::journey),
    ("a key is edited, rotated and revoked", keys),
    ("texts that would be scripts stay texts", super::hostile::texts),
    ("an alert is chosen, found and told by mail", super::alerts::journey),
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
    let link = new_account(binary, data, url, "nora")?;
    let mut page = Page::open(browser)?;
    page.call("WebAuthn.enable", json!({}))?;
    let device = json!({ "options": {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": true,
        "hasUserVerification": true, "isUserVerified": true, "automaticPresenceSimulation": true,
    } });
    page.call("WebAuthn.addVirtualAuthenticator", device)?;
    page.go(&link)?;
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
