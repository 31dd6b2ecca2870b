//! Alerts about the gateway: events that its nodes tell, the share of failed calls, and who hears of them.

use std::collections::{BTreeMap, BTreeSet};

use canon::{Micros, Money};
use serde_json::{Value, json};
use store::{
    Alert, AlertKind, AlertReceivers, EventKind, GATEWAY_OWNER, GatewayAlertSettings, GatewayEvent,
    HourErrors, NodeFacts, QuietHours, StoreError, UsageStep,
};

use crate::Admin;
use crate::actor::Actor;
use crate::alert_search::{due, new_id};
use crate::alert_view::AlertView;
use crate::alerts::{
    AlertWebhook, QuietDraft, WebhookDraft, checked_quiet, receivers_text, with_digest,
};
use crate::error::AdminError;
use crate::gateway_conditions::{CONDITIONS_FACT, NodeCondition};
use crate::version::ReadVersion;

/// Time for which the last conditions of a node that died count. One that stops takes them along.
const MAX_NODE_SILENCE: Micros = Micros::from_secs(600);
/// Settled calls of the last hour from which on their errors are looked at.
const MIN_CALLS: i64 = 20;
const HOUR: Micros = Micros::from_hours(1);

/// Settings of the alerts about the gateway as surfaces show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayAlertsView {
    /// True if it is told that a lane is down.
    pub lanes: bool,
    /// True if it is told that a provider refuses a credential.
    pub credentials: bool,
    /// True if it is told that a health check is not good.
    pub health: bool,
    /// Percent of failed calls in an hour above which an alert is told; `None` for never.
    pub error_percent: Option<u8>,
    /// True if administrators get mail.
    pub mails: bool,
    /// Hours in which mails wait.
    pub quiet: Option<QuietHours>,
    /// The webhook.
    pub webhook: Option<AlertWebhook>,
}

/// A change of the settings. A field that is `None` stays as it is.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "the fields are those of `GatewayAlertsView`")]
pub struct GatewayAlertsChange {
    pub lanes: Option<bool>,
    pub credentials: Option<bool>,
    pub health: Option<bool>,
    pub error_percent: Option<Option<u8>>,
    pub mails: Option<bool>,
    pub quiet: Option<Option<QuietDraft>>,
    pub webhook: Option<Option<WebhookDraft>>,
}

impl GatewayAlertsView {
    /// The whole description.
    pub fn to_json(&self) -> Value {
        json!({
            "lanes": self.lanes,
            "credentials": self.credentials,
            "health": self.health,
            "error_percent": self.error_percent,
            "mail": self.mails,
            "quiet_hours": self.quiet.as_ref().map(crate::alerts::quiet_json),
            "webhook": self.webhook.as_ref().map(AlertWebhook::to_json),
        })
    }

    /// The part that only administration changes, from which the version is computed.
    pub fn stable_json(&self) -> Value {
        with_digest(self.to_json(), self.webhook.as_ref())
    }
}

impl Admin {
    /// Returns the settings of the alerts about the gateway, for administrators.
    pub async fn gateway_alert_settings(
        &self,
        actor: &Actor,
    ) -> Result<GatewayAlertsView, AdminError> {
        actor.require_admin()?;
        let GatewayAlertSettings { lanes, credentials, health, error_percent, receivers } =
            self.store.gateway_alert_settings().await?;
        let AlertReceivers { mails, quiet, webhook } = receivers;
        let webhook = webhook.map(|webhook| self.webhook_view(GATEWAY_OWNER, &webhook));
        Ok(GatewayAlertsView { lanes, credentials, health, error_percent, mails, quiet, webhook })
    }

    /// Changes the settings of the alerts about the gateway.
    pub async fn change_gateway_alert_settings(
        &self,
        actor: &Actor,
        read: ReadVersion<'_>,
        change: GatewayAlertsChange,
    ) -> Result<GatewayAlertsView, AdminError> {
        actor.require_admin()?;
        let GatewayAlertsChange { lanes, credentials, health, .. } = change;
        let GatewayAlertsChange { error_percent, mails, quiet, webhook, .. } = change;
        if error_percent.flatten().is_some_and(|percent| !(1..=100).contains(&percent)) {
            return Err(AdminError::invalid("error_percent", "write a percent from 1 to 100"));
        }
        let quiet = quiet.map(|quiet| quiet.map(checked_quiet).transpose()).transpose()?;
        // The store is read before the change writes.
        let mut store_change = self.store.begin_change().await?;
        let before = self.gateway_alert_settings(actor).await?;
        read.check(&before.stable_json())?;
        let mut settings = self.store.gateway_alert_settings().await?;
        settings.lanes = lanes.unwrap_or(settings.lanes);
        settings.credentials = credentials.unwrap_or(settings.credentials);
        settings.health = health.unwrap_or(settings.health);
        settings.error_percent = error_percent.unwrap_or(settings.error_percent);
        let receivers = &mut settings.receivers;
        receivers.mails = mails.unwrap_or(receivers.mails);
        receivers.quiet = quiet.unwrap_or(receivers.quiet.take());
        let is_new_address = matches!(&webhook, Some(Some(WebhookDraft { address: Some(_), .. })));
        if let Some(webhook) = webhook {
            let present = receivers.webhook.take();
            receivers.webhook = self.sealed_webhook(GATEWAY_OWNER, present, webhook).await?;
        }
        store_change.put_gateway_alert_settings(&settings, self.accounts.now()).await?;
        let detail = settings_text(&settings, is_new_address);
        self.accounts
            .commit(store_change, actor, &[["alerts.change", GATEWAY_OWNER, &detail]])
            .await?;
        self.gateway_alert_settings(actor).await
    }

    /// Returns the events of the gateway that last, for administrators.
    pub async fn lasting_alerts(&self, actor: &Actor) -> Result<Vec<AlertView>, AdminError> {
        actor.require_admin()?;
        let open = self.store.open_alerts().await?;
        Ok(AlertView::load(&self.store, open).await?)
    }

    /// Ends events that are over, and returns those that have begun.
    pub(crate) async fn follow_events(&self, now: Micros) -> Result<Vec<Alert>, StoreError> {
        let settings = self.store.gateway_alert_settings().await?;
        let open = self.store.open_alerts().await?;
        let mut lasting = lasting_conditions(&self.store.node_facts().await?);
        if let Some(percent) = settings.error_percent {
            let is_open =
                open.iter().any(|one| one.kind == AlertKind::Gateway(EventKind::ErrorRate));
            let hours = self.store.hour_errors(UsageStep::Hour.begin(now - HOUR)).await?;
            let rate = ErrorRate::of(&hours, now);
            if rate.is_above(percent, is_open) {
                lasting.insert((EventKind::ErrorRate, String::new()), rate.event(percent, now));
            }
        }
        for alert in open {
            let subject = alert.event.map(|event| event.subject).unwrap_or_default();
            let AlertKind::Gateway(kind) = alert.kind else { continue };
            let is_on = is_told(&settings, kind);
            // An event of a kind that was turned off ends without a word.
            if lasting.remove(&(kind, subject)).is_none() || !is_on {
                self.store.end_alert(&alert.id, now, is_on).await?;
            }
        }
        let new = lasting.into_iter().filter(|((kind, _), _)| is_told(&settings, *kind));
        let receivers = &settings.receivers;
        let alert = |((kind, subject), event): (EventKey, LastingEvent)| Alert {
            id: new_id(),
            account_id: GATEWAY_OWNER.to_owned(),
            key_id: None,
            kind: AlertKind::Gateway(kind),
            begun: event.since,
            amount: Money::ZERO,
            level: event.level,
            spent: Money::ZERO,
            at: now,
            event: Some(GatewayEvent { subject, detail: event.text(), ended: None }),
            mail: due(receivers.mails, now),
            webhook: due(receivers.webhook.is_some(), now),
        };
        Ok(new.map(alert).collect())
    }
}

/// Kind and subject of an event, of which one lasts at a time.
type EventKey = (EventKind, String);

/// An event that lasts, as its nodes tell it together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LastingEvent {
    since: Micros,
    detail: String,
    level: u8,
    /// Nodes that tell it, if there are several nodes and it is about no single one.
    nodes: BTreeSet<String>,
}

impl LastingEvent {
    fn text(&self) -> String {
        let Self { detail, nodes, .. } = self;
        if nodes.is_empty() {
            return detail.clone();
        }
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        format!("{detail}; noticed on {}", nodes.join(", "))
    }
}

/// Joins the conditions of all nodes: one event has several nodes. Conditions that another version wrote in another
/// way are left out.
fn lasting_conditions(nodes: &[NodeFacts]) -> BTreeMap<EventKey, LastingEvent> {
    let counted = || nodes.iter().filter(|node| node.silence < MAX_NODE_SILENCE);
    let has_several = counted().count() > 1;
    let mut lasting: BTreeMap<EventKey, LastingEvent> = BTreeMap::new();
    for node in counted() {
        let text = node.sections.get(CONDITIONS_FACT).map_or("[]", String::as_str);
        let conditions: Vec<NodeCondition> = serde_json::from_str(text).unwrap_or_default();
        for NodeCondition { kind, subject, detail, since } in conditions {
            let Some(kind) = EventKind::by_word(&kind) else { continue };
            let since = Micros::new(since);
            // A subject of one node has its name.
            let is_shared = subject.rsplit('/').next() != Some(&node.id);
            let event = lasting.entry((kind, subject)).or_insert_with(|| LastingEvent {
                since,
                detail,
                ..LastingEvent::default()
            });
            event.since = event.since.min(since);
            if has_several && is_shared {
                event.nodes.insert(node.id.clone());
            }
        }
    }
    lasting
}

const fn is_told(settings: &GatewayAlertSettings, kind: EventKind) -> bool {
    match kind {
        EventKind::Lane => settings.lanes,
        EventKind::Credential => settings.credentials,
        EventKind::Health => settings.health,
        EventKind::ErrorRate => settings.error_percent.is_some(),
    }
}

/// Settled calls of the last hour, and those that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ErrorRate {
    calls: i64,
    failed: i64,
}

impl ErrorRate {
    /// Estimates the last hour from the sums of two hours of the clock: the part of the earlier one that lies in it
    /// counts as if its calls were spread evenly.
    fn of(hours: &[HourErrors], now: Micros) -> Self {
        let begun = UsageStep::Hour.begin(now);
        let left = (HOUR - (now - begun)).max(Micros::ZERO).as_secs();
        let mut rate = Self { calls: 0, failed: 0 };
        for hour in hours {
            let part = |count: i64| match hour.begun < begun {
                true => count.saturating_mul(left) / HOUR.as_secs(),
                false => count,
            };
            rate.calls = rate.calls.saturating_add(part(hour.calls));
            rate.failed = rate.failed.saturating_add(part(hour.failed));
        }
        rate
    }

    /// Returns true if the rate is an event. One that lasts ends below half of the percent, so that it does not come
    /// and go.
    fn is_above(self, percent: u8, is_open: bool) -> bool {
        let Self { calls, failed } = self;
        let allowed = calls.saturating_mul(i64::from(percent));
        match is_open {
            true => failed.saturating_mul(200) > allowed,
            false => calls >= MIN_CALLS && failed.saturating_mul(100) > allowed,
        }
    }

    fn event(self, percent: u8, now: Micros) -> LastingEvent {
        let Self { calls, failed } = self;
        let share = failed.saturating_mul(100) / calls.max(1);
        let level = u8::try_from(share.clamp(0, 100)).unwrap_or(100);
        let detail = format!("{failed} of {calls} calls, more than {percent} %");
        LastingEvent { since: now, detail, level, nodes: BTreeSet::new() }
    }
}

/// Describes settings for the audit log, without the address of the webhook.
fn settings_text(settings: &GatewayAlertSettings, is_new_address: bool) -> String {
    let GatewayAlertSettings { lanes, credentials, health, error_percent, receivers } = settings;
    let word = |is_on: &bool| if *is_on { "on" } else { "off" };
    let [lanes, credentials, health] = [lanes, credentials, health].map(word);
    let errors = error_percent.map_or_else(|| "off".to_owned(), |percent| format!("{percent} %"));
    let receivers = receivers_text(receivers, is_new_address);
    format!(
        "lanes {lanes}; credentials {credentials}; health {health}; errors {errors}; {receivers}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, silence: i64, conditions: &[(&str, &str, i64)]) -> NodeFacts {
        let told = conditions.iter().map(|(kind, subject, since)| NodeCondition {
            kind: (*kind).to_owned(),
            subject: (*subject).to_owned(),
            detail: format!("seen by {id}"),
            since: *since,
        });
        let told: Vec<NodeCondition> = told.collect();
        let text = serde_json::to_string(&told).unwrap();
        let sections = BTreeMap::from([(CONDITIONS_FACT.to_owned(), text)]);
        NodeFacts { id: id.to_owned(), silence: Micros::from_secs(silence), sections }
    }

    #[test]
    fn nodes_tell_one_event_together() {
        let mut older = node("c", 1, &[]);
        older.sections.clear();
        let mut other = node("d", 1, &[]);
        other.sections.insert(CONDITIONS_FACT.to_owned(), "{}".to_owned());
        let nodes = [
            node("a", 1, &[("lane", "x/m", 50), ("health", "disk/a", 9)]),
            node("b", 500, &[("lane", "x/m", 40), ("later kind", "x", 1)]),
            node("dead", 700, &[("lane", "y/m", 1)]),
            older,
            other,
        ];
        let found = lasting_conditions(&nodes);
        let texts: Vec<(EventKind, &str, i64, String)> = found
            .iter()
            .map(|((kind, subject), event)| {
                (*kind, subject.as_str(), event.since.get(), event.text())
            })
            .collect();
        let wanted = [
            (EventKind::Health, "disk/a", 9, "seen by a".to_owned()),
            (EventKind::Lane, "x/m", 40, "seen by a; noticed on a, b".to_owned()),
        ];
        assert_eq!(texts, wanted);
        let alone = lasting_conditions(&nodes[..1]);
        assert!(alone.values().all(|event| event.text() == "seen by a"));
    }

    #[test]
    fn the_rate_of_an_hour_is_that_of_the_clock_and_a_part_of_the_one_before() {
        let hour = |hours: i64, calls, failed| HourErrors {
            begun: Micros::from_hours(hours),
            calls,
            failed,
        };
        let now = Micros::from_hours(10) + Micros::from_secs(900);
        let rate = ErrorRate::of(&[hour(9, 400, 40), hour(10, 100, 30)], now);
        assert_eq!(rate, ErrorRate { calls: 400, failed: 60 });
        assert!(rate.is_above(14, false) && !rate.is_above(15, false));
        // It ends below the half.
        assert!(rate.is_above(29, true) && !rate.is_above(30, true));
        assert_eq!(rate.event(14, now).level, 15);
        let few = ErrorRate { calls: 19, failed: 19 };
        assert!(!few.is_above(1, false) && few.is_above(1, true));
        assert!(!ErrorRate { calls: 0, failed: 0 }.is_above(1, true));
    }
}
