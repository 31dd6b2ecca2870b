//! Alerts of a person, a team or everybody, and who hears of them.

use std::sync::Arc;

use admin::{
    AdminError, AlertChange, AlertCursor, AlertPage, AlertQuery, AlertSettingsView, AlertView,
};
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{AlertDelivery, DeliveryState, TeamRole, WebhookForm};

use crate::form::{FieldErrors, FormFields, FormInput, INVALID_FORM, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::pages::alert_fields::{
    quiet_fields, read_quiet, read_webhook, receiver_values, tick_field, tick_value, webhook_fields,
};
use crate::redirect::redirect_to;
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::{error_summary, read_version, version_field};
use crate::state::ConsoleState;
use crate::urls;
use crate::viewer_time::ViewerClock;
use admin::version_of;

const PAGE_PATH: &str = "/console/alerts";
const ROWS: u32 = 50;
const MAX_FIELD_BYTES: usize = 4_096;
const FIELDS: [&str; 7] = [
    "levels_percent",
    "mail",
    "quiet_hours.from",
    "quiet_hours.to",
    "quiet_hours.time_zone",
    "webhook.form",
    "webhook.url",
];

/// `GET /console/alerts`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let settings = state.host.admin().alert_settings(&user.actor(), user.owner_id()).await?;
    let form = (&form_fields(&settings), &FieldErrors::default());
    render(&state, &user, StatusCode::OK, &query, &settings, form).await
}

/// `POST /console/alerts`: changes who hears of the alerts of the person or team.
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (admin, actor, owner) = (state.host.admin(), user.actor(), user.owner_id());
    let (mut status, mut errors) = (StatusCode::BAD_REQUEST, FieldErrors::default());
    if let Some(change) = read_change(&fields, &mut errors)? {
        let read = read_version(&fields);
        match admin.change_alert_settings(&actor, owner, read, change).await {
            Ok(_) => {
                let address = user.path_for(&format!("{PAGE_PATH}?told=saved"));
                return Ok(redirect_to(&address));
            }
            Err(error) => {
                let refusal = FormRefusal::try_from(error)?;
                (status, errors) = (refusal.status, refusal.field_errors(&FIELDS));
            }
        }
    }
    let settings = admin.alert_settings(&actor, owner).await?;
    let query = FormFields::default();
    render(&state, &user, status, &query, &settings, (&fields, &errors)).await
}

/// Reads the form. Returns nothing if a field is wrong.
fn read_change(
    fields: &FormFields,
    errors: &mut FieldErrors,
) -> Result<Option<AlertChange>, PageError> {
    // An absent field would turn alerts off.
    if !fields.contains("levels_percent") || !fields.contains("webhook.form") {
        return Err(PageError::BadRequest(INVALID_FORM));
    }
    let text = fields.get_trimmed("levels_percent", MAX_FIELD_BYTES)?;
    let words = text.split([',', ' ', ';', '%']).filter(|word| !word.is_empty());
    let levels: Result<Vec<u8>, _> = words.map(str::parse).collect();
    let Ok(levels) = levels else {
        errors.add("levels_percent", "Write percents from 1 to 100, such as 80, 100.");
        return Ok(None);
    };
    let Some(webhook) = read_webhook(fields, errors)? else { return Ok(None) };
    let is_on = |name| Some(fields.get(name) == "on");
    Ok(Some(AlertChange {
        levels: Some(levels),
        forecasts: is_on("forecast"),
        expiries: is_on("key_expiry"),
        statements: is_on("statement"),
        mails: is_on("mail"),
        quiet: Some(read_quiet(fields)?),
        webhook: Some(webhook),
    }))
}

fn form_fields(settings: &AlertSettingsView) -> FormFields {
    let levels: Vec<String> = settings.levels.iter().map(u8::to_string).collect();
    let mut values = vec![
        ("levels_percent", levels.join(", ")),
        ("forecast", tick_value(settings.forecasts)),
        ("key_expiry", tick_value(settings.expiries)),
        ("statement", tick_value(settings.statements)),
        ("mail", tick_value(settings.mails)),
    ];
    values.extend(receiver_values(settings.quiet.as_ref(), settings.webhook.as_ref()));
    FormFields::prefilled(values)
}

async fn render(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    query: &FormFields,
    settings: &AlertSettingsView,
    (fields, errors): (&FormFields, &FieldErrors),
) -> Result<Response, PageError> {
    let clock = user.clock(state);
    let before = query.get_single("before", MAX_FIELD_BYTES)?;
    let before = (!before.is_empty()).then(|| before.parse::<AlertCursor>()).transpose();
    let before = before
        .map_err(|_: AdminError| PageError::BadRequest("This page of alerts is not known."))?;
    let account_id = (!user.sees_all()).then(|| user.owner_id().to_owned());
    let listed = AlertQuery { account_id, before };
    let AlertPage { alerts, next } = state.host.admin().alerts(&user.actor(), listed, ROWS).await?;
    let older = next.map(|next| {
        let next = urls::escape_value(&next.to_string());
        user.path_for(&format!("{PAGE_PATH}?before={next}"))
    });
    let readers = readers(state, user).await?;
    let body = html! {
        div.title { h1 { "Alerts" } }
        @if query.get("told") == "saved" { p.told role="status" { "Saved." } }
        @if user.sees_all() {
            p.muted {
                "Of everybody, and of this gateway, about which administrators hear as in "
                a href="/console/settings/alerts" { "its settings" } "."
            }
        }
        (error_summary(errors))
        @if alerts.is_empty() {
            (no_alerts(settings))
        } @else {
            (table(&alerts, &clock))
            @if let Some(older) = older { p { a href=(older) rel="next" { "Older alerts" } } }
        }
        (settings_card(state, user, settings, &readers, (fields, errors)))
    };
    Ok(page(status, &Layout::signed_in("Alerts", user).with_nav(PAGE_PATH), &body))
}

/// Returns the addresses of the people who get mail.
async fn readers(state: &ConsoleState, user: &SignedInUser) -> Result<Vec<String>, PageError> {
    let Some(team) = &user.team else {
        return Ok(user.account.email.iter().cloned().collect());
    };
    let members = state.store.members(&team.id).await?.into_iter();
    let managers = members.filter(|member| member.role == TeamRole::Manager);
    Ok(managers.filter_map(|member| member.account.email).collect())
}

fn no_alerts(settings: &AlertSettingsView) -> Markup {
    html! {
        div.empty {
            h2 { "No alerts" }
            p {
                @match settings.levels.first() {
                    Some(level) => {
                        "An alert appears here when " (level) " % of a cap or budget is spent."
                    }
                    None => "Choose below at which share of a cap or a budget an alert appears here.",
                }
                @if settings.forecasts { " Or when a budget will not last." }
                @if settings.expiries { " Or before a key expires." }
            }
        }
    }
}

fn table(alerts: &[AlertView], clock: &ViewerClock) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "Noticed" }
                    th scope="col" { "What happened" }
                    th scope="col" { "Mail" }
                    th scope="col" { "Webhook" }
                } }
                tbody {
                    @for view in alerts {
                        tr {
                            td data-label="Noticed" { (clock.relative_time(view.alert.at)) }
                            td data-label="What happened" { bdi { (view.sentence()) } }
                            td data-label="Mail" { (delivery(view.alert.mail)) }
                            td data-label="Webhook" { (delivery(view.alert.webhook)) }
                        }
                    }
                }
            }
        }
    }
}

fn delivery(delivery: AlertDelivery) -> Markup {
    let AlertDelivery { state, tries, at: _, status } = delivery;
    html! {
        @match state {
            None => span.muted { "–" },
            Some(DeliveryState::Delivered) => span.badge.good { "Sent" },
            Some(DeliveryState::Failed) => span.badge.off { "Failed" },
            Some(DeliveryState::Pending) if tries == 0 => span.badge { "Waits" },
            Some(DeliveryState::Pending) => span.badge.warn { "Tries again" },
        }
        @if let Some(status) = status.filter(|_| state != Some(DeliveryState::Delivered)) {
            " " span.muted.small { "answered " (status) }
        }
    }
}

fn settings_card(
    state: &ConsoleState,
    user: &SignedInUser,
    settings: &AlertSettingsView,
    readers: &[String],
    (fields, errors): (&FormFields, &FieldErrors),
) -> Markup {
    let whose = match &user.team {
        Some(team) => format!("For the keys and limits of the team {}.", team.name),
        None => "For your own keys and limits.".to_owned(),
    };
    html! {
        section.card.broad {
            h2 { "Who hears of it" }
            p.muted { (whose) }
            @if settings.may_change {
                form method="post" action=(user.path_for(PAGE_PATH)) {
                    (version_field(&version_of(&settings.stable_json())))
                    (FormInput {
                        name: "levels_percent",
                        label: "Percents of a cap or budget",
                        value: fields.get("levels_percent"),
                        input_mode: Some("numeric"),
                        mark_optional: false,
                        help: Some("Separated by commas. Each one is told once, and again for another amount or period. Empty for none."),
                        ..FormInput::default()
                    }.render(errors))
                    (tick_field(fields, "forecast", "Forecasts",
                        "When a budget will be spent before its period ends, at the pace so far."))
                    (tick_field(fields, "key_expiry", "Keys that expire",
                        "Seven days and one day before."))
                    (tick_field(fields, "statement", "Monthly statement",
                        "A mail with the statement of each month, in the first days of the next one."))
                    (mail_field(state, user, readers, fields))
                    (quiet_fields(fields, errors))
                    (webhook_fields(settings.webhook.as_ref(), fields, errors))
                    button.button type="submit" { "Save" }
                }
                @if settings.webhook.as_ref().is_some_and(|one| one.form == WebhookForm::Signed) {
                    details {
                        summary { "Secret of the signatures" }
                        (super::copy_block("alert-secret", "As in Standard Webhooks",
                            &state.host.alert_secret(user.owner_id())))
                    }
                }
            } @else {
                p { "Only managers of the team change this." }
            }
        }
    }
}

fn mail_field(
    state: &ConsoleState,
    user: &SignedInUser,
    readers: &[String],
    fields: &FormFields,
) -> Markup {
    html! {
        label.tick {
            input type="checkbox" name="mail" value="on" checked[fields.get("mail") == "on"];
            span {
                "Mail"
                span.help {
                    @if !state.host.can_mail() {
                        "This gateway has no mail server, so that nobody gets mail."
                    } @else if readers.is_empty() && user.team.is_some() {
                        "No manager of the team has an address."
                    } @else if readers.is_empty() {
                        "Your account has no address. " a href="/console/account" { "Add one" } "."
                    } @else {
                        "To " bdi { (readers.join(", ")) } ", at most one mail in ten minutes."
                    }
                }
            }
        }
    }
}
