//! One provider: settings, credentials, credential check, removal.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::provider_form::{self, CREDENTIAL_HELP, FORM_FIELDS};
use super::providers::{PAGE_PATH, lane_table, page_of, source_badge};
use super::{ETAG_FIELD, etag_field, redirect_with_warnings};
use crate::admin_client::{AdminClient, ApiReply, count, list, text, texts};
use crate::display;
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::urls;

/// Limits the size of the page.
const MAX_LANES: usize = 150;

type ProviderPath = Result<Path<String>, PathRejection>;

/// The provider on the page, and the client to change it.
struct ProviderPage {
    client: AdminClient,
    id: String,
}

impl ProviderPage {
    fn new(state: &ConsoleState, user: &SignedInUser, id: ProviderPath) -> Result<Self, PageError> {
        let Path(id) = id.map_err(|_| PageError::NotFound)?;
        Ok(Self { client: AdminClient::new(state, user), id })
    }

    fn api_path(&self, behind: &str) -> String {
        format!("/providers/{}{behind}", urls::escape_value(&self.id))
    }

    /// Loads the current provider.
    async fn load(&self) -> Result<ApiReply, PageError> {
        self.client.get(&self.api_path("")).await
    }

    fn redirect_with_notice(&self, notice: &str) -> Response {
        redirect_to(&format!("{}?told={notice}", page_of(&self.id)))
    }
}

/// Messages and entered values shown with the provider.
#[derive(Default)]
struct ProviderNotices<'a> {
    notice: Option<&'a str>,
    /// Values of a rejected form.
    entered: Option<&'a FormFields>,
    errors: FieldErrors,
    /// Result of the check of each credential.
    checked: Option<&'a [Value]>,
}

/// `GET /console/providers/{id}`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let page_client = ProviderPage::new(&state, &user, id)?;
    let notice = match query.get("told") {
        "added" => Some("The provider is there. Check whether it accepts the credential."),
        "saved" => Some("Saved. It counts at once, for calls from now on."),
        "dropped" => {
            Some("Saved. The address is another one, so its credentials are gone: add them again.")
        }
        "credential" => Some("The credential was added; it is not shown again."),
        "removed" => Some("The credential was removed."),
        _ => None,
    };
    let now = page_client.load().await?;
    Ok(render_page(
        &user,
        &now,
        StatusCode::OK,
        &ProviderNotices { notice, ..ProviderNotices::default() },
    ))
}

/// `POST /console/providers/{id}`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let page_client = ProviderPage::new(&state, &user, id)?;
    let now = page_client.load().await?;
    let settings = now.value.get("settings").and_then(Value::as_object).cloned();
    let read = provider_form::settings_body(settings.unwrap_or_default(), &fields);
    let (status, errors) = match read {
        Ok(body) => {
            match page_client
                .client
                .change(Method::PUT, &page_client.api_path(""), fields.get(ETAG_FIELD), &body)
                .await?
            {
                Ok(saved) => {
                    let dropped = count(&saved.value, "dropped_credentials") > Some(0);
                    let back = format!(
                        "{}?told={}",
                        page_of(&page_client.id),
                        if dropped { "dropped" } else { "saved" }
                    );
                    return Ok(redirect_with_warnings(&user, PAGE_PATH, &saved.value, &back));
                }
                Err(refusal) => (refusal.status, refusal.field_errors(&FORM_FIELDS)),
            }
        }
        Err(errors) => (StatusCode::BAD_REQUEST, errors),
    };
    let notices = ProviderNotices { entered: Some(&fields), errors, ..ProviderNotices::default() };
    Ok(render_page(&user, &now, status, &notices))
}

/// `POST /console/providers/{id}/credentials`
pub(crate) async fn add_credential(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let page_client = ProviderPage::new(&state, &user, id)?;
    let (path, body) = (page_client.api_path("/credentials"), credential_body(&fields));
    match page_client.client.change(Method::POST, &path, "", &body).await? {
        Ok(_) => Ok(page_client.redirect_with_notice("credential")),
        Err(refusal) => {
            let now = page_client.load().await?;
            // A rejected credential is not shown again either.
            let entered = FormFields::prefilled(vec![("name", fields.get("name").to_owned())]);
            let errors = refusal.field_errors(&["name", "value", "auth"]);
            let notices =
                ProviderNotices { entered: Some(&entered), errors, ..ProviderNotices::default() };
            Ok(render_page(&user, &now, refusal.status, &notices))
        }
    }
}

/// Reads the credential of a form. A JSON object with a known authentication method is passed on as
/// such.
pub(super) fn credential_body(fields: &FormFields) -> Value {
    let name = match fields.get("name").trim() {
        "" => "default",
        name => name,
    };
    let value = fields.get("value").trim();
    let auth = serde_json::from_str::<Value>(value).ok().filter(|auth| {
        ["bearer", "header", "google", "sigv4"].iter().any(|method| auth.get(method).is_some())
    });
    match auth {
        Some(auth) => json!({ "name": name, "auth": auth }),
        None => json!({ "name": name, "value": value }),
    }
}

/// `POST /console/providers/{id}/credentials/{credential}/remove`
pub(crate) async fn remove_credential(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, PageError> {
    let Path((id, credential)) = ids.map_err(|_| PageError::NotFound)?;
    let page_client = ProviderPage { client: AdminClient::new(&state, &user), id };
    let path = page_client.api_path(&format!("/credentials/{}", urls::escape_value(&credential)));
    let removed = page_client.client.change(Method::DELETE, &path, "", &Value::Null).await?;
    removed
        .map(|_| page_client.redirect_with_notice("removed"))
        .map_err(|refusal| refusal.into_page_error())
}

/// `POST /console/providers/{id}/check`
pub(crate) async fn check(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
) -> Result<Response, PageError> {
    let page_client = ProviderPage::new(&state, &user, id)?;
    let checked = page_client
        .client
        .change(Method::POST, &page_client.api_path("/check"), "", &json!({}))
        .await?;
    let checked = checked.map_err(|refusal| refusal.into_page_error())?.value;
    let now = page_client.load().await?;
    let notices =
        ProviderNotices { checked: Some(list(&checked, "data")), ..ProviderNotices::default() };
    Ok(render_page(&user, &now, StatusCode::OK, &notices))
}

/// `POST /console/providers/{id}/remove`
pub(crate) async fn remove(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let page_client = ProviderPage::new(&state, &user, id)?;
    let path = page_client.api_path(if fields.contains("force") { "?force=true" } else { "" });
    match page_client
        .client
        .change(Method::DELETE, &path, fields.get(ETAG_FIELD), &Value::Null)
        .await?
    {
        Ok(gone) => Ok(redirect_with_warnings(&user, PAGE_PATH, &gone.value, PAGE_PATH)),
        Err(refusal) => {
            let now = page_client.load().await?;
            let notices =
                ProviderNotices { errors: refusal.field_errors(&[]), ..ProviderNotices::default() };
            Ok(render_page(&user, &now, refusal.status, &notices))
        }
    }
}

/// `GET` on a path that only accepts forms, for browsers that reload the page.
pub(crate) async fn redirect_back(
    _: SignedInUser,
    id: ProviderPath,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    Ok(redirect_to(&page_of(&id)))
}

fn render_page(
    user: &SignedInUser,
    now: &ApiReply,
    status: StatusCode,
    notices: &ProviderNotices<'_>,
) -> Response {
    let provider = &now.value;
    let id = text(provider, "id");
    let ProviderNotices { notice, entered, errors, checked } = notices;
    let settings = provider.get("settings").filter(|settings| settings.is_object());
    let stored = text(provider, "source") == "stored";
    let at = page_of(id);
    let body = html! {
        p.crumbs { a href=(PAGE_PATH) { "Providers" } " / provider" }
        div.title.close { h1 { bdi { (id) } } (source_badge(provider)) }
        @if let Some(notice) = notice { p.told role="status" { (notice) } }
        (error_summary(errors))
        @if let Some(why) = provider.get("trouble").and_then(Value::as_str) {
            p.objection role="alert" { (why) }
        }
        @if let Some(results) = checked { (check_results(results)) }
        section {
            h2 { "Lanes" }
            (super::live_toggle("lanes", "Lane states refresh automatically."))
            div.sheet #lanes { (lane_table(list(provider, "lanes"), MAX_LANES)) }
        }
        div.columns {
            section.card {
                h2 { "Settings" }
                @if stored {
                    form method="post" action=(at) {
                        (etag_field(now))
                        @let shown = settings.unwrap_or(&Value::Null);
                        @let filled = provider_form::settings_fields(shown);
                        (provider_form::render_fields(shown, entered.unwrap_or(&filled), errors))
                        button.button.quiet type="submit" { "Save" }
                    }
                } @else { (read_only_facts(provider)) }
            }
            section.card {
                h2 { "Credentials" }
                (credential_list(provider, &at, stored))
                @if stored {
                    form method="post" action={ (at) "/credentials" } {
                        (credential_fields(entered.map_or("", |entered| entered.get("name")), errors))
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
                            (etag_field(now))
                            p.help { "Its credentials are deleted and its lanes end. Running calls \
                                continue." }
                            label.tick {
                                input type="checkbox" name="force" value="true";
                                span { "Even if models lose their last lane" }
                            }
                            button.button.harm type="submit" { "Remove it" }
                        }
                    }
                }
            }
        }
    };
    page(status, &Layout::signed_in(id, &user.account).with_nav(PAGE_PATH), &body)
}

/// Facts of a provider that cannot be changed here.
fn read_only_facts(provider: &Value) -> Markup {
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
                div { dt { "Calls at once" } dd { (display::count(most)) } }
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

fn credential_list(provider: &Value, at: &str, stored: bool) -> Markup {
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
                                    Some("") | None => (source_badge(one)),
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
                                    (at) "/credentials/" (urls::escape_value(text(one, "id"))) "/remove"
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

/// Fields of a new credential. Its value is never shown again.
fn credential_fields(name: &str, errors: &FieldErrors) -> Markup {
    html! {
        (FormInput {
            name: "name",
            label: "Name of the credential",
            value: name,
            help: Some("To tell several apart, for example: team account."),
            ..FormInput::default()
        }.render(errors))
        (FormInput {
            name: "value",
            label: "API key of the provider",
            kind: "password",
            autocomplete: "off",
            required: true,
            help: Some(CREDENTIAL_HELP),
            ..FormInput::default()
        }.render(errors))
        @if let Some(why) = errors.get("auth") { p.objection { (why) } }
    }
}

/// Result of the check of each credential.
fn check_results(results: &[Value]) -> Markup {
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
