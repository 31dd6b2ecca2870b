//! One provider: its settings, its credentials, whether they are accepted, and its end.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::provider_form::{self, CREDENTIAL, FIELDS};
use super::providers::{HERE, lanes, page_of, source};
use super::{TAG, tag_field, warned};
use crate::address;
use crate::clerk::{Clerk, Told, count, list, text, texts};
use crate::desk::Desk;
use crate::fields::another_look;
use crate::form::{Asked, Fields, Input, Wrongs};
use crate::session::Signed;
use crate::shell::{Shell, page, sent_to};
use crate::show;
use crate::trouble::Trouble;

/// How many lanes are shown, so that the page stays small.
const MOST_LANES: usize = 150;

type Id = Result<Path<String>, PathRejection>;

/// The provider of an address, and who asks for it.
struct Place {
    clerk: Clerk,
    id: String,
}

impl Place {
    fn of(desk: &Desk, signed: &Signed, id: Id) -> Result<Self, Trouble> {
        let Path(id) = id.map_err(|_| Trouble::NotFound)?;
        Ok(Self { clerk: Clerk::of(desk, signed), id })
    }

    /// Its address in the API.
    fn at(&self, behind: &str) -> String {
        format!("/providers/{}{behind}", address::value(&self.id))
    }

    /// The provider as it is now.
    async fn now(&self) -> Result<Told, Trouble> {
        self.clerk.get(&self.at("")).await
    }

    fn page_with(&self, told: &str) -> Response {
        sent_to(&format!("{}?told={told}", page_of(&self.id)))
    }
}

/// What the page says beside the provider itself.
#[derive(Default)]
struct Say<'a> {
    told: Option<&'a str>,
    /// What was entered, where a form was not taken.
    entered: Option<&'a Fields>,
    wrongs: Wrongs,
    /// How each credential was received.
    checked: Option<&'a [Value]>,
}

/// `GET /console/providers/{id}`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let place = Place::of(&desk, &signed, id)?;
    let told = match asked.get("told") {
        "added" => Some("The provider is there. Check whether it accepts the credential."),
        "saved" => Some("Saved. It counts at once, for calls from now on."),
        "dropped" => {
            Some("Saved. The address is another one, so its credentials are gone: add them anew.")
        }
        "credential" => Some("The credential was added; it is not shown again."),
        "removed" => Some("The credential was removed."),
        _ => None,
    };
    let now = place.now().await?;
    Ok(whole(&signed, &now, StatusCode::OK, &Say { told, ..Say::default() }))
}

/// `POST /console/providers/{id}`
pub(crate) async fn change(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    fields: Fields,
) -> Result<Response, Trouble> {
    let place = Place::of(&desk, &signed, id)?;
    let now = place.now().await?;
    let settings = now.value.get("settings").and_then(Value::as_object).cloned();
    let read = provider_form::body(settings.unwrap_or_default(), &fields);
    let (status, wrongs) = match read {
        Ok(body) => {
            match place.clerk.change(Method::PUT, &place.at(""), fields.get(TAG), &body).await? {
                Ok(saved) => {
                    let dropped = count(&saved.value, "dropped_credentials") > Some(0);
                    let back = format!(
                        "{}?told={}",
                        page_of(&place.id),
                        if dropped { "dropped" } else { "saved" }
                    );
                    return Ok(warned(&signed, HERE, &saved.value, &back));
                }
                Err(refusal) => (refusal.status, refusal.beside(&FIELDS)),
            }
        }
        Err(wrongs) => (StatusCode::BAD_REQUEST, wrongs),
    };
    let say = Say { entered: Some(&fields), wrongs, ..Say::default() };
    Ok(whole(&signed, &now, status, &say))
}

/// `POST /console/providers/{id}/credentials`
pub(crate) async fn add_credential(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    fields: Fields,
) -> Result<Response, Trouble> {
    let place = Place::of(&desk, &signed, id)?;
    let (path, body) = (place.at("/credentials"), credential(&fields));
    match place.clerk.change(Method::POST, &path, "", &body).await? {
        Ok(_) => Ok(place.page_with("credential")),
        Err(refusal) => {
            let now = place.now().await?;
            // A credential that was not taken is not shown again either.
            let entered = Fields::of(vec![("name", fields.get("name").to_owned())]);
            let wrongs = refusal.beside(&["name", "value", "auth"]);
            let say = Say { entered: Some(&entered), wrongs, ..Say::default() };
            Ok(whole(&signed, &now, refusal.status, &say))
        }
    }
}

/// The credential of a form. What is an object in the words of the configuration says itself how it
/// is shown to the provider.
pub(super) fn credential(fields: &Fields) -> Value {
    let name = match fields.get("name").trim() {
        "" => "default",
        name => name,
    };
    let value = fields.get("value").trim();
    let auth = serde_json::from_str::<Value>(value).ok().filter(|auth| {
        ["bearer", "header", "google", "sigv4"].iter().any(|way| auth.get(way).is_some())
    });
    match auth {
        Some(auth) => json!({ "name": name, "auth": auth }),
        None => json!({ "name": name, "value": value }),
    }
}

/// `POST /console/providers/{id}/credentials/{credential}/remove`
pub(crate) async fn remove_credential(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, Trouble> {
    let Path((id, credential)) = ids.map_err(|_| Trouble::NotFound)?;
    let place = Place { clerk: Clerk::of(&desk, &signed), id };
    let path = place.at(&format!("/credentials/{}", address::value(&credential)));
    let removed = place.clerk.change(Method::DELETE, &path, "", &Value::Null).await?;
    removed.map(|_| place.page_with("removed")).map_err(|refusal| refusal.alone())
}

/// `POST /console/providers/{id}/check`
pub(crate) async fn check(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
) -> Result<Response, Trouble> {
    let place = Place::of(&desk, &signed, id)?;
    let checked = place.clerk.change(Method::POST, &place.at("/check"), "", &json!({})).await?;
    let checked = checked.map_err(|refusal| refusal.alone())?.value;
    let now = place.now().await?;
    let say = Say { checked: Some(list(&checked, "data")), ..Say::default() };
    Ok(whole(&signed, &now, StatusCode::OK, &say))
}

/// `POST /console/providers/{id}/remove`
pub(crate) async fn remove(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Id,
    fields: Fields,
) -> Result<Response, Trouble> {
    let place = Place::of(&desk, &signed, id)?;
    let path = place.at(if fields.ticked("force") { "?force=true" } else { "" });
    match place.clerk.change(Method::DELETE, &path, fields.get(TAG), &Value::Null).await? {
        Ok(gone) => Ok(warned(&signed, HERE, &gone.value, HERE)),
        Err(refusal) => {
            let now = place.now().await?;
            let say = Say { wrongs: refusal.beside(&[]), ..Say::default() };
            Ok(whole(&signed, &now, refusal.status, &say))
        }
    }
}

/// `GET` on an address that only takes forms: where a browser lands that reloads one.
pub(crate) async fn back(_: Signed, id: Id) -> Result<Response, Trouble> {
    let Path(id) = id.map_err(|_| Trouble::NotFound)?;
    Ok(sent_to(&page_of(&id)))
}

fn whole(signed: &Signed, now: &Told, status: StatusCode, say: &Say<'_>) -> Response {
    let provider = &now.value;
    let id = text(provider, "id");
    let Say { told, entered, wrongs, checked } = say;
    let settings = provider.get("settings").filter(|settings| settings.is_object());
    let stored = text(provider, "source") == "stored";
    let at = page_of(id);
    let body = html! {
        p.crumbs { a href=(HERE) { "Providers" } " / provider" }
        div.title.close { h1 { bdi { (id) } } (source(provider)) }
        @if let Some(told) = told { p.told role="status" { (told) } }
        (another_look(wrongs))
        @if let Some(why) = provider.get("trouble").and_then(Value::as_str) {
            p.objection role="alert" { (why) }
        }
        @if let Some(results) = checked { (told_checks(results)) }
        section {
            h2 { "Lanes" }
            (super::live("lanes", "How lanes stand is fetched again by itself."))
            div.sheet #lanes { (lanes(list(provider, "lanes"), MOST_LANES)) }
        }
        div.columns {
            section.card {
                h2 { "Settings" }
                @if stored {
                    form method="post" action=(at) {
                        (tag_field(now))
                        @let shown = settings.unwrap_or(&Value::Null);
                        @let filled = provider_form::filled(shown);
                        (provider_form::fields(shown, entered.unwrap_or(&filled), wrongs))
                        button.button.quiet type="submit" { "Save" }
                    }
                } @else { (elsewhere(provider)) }
            }
            section.card {
                h2 { "Credentials" }
                (credentials(provider, &at, stored))
                @if stored {
                    form method="post" action={ (at) "/credentials" } {
                        (credential_fields(entered.map_or("", |entered| entered.get("name")), wrongs))
                        button.button.quiet type="submit" { "Add the credential" }
                    }
                }
                @if provider.get("credentials").is_some() {
                    form method="post" action={ (at) "/check" } {
                        button.button.quiet type="submit" { "Check the credentials" }
                        p.help { "Asks the provider for its models with each of them; costs nothing." }
                    }
                }
            }
            @if stored {
                section.card {
                    h2 { "Remove" }
                    details {
                        summary { "Remove this provider" }
                        form method="post" action={ (at) "/remove" } {
                            (tag_field(now))
                            p.help { "Its credentials are forgotten for good, and its lanes end; calls \
                                that run go on." }
                            label.tick {
                                input type="checkbox" name="force" value="true";
                                span { "Even if models are left without a lane" }
                            }
                            button.button.harm type="submit" { "Remove it" }
                        }
                    }
                }
            }
        }
    };
    page(status, &Shell::signed(id, &signed.account).at(HERE), &body)
}

/// What is said of a provider that is configured elsewhere.
fn elsewhere(provider: &Value) -> Markup {
    let id = text(provider, "id");
    html! {
        @if provider.get("base").is_some() { dl.facts {
            @if !text(provider, "base").is_empty() {
                div { dt { "Address" } dd { bdi { (text(provider, "base")) } } }
            }
            @if !texts(provider, "speaks").is_empty() {
                div { dt { "Formats" } dd { (texts(provider, "speaks").join(", ")) } }
            }
            @if let Some(most) = count(provider, "max_in_flight") {
                div { dt { "Calls at once" } dd { (show::count(most)) } }
            }
        } }
        p.muted {
            @match text(provider, "source") {
                "file" => { "To change it, edit " code { "[providers." (id) "]" } " in the \
                    configuration file; it is read again by itself." },
                "environment" => "It is switched on by a variable of the environment. To change it, \
                    start the gateway with another value.",
                "built-in" => { "It is part of the program. " code { "demo = false" } " under "
                    code { "[server]" } " switches the demo models off." },
                _ => "It is configured in the file or by a variable of the environment.",
            }
        }
    }
}

fn credentials(provider: &Value, at: &str, stored: bool) -> Markup {
    let all = list(provider, "credentials");
    html! {
        @if all.is_empty() {
            p.muted { @if stored { "None yet. Without one nothing is sent there that needs one." }
                @else { "None that could be changed here." } }
        } @else {
            ul.factors {
                @for one in all {
                    li {
                        div {
                            strong { bdi { (text(one, "name")) } }
                            span.small.muted {
                                @match text(one, "added").split('T').next() {
                                    Some("") | None => (source(one)),
                                    Some(day) => { "added " (day) },
                                }
                            }
                            @if let Some(why) = one.get("trouble").and_then(Value::as_str) {
                                span.objection { (why) }
                            }
                        }
                        @if stored && matches!(text(one, "source"), "stored" | "") {
                            details {
                                summary { "Remove" span.unseen { " " (text(one, "name")) } }
                                form method="post" action={
                                    (at) "/credentials/" (address::value(text(one, "id"))) "/remove"
                                } {
                                    button.button.harm type="submit" { "Remove it for good" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The fields of a new credential, whose value is never shown again.
fn credential_fields(name: &str, wrongs: &Wrongs) -> Markup {
    html! {
        (Input {
            name: "name",
            label: "Name of the credential",
            value: name,
            help: Some("To tell several apart, for example: team account."),
            ..Input::default()
        }.show(wrongs))
        (Input {
            name: "value",
            label: "API key of the provider",
            kind: "password",
            complete: "off",
            required: true,
            help: Some(CREDENTIAL),
            ..Input::default()
        }.show(wrongs))
        @if let Some(why) = wrongs.of("auth") { p.objection { (why) } }
    }
}

/// How each credential was received.
fn told_checks(results: &[Value]) -> Markup {
    html! {
        section role="status" {
            h2 { "Checked just now" }
            ul.factors {
                @for result in results {
                    @let ok = result.get("ok").and_then(Value::as_bool).unwrap_or_default();
                    li {
                        div {
                            strong { bdi { (text(result, "name")) } }
                            span.small.muted {
                                (text(result, "say"))
                                @if let Some(ms) = count(result, "took_ms") { " · " (ms) " ms" }
                            }
                        }
                        span.badge.good[ok].bad[!ok] {
                            @if ok { "accepted" } @else { "not accepted" }
                            @if let Some(status) = count(result, "status") { " · " (status) }
                        }
                    }
                }
                @if results.is_empty() { li { "There is no credential to check." } }
            }
        }
    }
}
