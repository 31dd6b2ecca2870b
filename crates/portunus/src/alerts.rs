//! Alerts: found, and told by mail and webhooks, by one node at a time.
//!
//! Delivery is at least once. Alerts of an account share one mail, a statement is a mail of its own, and an account
//! gets at most one in ten minutes and none in its quiet hours. So do the administrators, who hear of the gateway. A webhook that fails lets all messages of its account wait. A round has a limit of time and of
//! messages of one account, so that a slow receiver delays no other account.

use admin::AlertView;
use canon::Micros;
use config::MailError;
use console::AlertMail;
use futures_util::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{
    AccountRole, Alert, AlertDelivery, AlertReceivers, AlertWay, ClusterTurn, DeliveryState,
    GATEWAY_OWNER, KeyOwner, SealedWebhook, StoreError, TURN_TIME, TeamRole,
};

use crate::app::App;

/// Period of the looks.
const LOOK_PERIOD: Duration = Duration::from_secs(15);
/// Time between two mails to one account.
const MAIL_PAUSE: Micros = Micros::from_secs(600);
/// Delays after failed attempts, in seconds. The last one is repeated.
const RETRY_DELAYS_S: [i64; 6] = [30, 120, 600, 1_800, 3_600, 7_200];
/// Age at which an alert is not told to a webhook any more.
const GIVEN_UP_AFTER: Micros = Micros::from_days(1);
/// Attempts of a mail, which take a day. Quiet hours do not count.
const MAX_MAIL_TRIES: u32 = 17;
/// Age of an alert whose mail may still be sent, with tries and quiet hours.
const MAX_MAIL_AGE: Micros = Micros::from_days(30);
/// Pause between two looks in quiet hours, which may be changed meanwhile.
const QUIET_PAUSE: Micros = Micros::from_secs(600);
/// Alerts that one round looks at in each way, messages that it sends for one account, and sentences of one mail.
const MAX_DUE: u32 = 500;
const MAX_MESSAGES: usize = 20;
const MAX_LISTED: usize = 20;
/// Accounts that are told at once.
const MAX_CONCURRENT: usize = 8;
/// Time of a round after which no further message begins, and which the rest of an account waits then.
const ROUND_TIME: Duration = Duration::from_secs(10);
const NEXT_ROUND: Micros = Micros::from_secs(15);

impl App {
    /// Finds and tells alerts on a schedule.
    pub(crate) fn start_alerts(self: &Arc<Self>) {
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                tokio::time::sleep(LOOK_PERIOD).await;
                if let Err(error) = app.run_alerts().await {
                    tracing::warn!("alerts could not be told: {error:#}");
                }
            }
        });
    }

    /// Finds and tells alerts, unless another node does. It runs on a schedule; tests call it directly.
    pub async fn run_alerts(&self) -> anyhow::Result<()> {
        // Two rounds of one node do not overlap either.
        let node = self.engine.funds.lease_client.node_name();
        let process = format!("node {node} {}", uuid::Uuid::now_v7());
        if !self.store.take_turn(ClusterTurn::Alerts, &process, TURN_TIME).await? {
            return Ok(());
        }
        let telling = async {
            self.admin.find_alerts().await?;
            self.admin.drop_old_alerts().await?;
            let (mailed, posted) = tokio::join!(
                self.tell_alerts(AlertWay::Mail, ROUND_TIME),
                self.tell_alerts(AlertWay::Webhook, ROUND_TIME)
            );
            mailed.and(posted)
        };
        Ok(self.store.in_turn(ClusterTurn::Alerts, &process, TURN_TIME, telling).await??)
    }

    /// Tells what is due in one way, account by account, until the time of the round is over. The caller has the
    /// turn.
    pub async fn tell_alerts(&self, way: AlertWay, time: Duration) -> Result<(), StoreError> {
        let end = Instant::now() + time;
        let due = self.store.due_alerts(way, self.clock.now(), MAX_DUE).await?;
        let views = AlertView::load(&self.store, due).await?;
        let mut accounts: BTreeMap<String, (usize, Vec<AlertView>)> = BTreeMap::new();
        for (number, view) in views.into_iter().enumerate() {
            let account = accounts.entry(view.alert.account_id.clone());
            account.or_insert((number, Vec::new())).1.push(view);
        }
        let mut accounts: Vec<_> = accounts.into_iter().collect();
        // In the order in which they are due.
        accounts.sort_by_key(|(_, (number, _))| *number);
        let telling = accounts.into_iter().map(|(account_id, (_, alerts))| async move {
            if Instant::now() >= end {
                return Ok(());
            }
            match way {
                AlertWay::Mail => self.mail_alerts(&account_id, &alerts).await,
                AlertWay::Webhook => self.post_alerts(&account_id, &alerts, end).await,
            }
        });
        let mut told = stream::iter(telling).buffer_unordered(MAX_CONCURRENT);
        while let Some(result) = told.next().await {
            result?;
        }
        Ok(())
    }

    async fn mail_alerts(&self, account_id: &str, alerts: &[AlertView]) -> Result<(), StoreError> {
        let now = self.clock.now();
        let last = self.store.last_alert_mail(account_id, now - MAX_MAIL_AGE).await?;
        let pause_end = last + MAIL_PAUSE;
        if pause_end > now {
            return self.store.postpone_alerts(account_id, AlertWay::Mail, pause_end).await;
        }
        let AlertReceivers { mails, quiet, .. } = self.store.alert_receivers(account_id).await?;
        let readers = self.alert_readers(account_id).await?;
        // A statement is a mail of its own, which has a setting of its own. The others wait for the next one.
        let statement = alerts.iter().find_map(|one| Some((one, one.month()?)));
        let alerts = statement.map_or(alerts, |(one, _)| std::slice::from_ref(one));
        let mailer = self.config().mailer.clone().filter(|_| mails || statement.is_some());
        let (Some(mailer), false) = (mailer, readers.is_empty()) else {
            // Nobody wants or can get the mail.
            return self.note_untold(AlertWay::Mail, alerts).await;
        };
        if let Some(end) = quiet.as_ref().and_then(|quiet| quiet.end(now)) {
            let until = end.min(now + QUIET_PAUSE);
            return self.store.postpone_alerts(account_id, AlertWay::Mail, until).await;
        }
        let gateway = admin::names::gateway_name(&self.store).await;
        let console = format!("{}/console", self.config().public_url);
        let draft = match statement {
            Some((AlertView { alert, .. }, month)) => {
                match self.admin.account_statement(account_id, month).await {
                    Ok(statement) => AlertMail::of_statement(&statement, &console),
                    Err(e) => {
                        tracing::warn!("the statement of an account cannot be read: {e}");
                        let (state, tries) = (DeliveryState::Pending, alert.mail.tries);
                        let failed = attempt(AlertWay::Mail, state, tries, alert.at, now);
                        let (id, way) = (&alert.id, AlertWay::Mail);
                        return self.store.note_alert_delivery(id, way, failed).await;
                    }
                }
            }
            None => AlertMail {
                subject: AlertView::subject(alerts).to_owned(),
                paragraphs: alerts.iter().take(MAX_LISTED).map(AlertView::sentence).collect(),
                more: alerts.len().saturating_sub(MAX_LISTED),
                page: format!("{console}/alerts"),
                button: "Show alerts",
                footnote: match account_id {
                    GATEWAY_OWNER => {
                        "The page of settings, Alerts about the gateway, is where these mails are turned off."
                    }
                    _ => "The page of alerts is also where these mails are turned off.",
                },
            },
        };
        // One reader is enough: another attempt would repeat the mail to those who have it.
        let mut state = DeliveryState::Pending;
        for reader in &readers {
            let mail = draft.for_receiver(reader, &gateway);
            match mailer.send(mail).await {
                Ok(()) => state = DeliveryState::Delivered,
                Err(e) => {
                    tracing::warn!("a mail about an alert could not be sent: {e}");
                    // The others would wait as long.
                    if matches!(e, MailError::Timeout) {
                        break;
                    }
                }
            }
        }
        for AlertView { alert, .. } in alerts {
            let delivery = attempt(AlertWay::Mail, state, alert.mail.tries, noticed(alert), now);
            self.store.note_alert_delivery(&alert.id, AlertWay::Mail, delivery).await?;
        }
        Ok(())
    }

    /// Returns the addresses of those who hear of an account: its person, the managers of a team, or the
    /// administrators of the gateway.
    async fn alert_readers(&self, account_id: &str) -> Result<Vec<String>, StoreError> {
        if account_id == GATEWAY_OWNER {
            let administrators = self.store.accounts().await?.into_iter().filter(|account| {
                !account.disabled && matches!(account.role, AccountRole::Owner | AccountRole::Admin)
            });
            return Ok(administrators.filter_map(|account| account.email).collect());
        }
        let people = match self.store.owner(account_id).await? {
            Some(KeyOwner::Person(account)) => vec![account],
            Some(KeyOwner::Team(team)) => {
                let members = self.store.members(&team.id).await?.into_iter();
                members
                    .filter(|member| member.role == TeamRole::Manager)
                    .map(|member| member.account)
                    .collect()
            }
            None => Vec::new(),
        };
        let people = people.into_iter().filter(|account| !account.disabled);
        Ok(people.filter_map(|account| account.email).collect())
    }

    /// Notes that nobody is told in this way.
    async fn note_untold(&self, way: AlertWay, alerts: &[AlertView]) -> Result<(), StoreError> {
        for one in alerts {
            let nobody = AlertDelivery::default();
            self.store.note_alert_delivery(&one.alert.id, way, nobody).await?;
        }
        Ok(())
    }

    /// Sends messages of one account, until one fails or the time of the round is over. The rest waits, so that
    /// those of other accounts come first.
    async fn post_alerts(
        &self,
        account_id: &str,
        alerts: &[AlertView],
        end: Instant,
    ) -> Result<(), StoreError> {
        let AlertReceivers { webhook, .. } = self.store.alert_receivers(account_id).await?;
        let Some(webhook) = webhook else {
            // It was removed.
            return self.note_untold(AlertWay::Webhook, alerts).await;
        };
        for one in alerts.iter().take(MAX_MESSAGES) {
            if Instant::now() >= end {
                break;
            }
            let delivery = self.post_one(account_id, &webhook, one).await;
            self.store.note_alert_delivery(&one.alert.id, AlertWay::Webhook, delivery).await?;
            if delivery.state == Some(DeliveryState::Pending) {
                let until = delivery.at;
                return self.store.postpone_alerts(account_id, AlertWay::Webhook, until).await;
            }
        }
        let until = self.clock.now() + NEXT_ROUND;
        self.store.postpone_alerts(account_id, AlertWay::Webhook, until).await
    }

    async fn post_one(
        &self,
        account_id: &str,
        webhook: &SealedWebhook,
        one: &AlertView,
    ) -> AlertDelivery {
        let (tries, noticed) = (one.alert.webhook.tries, noticed(&one.alert));
        let after = |state| attempt(AlertWay::Webhook, state, tries, noticed, self.clock.now());
        let Some(address) = self.admin.webhook_address(account_id, webhook) else {
            tracing::warn!("the address of a webhook for alerts cannot be decrypted");
            return after(DeliveryState::Pending);
        };
        match self.api.post_alert(one, webhook.form, &address).await {
            Ok(status) => {
                let state = match status {
                    200..=299 => DeliveryState::Delivered,
                    // The receiver wants no more messages.
                    410 => DeliveryState::Failed,
                    _ => DeliveryState::Pending,
                };
                AlertDelivery { status: Some(status), ..after(state) }
            }
            Err(e) => {
                tracing::debug!("a webhook for alerts failed: {e}");
                after(DeliveryState::Pending)
            }
        }
    }
}

/// Returns the time of the news: the end of an event of the gateway, or when the alert was noticed.
fn noticed(alert: &Alert) -> Micros {
    let ended = alert.event.as_ref().and_then(|event| event.ended);
    ended.map_or(alert.at, |ended| ended.max(alert.at))
}

/// Returns the state of an alert from that time after another attempt. One that failed is repeated after a
/// while, until the alert is too old, or was tried often enough: a mail may have waited for the end of quiet hours.
fn attempt(
    way: AlertWay,
    state: DeliveryState,
    tries: u32,
    noticed: Micros,
    now: Micros,
) -> AlertDelivery {
    let last = RETRY_DELAYS_S.len() - 1;
    let number = usize::try_from(tries).map_or(last, |tries| tries.min(last));
    let next = now + Micros::from_secs(RETRY_DELAYS_S.get(number).copied().unwrap_or_default());
    let is_over = match way {
        AlertWay::Mail => tries.saturating_add(1) >= MAX_MAIL_TRIES,
        AlertWay::Webhook => next - noticed > GIVEN_UP_AFTER,
    };
    let (state, at) = match state {
        DeliveryState::Pending if is_over => (DeliveryState::Failed, now),
        DeliveryState::Pending => (state, next),
        DeliveryState::Delivered | DeliveryState::Failed => (state, now),
    };
    AlertDelivery { state: Some(state), tries: tries.saturating_add(1), at, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails until the delivery is given up, and returns the number of attempts and the time that they take.
    fn fail(way: AlertWay, noticed: Micros, begun: Micros) -> (u32, Micros) {
        let (mut tries, mut now) = (0, begun);
        loop {
            let next = attempt(way, DeliveryState::Pending, tries, noticed, now);
            if next.state == Some(DeliveryState::Failed) {
                return (next.tries, now - begun);
            }
            assert_eq!(next.state, Some(DeliveryState::Pending));
            assert!(next.at > now);
            (tries, now) = (next.tries, next.at);
        }
    }

    #[test]
    fn a_failed_delivery_is_repeated_for_a_day() {
        let noticed = Micros::from_secs(5);
        for way in [AlertWay::Mail, AlertWay::Webhook] {
            let (tries, time) = fail(way, noticed, noticed);
            assert!((10..20).contains(&tries), "{way:?} {tries}");
            let day = GIVEN_UP_AFTER;
            assert!(time > day - Micros::from_hours(3) && time <= day, "{way:?} {time}");
        }
        let done = attempt(AlertWay::Mail, DeliveryState::Delivered, 3, noticed, noticed);
        assert_eq!((done.state, done.tries), (Some(DeliveryState::Delivered), 4));
    }

    #[test]
    fn a_mail_that_waited_is_tried_as_often() {
        let noticed = Micros::from_secs(5);
        let later = noticed + GIVEN_UP_AFTER * 2;
        let (tries, time) = fail(AlertWay::Mail, noticed, later);
        assert_eq!((tries, time), fail(AlertWay::Mail, noticed, noticed));
        assert_eq!(fail(AlertWay::Webhook, noticed, later), (1, Micros::ZERO));
    }
}
