//! One provider: settings, credentials, credential check, removal.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::provider_form::{self, CREDENTIAL_HELP, FORM_FIELDS};
use super::providers::{PAGE_PATH, lane_table, page_of, source_badge};
use super::{read_version, version_field};
use crate::display;
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::urls;
use crate::viewer_time::ViewerZone;
use admin::{
    CredentialCheck, CredentialDraft, CredentialSecret, EntrySource, ProviderDetail, ProviderDraft,
    ProviderView, ReadVersion,
};
use config::SHARED_OBJECTS;

/// Limits the size of the page.
const MAX_LANES: usize = 150;

type ProviderPath = Result<Path<String>, PathRejection>;

/// Messages and entered values shown with the provider.
#[derive(Default)]
struct ProviderNotices<'a> {
    notice: Option<&'a str>,
    /// Values of a rejected form.
    entered: Option<&'a FormFields>,
    errors: FieldErrors,
    /// Result of the check of each credential.
    checked: Option<&'a [CredentialCheck]>,
}

fn redirect_with_notice(id: &str, notice: &str) -> Response {
    redirect_to(&format!("{}?told={notice}", page_of(id)))
}

/// `GET /console/providers/{id}`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
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
    let now = state.host.admin().provider(&user.actor(), &id)?;
    let notices = ProviderNotices { notice, ..ProviderNotices::default() };
    Ok(render_page(&user, &now, StatusCode::OK, &notices))
}

/// `POST /console/providers/{id}`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let (admin, actor) = (state.host.admin(), user.actor());
    let now = admin.provider(&actor, &id)?;
    let settings = now.provider.settings.clone().unwrap_or_default();
    let (status, errors) = match provider_form::settings_body(settings, &fields) {
        Ok(settings) => {
            let draft = ProviderDraft { settings, credentials: None };
            match admin.put_provider(&actor, &id, read_version(&fields), draft).await {
                Ok(saved) => {
                    let dropped = saved.dropped_credentials > 0;
                    return Ok(redirect_with_notice(
                        &id,
                        if dropped { "dropped" } else { "saved" },
                    ));
                }
                Err(error) => {
                    let refusal = FormRefusal::try_from(error)?;
                    (refusal.status, refusal.field_errors(&FORM_FIELDS))
                }
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
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let (admin, actor) = (state.host.admin(), user.actor());
    let (read, draft) = (ReadVersion::default(), credential_draft(&fields));
    let Err(error) = admin.add_credential(&actor, &id, read, draft).await else {
        return Ok(redirect_with_notice(&id, "credential"));
    };
    let refusal = FormRefusal::try_from(error)?;
    let now = admin.provider(&actor, &id)?;
    // A rejected credential is not shown again either.
    let entered = FormFields::prefilled(vec![("name", fields.get("name").to_owned())]);
    let errors = refusal.field_errors(&["name", "value", "auth"]);
    let notices = ProviderNotices { entered: Some(&entered), errors, ..ProviderNotices::default() };
    Ok(render_page(&user, &now, refusal.status, &notices))
}

/// Reads the credential of a form. A JSON object with a known authentication method is passed on as
/// such.
pub(super) fn credential_draft(fields: &FormFields) -> CredentialDraft {
    let name = match fields.get("name").trim() {
        "" => "default",
        name => name,
    };
    let value = fields.get("value").trim();
    let auth = canon::read_value(value.as_bytes()).filter(|auth| {
        ["bearer", "header", "google", "sigv4", "entra"]
            .iter()
            .any(|method| auth.get(method).is_some())
    });
    let secret = match auth {
        Some(auth) => CredentialSecret::Auth(auth),
        None => CredentialSecret::Value(Value::from(value)),
    };
    CredentialDraft { name: name.to_owned(), secret }
}

/// `POST /console/providers/{id}/credentials/{credential}/remove`
pub(crate) async fn remove_credential(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, PageError> {
    let Path((id, credential)) = ids.map_err(|_| PageError::NotFound)?;
    let (admin, read) = (state.host.admin(), ReadVersion::default());
    admin.delete_credential(&user.actor(), &id, read, &credential).await?;
    Ok(redirect_with_notice(&id, "removed"))
}

/// `POST /console/providers/{id}/check`
pub(crate) async fn check(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let (admin, actor) = (state.host.admin(), user.actor());
    let checked = admin.check_provider(&actor, &id).await?;
    let now = admin.provider(&actor, &id)?;
    let notices = ProviderNotices { checked: Some(&checked), ..ProviderNotices::default() };
    Ok(render_page(&user, &now, StatusCode::OK, &notices))
}

/// `POST /console/providers/{id}/remove`
pub(crate) async fn remove(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: ProviderPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let (admin, actor) = (state.host.admin(), user.actor());
    let (read, force) = (read_version(&fields), fields.contains("force"));
    let Err(error) = admin.delete_provider(&actor, &id, read, force).await else {
        return Ok(redirect_to(PAGE_PATH));
    };
    let refusal = FormRefusal::try_from(error)?;
    let now = admin.provider(&actor, &id)?;
    let notices =
        ProviderNotices { errors: refusal.field_errors(&[]), ..ProviderNotices::default() };
    Ok(render_page(&user, &now, refusal.status, &notices))
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
    now: &ProviderDetail,
    status: StatusCode,
    notices: &ProviderNotices<'_>,
) -> Response {
    let ProviderDetail { provider, lanes, credential_troubles } = now;
    let id = &provider.id;
    let ProviderNotices { notice, entered, errors, checked } = notices;
    let stored = provider.source == EntrySource::Stored;
    let at = page_of(id);
    let body = html! {
        p.crumbs { a href=(PAGE_PATH) { "Providers" } " / provider" }
        div.title.close { h1 { bdi { (id) } } (source_badge(provider.source)) }
        @if let Some(notice) = notice { p.told role="status" { (notice) } }
        (error_summary(errors))
        @if let Some(why) = &provider.trouble {
            p.objection role="alert" { (why) }
        }
        @for trouble in credential_troubles {
            p.objection role="alert" {
                "Credential " (trouble.credential.saturating_add(1)) ": " (trouble.why)
            }
        }
        @if let Some(results) = checked { (check_results(results)) }
        section {
            h2 { "Lanes" }
            (super::live_toggle("lanes", "Lane states refresh automatically."))
            div.sheet #lanes { (lane_table(lanes, MAX_LANES)) }
        }
        div.columns {
            section.card {
                h2 { "Settings" }
                @if let (true, Some(settings)) = (stored, &provider.settings) {
                    form method="post" action=(at) {
                        (version_field(&now.version()))
                        @let filled = provider_form::settings_fields(settings);
                        @let shown = entered.unwrap_or(&filled);
                        (provider_form::render_fields(&[], false, shown, errors))
                        button.button.quiet type="submit" { "Save" }
                    }
                } @else { (read_only_facts(provider)) }
            }
            section.card {
                h2 { "Credentials" }
                (credential_list(provider, &at, stored, &user.zone))
                @if stored {
                    form method="post" action={ (at) "/credentials" } {
                        (credential_fields(entered.map_or("", |entered| entered.get("name")), errors))
                        button.button.quiet type="submit" { "Add the credential" }
                    }
                }
                form method="post" action={ (at) "/check" } {
                    button.button.quiet type="submit" { "Check the credentials" }
                    p.help { "Asks the provider for its models with each of them; costs nothing." }
                }
            }
            @if stored {
                section.card {
                    h2 { "Remove" }
                    details {
                        summary { "Remove this provider" }
                        form method="post" action={ (at) "/remove" } {
                            (version_field(&now.version()))
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
fn read_only_facts(provider: &ProviderView) -> Markup {
    let id = &provider.id;
    html! {
        dl.facts {
            @if let Some(base) = &provider.base {
                div { dt { "Address" } dd { bdi { (base) } } }
            }
            @if !provider.speaks.is_empty() {
                div { dt { "Formats" } dd { (provider.speaks.join(", ")) } }
            }
            @if let Some(most) = provider.max_in_flight {
                div { dt { "Calls at once" } dd { (display::count(most as u64)) } }
            }
            @if provider.objects == SHARED_OBJECTS {
                div { dt { "Objects" } dd { "callers may name every object of the account" } }
            }
        }
        p.muted {
            @match provider.source {
                EntrySource::File => { "To change it, edit " code { "[providers." (id) "]" } " in the \
                    configuration file; it is read again by itself." },
                EntrySource::Environment => "It is switched on by a variable of the environment. To change it, \
                    start the gateway with another value.",
                EntrySource::BuiltIn => { "It is part of the program. " code { "demo = false" } " under "
                    code { "[server]" } " switches the demo models off." },
                EntrySource::Stored => "It is configured in the file or by a variable of the environment.",
            }
        }
    }
}

fn credential_list(provider: &ProviderView, at: &str, stored: bool, zone: &ViewerZone) -> Markup {
    let all = &provider.credentials;
    html! {
        @if all.is_empty() {
            p.muted { @if stored { "None yet. Without one nothing is sent there that needs one." }
                @else { "None that could be changed here." } }
        } @else {
            ul.factors {
                @for one in all {
                    li {
                        div {
                            strong { bdi { (one.name) } }
                            span.small.muted {
                                @match one.added {
                                    None => (source_badge(one.source)),
                                    Some(at) => span title=(zone.timestamp(at)) { "added " (zone.day(at)) },
                                }
                            }
                            @if let Some(why) = &one.trouble {
                                span.objection { (why) }
                            }
                        }
                        @if stored && one.source == EntrySource::Stored {
                            details {
                                summary { "Remove" span.unseen { " " (one.name) } }
                                form method="post" action={
                                    (at) "/credentials/" (urls::escape_value(&one.id)) "/remove"
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
fn check_results(results: &[CredentialCheck]) -> Markup {
    html! {
        section role="status" {
            h2 { "Checked just now" }
            ul.factors {
                @for result in results {
                    @let ok = result.ok;
                    li {
                        div {
                            strong { bdi { (result.name.as_deref().unwrap_or_default()) } }
                            span.small.muted {
                                (result.say)
                                @if let Some(ms) = result.took_ms { " · " (ms) " ms" }
                            }
                        }
                        span.badge.good[ok].bad[!ok] {
                            @if ok { "accepted" } @else { "not accepted" }
                            @if let Some(status) = result.status { " · " (status) }
                        }
                    }
                }
                @if results.is_empty() { li { "There is no credential to check." } }
            }
        }
    }
}
