//! `/api/admin/alerts` and `/api/admin/users/{id}/alerts`: alerts about spending, and who hears of them.

use ::admin::{AlertChange, AlertSettingsView, AlertView, WebhookDraft};
use axum::response::Response;
use canon::{ApiError, Micros};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{AlertFilter, WebhookForm};

use super::usage::{query_value, query_values};
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
    mail: Option<bool>,
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
    let SettingsBody { levels_percent, mail, webhook } = read_body(request).await?;
    let webhook = webhook.map(|webhook| webhook.map(WebhookBody::into_draft).transpose());
    let change = AlertChange { levels: levels_percent, mails: mail, webhook: webhook.transpose()? };
    let changed = state.admin.change_alert_settings(&actor, &id, read.as_read_version(), change);
    Ok(settings_response(&changed.await.map_err(admin_error)?))
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
    let limit: Option<u32> = limit.map_or(Some(DEFAULT_ALERTS), |text| text.parse().ok());
    let limit = limit
        .filter(|limit| (1..=MAX_ALERTS).contains(limit))
        .ok_or_else(|| invalid_field("limit", format!("write a number from 1 to {MAX_ALERTS}")))?;
    let before = query_value(&query, "before").map(|text| {
        let cursor = text.split_once('_').and_then(|(at, id)| Some((at.parse().ok()?, id)));
        let (at, id) =
            cursor.ok_or_else(|| invalid_field("before", "write the `next` of the page before"))?;
        Ok::<_, ApiError>((Micros::new(at), id.to_owned()))
    });
    let filter =
        AlertFilter { account_id: query_value(&query, "account_id"), before: before.transpose()? };
    // One more tells if there is a next page.
    let found = incoming.state.admin.alerts(&caller, &filter, limit + 1).await;
    let mut found = found.map_err(admin_error)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let next = last.map(|last| format!("{}_{}", last.alert.at.get(), last.alert.id));
    let data: Vec<Value> = found.iter().map(AlertView::to_json).collect();
    Ok(success_response(AlertsBody { total: data.len(), data, next }))
}
