//! Making and revoking keys.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use canon::Money;
use catalog::Kind;
use http::StatusCode;
use ledger::Micros;
use maud::{Markup, html};
use store::{Account, KeyRecord};

use super::overview::KeyState;
use super::{Tab, copyable, tabs};
use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs, described, disguised, notes};
use crate::session::Signed;
use crate::shell::{Shell, good, page, see_other};
use crate::snippet::{self, Format};
use crate::trouble::Trouble;
use crate::{KeyAsk, address, show};

const DAY: Micros = 24 * 3_600 * 1_000_000;
/// How many keys that are not revoked an account may have.
const MOST_KEYS: usize = 100;
const LONGEST_NAME: usize = 60;
const LONGEST_DAYS: i64 = 3_650;
const MOST_MODELS: usize = 50;
/// Longer than any honest value of a short field.
const FAR_TOO_LONG: usize = 4_096;
const LEAST_CAP: Money = Money::nanos(10_000_000);
const LARGEST_CAP: Money = Money::nanos(1_000_000_000_000_000);

/// `GET /console/keys`: where a browser lands that reloads a sent form.
pub(crate) async fn list(_: Signed) -> Response {
    see_other("/console")
}

/// `GET /console/keys/new`
pub(crate) async fn ask(signed: Signed) -> Result<Response, Trouble> {
    if !signed.may_make_keys() {
        return Err(Trouble::Forbidden);
    }
    Ok(form(StatusCode::OK, &signed.account, &Fields::default(), &Wrongs::default()))
}

/// `POST /console/keys`
pub(crate) async fn create(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    if !signed.may_make_keys() {
        return Err(Trouble::Forbidden);
    }
    let account = &signed.account;
    let mut wrongs = Wrongs::default();
    let ask = read(&desk, &fields, &mut wrongs)?;
    let own = desk.store.keys_of(&account.id).await?;
    if own.iter().filter(|key| key.revoked.is_none()).count() >= MOST_KEYS {
        wrongs.add("name", format!("An account may have {MOST_KEYS} keys. Revoke one first."));
    }
    if !wrongs.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, account, &fields, &wrongs));
    }
    let (record, text) = desk.host.new_key(&account.id, ask).map_err(|error| {
        tracing::error!("a key could not be made: {error}");
        Trouble::Broken
    })?;
    desk.store.add_key(&record).await?;
    desk.host.key_changed(record.clone());
    desk.note(&account.id, "key.create", &record.id, &record.name).await;
    Ok(good(&Shell::signed("Your new key", account), &shown_once(&desk, &record, &text)))
}

/// Reads the form; what is wrong with it goes to `wrongs`.
fn read(desk: &Desk, fields: &Fields, wrongs: &mut Wrongs) -> Result<KeyAsk, Trouble> {
    let name = fields.short("name", FAR_TOO_LONG)?;
    if name.is_empty() {
        wrongs.add("name", "Give the key a name, so that you know it again.");
    } else if name.chars().count() > LONGEST_NAME {
        wrongs.add("name", format!("At most {LONGEST_NAME} characters, please."));
    } else if disguised(name) {
        wrongs.add("name", "This name holds characters that cannot be seen.");
    }
    let cap = match cap(fields.short("cap", FAR_TOO_LONG)?, fields.ticked("unlimited")) {
        Ok(cap) => cap,
        Err(why) => {
            wrongs.add("cap", why);
            None
        }
    };
    let days = match days(fields.short("days", FAR_TOO_LONG)?) {
        Ok(days) => days,
        Err(why) => {
            wrongs.add("days", why);
            None
        }
    };
    let models = models(fields.get("models"));
    if models.len() > MOST_MODELS {
        wrongs.add("models", format!("At most {MOST_MODELS} models, please."));
    } else {
        let known = |id: &String| desk.catalog(|catalog| catalog.get(id).is_some());
        let unknown: Vec<String> = models.iter().filter(|id| !known(id)).cloned().collect();
        if !unknown.is_empty() {
            let shown: String = unknown.join(", ").chars().take(120).collect();
            wrongs.add("models", format!("This gateway has no model {shown}."));
        }
    }
    let expires = days.map(|days| desk.now().saturating_add(days.saturating_mul(DAY)));
    Ok(KeyAsk { name: name.to_owned(), cap, models, expires })
}

fn cap(text: &str, unlimited: bool) -> Result<Option<Money>, &'static str> {
    let text = text.strip_prefix('$').unwrap_or(text).trim();
    match (text.is_empty(), unlimited) {
        (true, true) => return Ok(None),
        (true, false) => return Err("Set a cap in US dollars, or tick Unlimited Quota."),
        (false, true) => return Err("Either a cap or Unlimited Quota, not both."),
        (false, false) => {}
    }
    let cap: Money =
        text.parse().map_err(|_| "Write an amount in US dollars, such as 25 or 2.50.")?;
    if cap < LEAST_CAP {
        return Err("At least 0.01 dollars, please.");
    }
    if cap > LARGEST_CAP {
        return Err("At most 1000000 dollars; tick Unlimited Quota for more.");
    }
    Ok(Some(cap))
}

fn days(text: &str) -> Result<Option<i64>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<i64>() {
        Ok(days) if (1..=LONGEST_DAYS).contains(&days) => Ok(Some(days)),
        Ok(_) | Err(_) => Err("A whole number of days from 1 to 3650, or nothing."),
    }
}

/// The ids in a list, each once, in order.
fn models(text: &str) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for id in text.split([',', '\n', '\r']).map(str::trim).filter(|id| !id.is_empty()) {
        if !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
    }
    ids
}

fn form(status: StatusCode, account: &Account, fields: &Fields, wrongs: &Wrongs) -> Response {
    let models_wrong = wrongs.of("models");
    let models_help = "One id per line. Leave empty to allow every model.";
    let body = html! {
        section.card {
            p.crumbs { a href="/console" { "Console" } " / Keys" }
            h1 { "New key" }
            @if !wrongs.is_empty() {
                p.objection role="alert" { "Some fields need another look." }
            }
            form method="post" action="/console/keys" {
                (Input {
                    name: "name",
                    label: "Name",
                    value: fields.get("name"),
                    required: true,
                    focus: true,
                    help: Some("Where it is used, for example: website, nightly report."),
                    ..Input::default()
                }.show(wrongs))
                fieldset {
                    legend { "Quota" }
                    label.tick {
                        input type="checkbox" name="unlimited" value="yes" data-disables="cap"
                            checked[fields.ticked("unlimited")];
                        span {
                            "Unlimited Quota"
                            span.help { "The key may spend without an upper end." }
                        }
                    }
                    (Input {
                        name: "cap",
                        label: "Spending cap in US dollars",
                        value: fields.get("cap"),
                        mode: Some("decimal"),
                        optional: false,
                        help: Some("Calls that would pass it are refused."),
                        ..Input::default()
                    }.show(wrongs))
                }
                (Input {
                    name: "days",
                    label: "Expires after days",
                    value: fields.get("days"),
                    mode: Some("numeric"),
                    help: Some("Leave empty for a key that does not expire."),
                    ..Input::default()
                }.show(wrongs))
                div.field.wrong[models_wrong.is_some()] {
                    label for="models" { "Models" span.optional { " optional" } }
                    textarea id="models" name="models" rows="3" autocapitalize="none"
                        spellcheck="false" aria-invalid=[models_wrong.map(|_| "true")]
                        aria-describedby=[described("models", models_wrong, Some(models_help))] {
                        (fields.get("models"))
                    }
                    (notes("models", models_wrong, Some(models_help)))
                }
                div.actions {
                    button.button type="submit" { "Create key" }
                    a.button.quiet href="/console" { "Cancel" }
                }
            }
        }
    };
    page(status, &Shell::signed("New key", account), &body)
}

/// The page that shows a key's text, the only time it is shown.
fn shown_once(desk: &Desk, record: &KeyRecord, text: &str) -> Markup {
    let (url, formats) = (desk.url(), desk.formats());
    let model = desk.catalog(|catalog| {
        let allowed = |id: &str| record.models.is_empty() || record.models.iter().any(|m| m == id);
        let mut chats = catalog.iter().filter(|model| model.kind == Kind::Chat);
        chats.find(|model| allowed(&model.id)).map(|model| model.id.clone())
    });
    let mut shown = Vec::new();
    if let Some(model) = &model {
        let format = formats.iter().find(|format| format.suits(Kind::Chat));
        shown.extend(format.map(|format| ("curl", "curl", format.curl(&url, model, text))));
        if formats.contains(&Format::Chat) {
            shown.push(("python", "Python", snippet::python(&url, model, text)));
        }
    }
    let environment = snippet::environment(&url, text, &formats);
    if !environment.is_empty() {
        shown.push(("env", "Environment", environment));
    }
    let shown: Vec<Tab> = shown
        .into_iter()
        .map(|(id, title, text)| Tab { id: id.to_owned(), title, body: copyable(id, title, &text) })
        .collect();
    html! {
        section.card.broad {
            p.crumbs { a href="/console" { "Console" } " / Keys" }
            h1 { "Your new key" }
            p { "Copy " strong { bdi { (record.name) } } " now. "
                "It is shown this once: the gateway keeps no copy it could show again." }
            div.secret {
                code id="key" { (text) }
                button.copy type="button" hidden data-copy="key" { "Copy" }
            }
            p.help {
                "Keep it in an environment variable on your server; never in a repository, a web "
                "page or a screenshot."
            }
            @if !shown.is_empty() {
                h2 { "Use it" }
                (tabs("use", &shown))
            }
            p.actions { a.button href="/console" { "I have copied it" } }
        }
    }
}

/// The key with that id, if the account may see and change it. To others it does not exist.
async fn find(
    desk: &Desk,
    signed: &Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<KeyRecord, Trouble> {
    let Path(id) = id.map_err(|_| Trouble::NotFound)?;
    let key = desk.store.key(&id).await?.ok_or(Trouble::NotFound)?;
    if key.account_id != signed.account.id && !signed.sees_all() {
        return Err(Trouble::NotFound);
    }
    let owner = desk.store.account(&key.account_id).await?.ok_or(Trouble::NotFound)?;
    if !signed.may_change(&owner) {
        return Err(Trouble::Forbidden);
    }
    Ok(key)
}

/// `GET /console/keys/{id}/revoke`
pub(crate) async fn confirm(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let key = find(&desk, &signed, id).await?;
    let now = desk.now();
    if KeyState::of(&key, now) == KeyState::Revoked {
        return Ok(see_other("/console"));
    }
    let body = html! {
        section.card {
            p.crumbs { a href="/console" { "Console" } " / Keys" }
            h1 { "Revoke this key?" }
            p { "Programs that use " strong { bdi { (key.name) } } " are refused from now on, "
                "running streams included. This cannot be undone." }
            dl.facts {
                div { dt { "Key" } dd { code { "sk-pt-" (key.id) "-…" } } }
                div { dt { "Spent" } dd { (show::money(key.spent)) } }
                div { dt { "Last use" } dd {
                    @match key.last_used {
                        Some(at) => (show::when(at, now)),
                        None => "never",
                    }
                } }
            }
            form method="post"
                action={ "/console/keys/" (address::value(&key.id)) "/revoke" } {
                div.actions {
                    button.button.harm type="submit" { "Revoke the key" }
                    a.button.quiet href="/console" { "Keep it" }
                }
            }
        }
    };
    Ok(good(&Shell::signed("Revoke a key", &signed.account), &body))
}

/// `POST /console/keys/{id}/revoke`
pub(crate) async fn revoke(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let key = find(&desk, &signed, id).await?;
    if desk.store.revoke_key(&key.id, desk.now()).await? {
        // Read back: the store decides what the record says, and the ring must agree with it.
        if let Some(record) = desk.store.key(&key.id).await? {
            desk.host.key_changed(record);
        }
        desk.note(&signed.account.id, "key.revoke", &key.id, &key.name).await;
    }
    Ok(see_other("/console"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_an_honest_amount_or_unlimited() {
        assert_eq!(cap("", true), Ok(None));
        assert_eq!(cap("$2.50", false), Ok(Some(Money::nanos(2_500_000_000))));
        for bad in ["", "0", "-1", "0.000000001", "1e18", "NaN", "ten", "1000001", "1,5", "5 USD"] {
            assert!(cap(bad, false).is_err(), "{bad}");
        }
        assert!(cap("5", true).is_err());
    }

    #[test]
    fn days_are_whole_and_few() {
        assert_eq!(days(""), Ok(None));
        assert_eq!(days("30"), Ok(Some(30)));
        for bad in ["0", "-1", "1.5", "3651", "99999999999999999999", "x"] {
            assert!(days(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn model_lists_may_be_written_with_commas_or_lines() {
        assert_eq!(models(" a, b\r\nc/d:e\n\na "), ["a", "b", "c/d:e"]);
        assert!(models(" ,\n").is_empty());
    }
}
