//! `/api/admin/alerts`, `/api/admin/users/{id}/alerts` and `/api/admin/settings/alerts`: alerts, and who hears of
//! them.

use ::admin::{
    AlertChange, AlertCursor, AlertQuery, AlertSettingsView, AlertView, GatewayAlertsChange,
    GatewayAlertsView, QuietDraft, WebhookDraft,
};
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::WebhookForm;

use super::usage::{query_value, query_values, whole_number};
use super::{
    actor, admin_error, if_match, invalid_field, not_found, path_id, read_body, sent, store_error,
    success_response, tagged_response,
};
use crate::request::ApiRequest;

const DEFAULT_ALERTS: u32 = 50;
const MAX_ALERTS: u32 = 200;

/// An absent field stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsBody {
    #[serde(default)]
    levels_percent: Option<Vec<u8>>,
    #[serde(default)]
    forecast: Option<bool>,
    #[serde(default)]
    key_expiry: Option<bool>,
    #[serde(default)]
    statement: Option<bool>,
    #[serde(default)]
    mail: Option<bool>,
    /// `null` removes them.
    #[serde(default, deserialize_with = "sent")]
    quiet_hours: Option<Option<QuietBody>>,
    /// `null` removes it.
    #[serde(default, deserialize_with = "sent")]
    webhook: Option<Option<WebhookBody>>,
}

/// An absent field stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GatewaySettingsBody {
    #[serde(default)]
    lanes: Option<bool>,
    #[serde(default)]
    credentials: Option<bool>,
    #[serde(default)]
    health: Option<bool>,
    /// `null` for never.
    #[serde(default, deserialize_with = "sent")]
    error_percent: Option<Option<u8>>,
    #[serde(default)]
    mail: Option<bool>,
    /// `null` removes them.
    #[serde(default, deserialize_with = "sent")]
    quiet_hours: Option<Option<QuietBody>>,
    /// `null` removes it.
    #[serde(default, deserialize_with = "sent")]
    webhook: Option<Option<WebhookBody>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookBody {
    form: String,
    #[serde(default)]
    url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuietBody {
    from: String,
    to: String,
    #[serde(default = "utc")]
    time_zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// Returns the account or team in the path. A part of administration covers one of the two.
fn account_id(incoming: &ApiRequest) -> impl Future<Output = Result<String, ApiError>> + use<> {
    let store = incoming.state.store.clone();
    let team_id = path_id(incoming, "/api/admin/teams/", "/alerts");
    let person_id = path_id(incoming, "/api/admin/users/", "/alerts");
    async move {
        if !team_id.is_empty() {
            let team = store.team(&team_id).await.map_err(store_error)?;
            return Ok(team.ok_or_else(|| not_found("team"))?.id);
        }
        let account = store.account(&person_id).await.map_err(store_error)?;
        Ok(account.ok_or_else(|| not_found("account"))?.id)
    }
}

fn settings_response(view: &AlertSettingsView) -> Response {
    tagged_response(StatusCode::OK, &view.to_json(), &view.stable_json())
}

/// `GET` of the settings of an account or team.
pub(crate) async fn get_settings(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) = (actor(&incoming.state, &incoming.key).await?, account_id(&incoming).await?);
    let view = incoming.state.admin.alert_settings(&actor, &id).await;
    Ok(settings_response(&view.map_err(admin_error)?))
}

/// `PATCH` of the settings of an account or team.
pub(crate) async fn change_settings(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) = (actor(&incoming.state, &incoming.key).await?, account_id(&incoming).await?);
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let body: SettingsBody = read_body(request).await?;
    let SettingsBody { levels_percent, forecast, key_expiry, statement, .. } = body;
    let change = AlertChange {
        levels: levels_percent,
        forecasts: forecast,
        expiries: key_expiry,
        statements: statement,
        mails: body.mail,
        quiet: body.quiet_hours.map(|quiet| quiet.map(QuietBody::into_draft)),
        webhook: webhook_draft(body.webhook)?,
    };
    let changed = state.admin.change_alert_settings(&actor, &id, read.as_read_version(), change);
    Ok(settings_response(&changed.await.map_err(admin_error)?))
}

fn gateway_response(view: &GatewayAlertsView) -> Response {
    tagged_response(StatusCode::OK, &view.to_json(), &view.stable_json())
}

/// `GET` of the settings of the alerts about the gateway.
pub(crate) async fn get_gateway_settings(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let view = incoming.state.admin.gateway_alert_settings(&actor).await;
    Ok(gateway_response(&view.map_err(admin_error)?))
}

/// `PATCH` of the settings of the alerts about the gateway.
pub(crate) async fn change_gateway_settings(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let body: GatewaySettingsBody = read_body(request).await?;
    let GatewaySettingsBody { lanes, credentials, health, error_percent, .. } = body;
    let change = GatewayAlertsChange {
        lanes,
        credentials,
        health,
        error_percent,
        mails: body.mail,
        quiet: body.quiet_hours.map(|quiet| quiet.map(QuietBody::into_draft)),
        webhook: webhook_draft(body.webhook)?,
    };
    let admin = &state.admin;
    let changed = admin.change_gateway_alert_settings(&actor, read.as_read_version(), change);
    Ok(gateway_response(&changed.await.map_err(admin_error)?))
}

impl QuietBody {
    fn into_draft(self) -> QuietDraft {
        let Self { from, to, time_zone: zone } = self;
        QuietDraft { from, to, zone }
    }
}

/// Reads the wish for a webhook. `None` lets it stay, and `null` removes it.
fn webhook_draft(
    body: Option<Option<WebhookBody>>,
) -> Result<Option<Option<WebhookDraft>>, ApiError> {
    body.map(|webhook| webhook.map(WebhookBody::into_draft).transpose()).transpose()
}

impl WebhookBody {
    fn into_draft(self) -> Result<WebhookDraft, ApiError> {
        let form = WebhookForm::by_word(&self.form);
        let form = form.ok_or_else(|| invalid_field("webhook.form", "write signed or slack"))?;
        Ok(WebhookDraft { form, address: self.url })
    }
}

/// A page of alerts, and the `before` of the next one.
#[derive(Serialize)]
struct AlertsBody {
    total: usize,
    data: Vec<Value>,
    next: Option<String>,
}

/// `GET /api/admin/alerts`, the newest first. Query: `account_id`, `limit`, and `before`, which is the `next` of
/// the previous page.
pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = actor(&incoming.state, &incoming.key).await?;
    let query = query_values(&incoming);
    let limit = query_value(&query, "limit");
    let limit: Option<u32> = limit.map_or(Some(DEFAULT_ALERTS), |text| whole_number(&text));
    let limit = limit
        .filter(|limit| (1..=MAX_ALERTS).contains(limit))
        .ok_or_else(|| invalid_field("limit", format!("write a number from 1 to {MAX_ALERTS}")))?;
    let before = query_value(&query, "before").map(|text| text.parse::<AlertCursor>());
    let before = before.transpose().map_err(admin_error)?;
    let query = AlertQuery { account_id: query_value(&query, "account_id"), before };
    let page = incoming.state.admin.alerts(&caller, query, limit).await.map_err(admin_error)?;
    let next = page.next.map(|next| next.to_string());
    let data: Vec<Value> = page.alerts.iter().map(AlertView::to_json).collect();
    Ok(success_response(AlertsBody { total: data.len(), data, next }))
}
