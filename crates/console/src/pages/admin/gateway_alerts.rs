//! Alerts about the gateway: what its administrators are told, and how.

use std::sync::Arc;

use admin::{GatewayAlertsChange, GatewayAlertsView, version_of};
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{GATEWAY_OWNER, WebhookForm};

use super::{read_version, version_field};
use crate::form::{FieldErrors, FormFields, FormInput, INVALID_FORM, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::pages::alert_fields::{
    quiet_fields, read_quiet, read_webhook, receiver_values, tick_field, tick_value, webhook_fields,
};
use crate::redirect::redirect_to;
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;

const PAGE_PATH: &str = "/console/settings/alerts";
const MAX_FIELD_BYTES: usize = 4_096;
const FIELDS: [&str; 6] = [
    "error_percent",
    "quiet_hours.from",
    "quiet_hours.to",
    "quiet_hours.time_zone",
    "webhook.form",
    "webhook.url",
];

/// `GET /console/settings/alerts`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let settings = state.host.admin().gateway_alert_settings(&user.actor()).await?;
    let is_saved = query.get("told") == "saved";
    let form = (&form_fields(&settings), &FieldErrors::default());
    Ok(render(&state, &user, StatusCode::OK, is_saved, &settings, form))
}

/// `POST /console/settings/alerts`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (admin, actor) = (state.host.admin(), user.actor());
    let mut errors = FieldErrors::default();
    if let Some(change) = read_change(&fields, &mut errors)? {
        let changed =
            admin.change_gateway_alert_settings(&actor, read_version(&fields), change).await;
        match changed {
            Ok(_) => return Ok(redirect_to("/console/settings/alerts?told=saved")),
            Err(error) => errors = FormRefusal::try_from(error)?.field_errors(&FIELDS),
        }
    }
    let settings = admin.gateway_alert_settings(&actor).await?;
    let form = (&fields, &errors);
    Ok(render(&state, &user, StatusCode::BAD_REQUEST, false, &settings, form))
}

/// Reads the form. Returns nothing if a field is wrong.
fn read_change(
    fields: &FormFields,
    errors: &mut FieldErrors,
) -> Result<Option<GatewayAlertsChange>, PageError> {
    // An absent field would turn alerts off.
    if !fields.contains("error_percent") || !fields.contains("webhook.form") {
        return Err(PageError::BadRequest(INVALID_FORM));
    }
    let text = fields.get_trimmed("error_percent", MAX_FIELD_BYTES)?.trim_end_matches('%').trim();
    let percent = if text.is_empty() { Ok(None) } else { text.parse().map(Some) };
    let Ok(error_percent) = percent else {
        errors.add("error_percent", "Write a percent from 1 to 100, or nothing.");
        return Ok(None);
    };
    let Some(webhook) = read_webhook(fields, errors)? else { return Ok(None) };
    let is_on = |name| Some(fields.get(name) == "on");
    Ok(Some(GatewayAlertsChange {
        lanes: is_on("lanes"),
        credentials: is_on("credentials"),
        health: is_on("health"),
        error_percent: Some(error_percent),
        mails: is_on("mail"),
        quiet: Some(read_quiet(fields)?),
        webhook: Some(webhook),
    }))
}

fn form_fields(settings: &GatewayAlertsView) -> FormFields {
    let percent = settings.error_percent.map(|percent| percent.to_string());
    let mut values = vec![
        ("lanes", tick_value(settings.lanes)),
        ("credentials", tick_value(settings.credentials)),
        ("health", tick_value(settings.health)),
        ("error_percent", percent.unwrap_or_default()),
        ("mail", tick_value(settings.mails)),
    ];
    values.extend(receiver_values(settings.quiet.as_ref(), settings.webhook.as_ref()));
    FormFields::prefilled(values)
}

fn render(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    is_saved: bool,
    settings: &GatewayAlertsView,
    (fields, errors): (&FormFields, &FieldErrors),
) -> Response {
    let body = html! {
        p.crumbs { a href="/console/settings" { "Settings" } " / Alerts" }
        div.title { h1 { "Alerts about the gateway" } }
        @if is_saved { p.told role="status" { "Saved." } }
        (error_summary(errors))
        section.card.broad {
            p.muted {
                "Administrators and owners are told once when one of these begins, and when it is over. It is on the page "
                a href="/console/alerts" { "Alerts" } " too."
            }
            form method="post" action=(PAGE_PATH) {
                (version_field(&version_of(&settings.stable_json())))
                (tick_field(fields, "lanes", "Lanes that are down",
                    "Their calls fail for longer than a minute."))
                (tick_field(fields, "credentials", "Credentials that cannot be used",
                    "Their provider refuses them, or they cannot be fetched."))
                (tick_field(fields, "health", "Parts of the gateway",
                    "Disk, journal, database, files, Valkey, certificates and clock, and settled calls that are not stored for two minutes."))
                (FormInput {
                    name: "error_percent",
                    label: "Percent of failed calls in the last hour",
                    value: fields.get("error_percent"),
                    input_mode: Some("numeric"),
                    mark_optional: false,
                    help: Some("Calls that ended with a 5xx, of at least 20. Empty for none."),
                    ..FormInput::default()
                }.render(errors))
                (mail_field(state, fields))
                (quiet_fields(fields, errors))
                (webhook_fields(settings.webhook.as_ref(), fields, errors))
                button.button type="submit" { "Save" }
            }
            @if settings.webhook.as_ref().is_some_and(|one| one.form == WebhookForm::Signed) {
                details {
                    summary { "Secret of the signatures" }
                    (crate::pages::copy_block("alert-secret", "As in Standard Webhooks",
                        &state.host.alert_secret(GATEWAY_OWNER)))
                }
            }
        }
    };
    let layout = Layout::signed_in("Alerts about the gateway", &user.account);
    page(status, &layout.with_nav("/console/settings"), &body)
}

fn mail_field(state: &ConsoleState, fields: &FormFields) -> Markup {
    let help = if state.host.can_mail() {
        "To all administrators and owners with an address, at most one mail in ten minutes."
    } else {
        "This gateway has no mail server, so that nobody gets mail."
    };
    tick_field(fields, "mail", "Mail", help)
}
