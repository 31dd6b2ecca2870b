//! Alerts: what the people of an account or the administrators of the gateway are told, each once, and the state
//! of the deliveries.
//!
//! One process at a time writes them, see [`crate::ClusterTurn::Alerts`]. Kinds that came with migration 47 are in a
//! table of their own, which programs before it do not read. The view `all_alerts` has both tables.

use std::collections::BTreeSet;

use canon::{Micros, Money};
use sqlx::QueryBuilder;

use crate::alert_kind::AlertKind;
use crate::db::{clean, in_transaction, on_reader, on_writer, unknown_word};
use crate::row::row;
use crate::task_state::DeliveryState;
use crate::{Store, StoreError};

/// Rows that one transaction deletes.
const BATCH_ROWS: i64 = 500;
/// Account of alerts about the gateway, and the row of their settings. No account has this id.
pub const GATEWAY_OWNER: &str = "gateway";

/// State of the delivery of an alert in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertDelivery {
    /// The state; `None` if nobody is told in this way.
    pub state: Option<DeliveryState>,
    /// Number of attempts.
    pub tries: u32,
    /// Time of the next attempt, or of the last one.
    pub at: Micros,
    /// HTTP status of the last answer.
    pub status: Option<u16>,
}

/// Subject of an event of the gateway, and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayEvent {
    /// The lane, the credential or the health check.
    pub subject: String,
    /// The finding when it was noticed.
    pub detail: String,
    /// Its end; `None` while it lasts.
    pub ended: Option<Micros>,
}

/// An event that an account is told once: account, key, kind, begin, amount and level are its identity. One of the
/// gateway is told once until it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its id.
    pub id: String,
    /// The account.
    pub account_id: String,
    /// The key; `None` for a limit of the whole account.
    pub key_id: Option<String>,
    /// Its subject.
    pub kind: AlertKind,
    /// Begin of the spending that counts, 0 for a cap; end of a key that expires; begin of an event of the
    /// gateway, or of the month of a statement.
    pub begun: Micros,
    /// Amount of the limit; nothing for a key that expires.
    pub amount: Money,
    /// The level in percent; days before a key expires; percent of failed calls.
    pub level: u8,
    /// Money spent when it was noticed; nothing for a key that expires.
    pub spent: Money,
    /// Time at which it was noticed.
    pub at: Micros,
    /// The event of the gateway, with [`GATEWAY_OWNER`] as the account.
    pub event: Option<GatewayEvent>,
    /// Mail to the people of the account.
    pub mail: AlertDelivery,
    /// Message to the webhook of the account.
    pub webhook: AlertDelivery,
}

/// A way in which an alert is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertWay {
    /// By mail.
    Mail,
    /// By a webhook.
    Webhook,
}

/// A page of alerts, the newest first.
#[derive(Clone, Debug, Default)]
pub struct AlertFilter {
    /// Of this account.
    pub account_id: Option<String>,
    /// Before the alert with that time and id.
    pub before: Option<(Micros, String)>,
}

row! {
    struct AlertRow {
        id: String,
        account_id: String,
        key_id: String,
        bound: String,
        begun: Micros,
        amount: Money,
        level: u8,
        spent: Money,
        at: Micros,
        mail: Option<String>,
        mail_tries: u32,
        mail_at: Micros,
        webhook: Option<String>,
        webhook_tries: u32,
        webhook_at: Micros,
        webhook_status: Option<i64>,
        subject: String,
        detail: String,
        ended: Option<Micros>,
    }
}

fn state(word: Option<String>) -> Result<Option<DeliveryState>, sqlx::Error> {
    word.map(|word| DeliveryState::by_word(&word).ok_or_else(|| unknown_word(&word))).transpose()
}

impl TryFrom<AlertRow> for Alert {
    type Error = sqlx::Error;

    fn try_from(row: AlertRow) -> Result<Self, sqlx::Error> {
        let kind = AlertKind::by_word(&row.bound).ok_or_else(|| unknown_word(&row.bound))?;
        let mail = AlertDelivery {
            state: state(row.mail)?,
            tries: row.mail_tries,
            at: row.mail_at,
            status: None,
        };
        let webhook = AlertDelivery {
            state: state(row.webhook)?,
            tries: row.webhook_tries,
            at: row.webhook_at,
            status: row.webhook_status.and_then(|status| u16::try_from(status).ok()),
        };
        let event = match kind {
            AlertKind::Gateway(_) => {
                Some(GatewayEvent { subject: row.subject, detail: row.detail, ended: row.ended })
            }
            AlertKind::Spending(_)
            | AlertKind::Forecast(_)
            | AlertKind::KeyExpiry
            | AlertKind::Statement => None,
        };
        Ok(Self {
            id: row.id,
            account_id: row.account_id,
            key_id: Some(row.key_id).filter(|id| !id.is_empty()),
            kind,
            begun: row.begun,
            amount: row.amount,
            level: row.level,
            spent: row.spent,
            at: row.at,
            event,
            mail,
            webhook,
        })
    }
}

/// Makes the same statement for both tables.
macro_rules! both {
    ($begin:literal, $end:literal) => {
        [concat!($begin, " alerts ", $end), concat!($begin, " alert_events ", $end)]
    };
}

const COLUMNS: &str = "SELECT id, account_id, key_id, bound, begun, amount, level, spent, at, \
    mail, mail_tries, mail_at, webhook, webhook_tries, webhook_at, webhook_status, \
    subject, detail, ended FROM all_alerts ";
const ADD: &str = "INSERT INTO alerts \
    (id, account_id, key_id, bound, begun, amount, level, spent, at, mail, mail_at, webhook, webhook_at) \
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $9, $11, $9 \
    WHERE EXISTS (SELECT 1 FROM accounts WHERE id = $2) ON CONFLICT DO NOTHING";
const ADD_EVENT: &str = "INSERT INTO alert_events \
    (id, account_id, kind, subject, detail, begun, level, at, mail, mail_at, webhook, webhook_at) \
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $8, $10, $8 \
    WHERE $2 = 'gateway' OR EXISTS (SELECT 1 FROM accounts WHERE id = $2) ON CONFLICT DO NOTHING";
const OPEN: &str = "WHERE account_id = 'gateway' AND ended IS NULL ORDER BY begun, id";
/// The end is told in the ways in which the begin was told. Without it, what still waits is told no more.
const END: &str = "UPDATE alert_events SET ended = $2, \
    mailed = CASE WHEN mail = 'delivered' THEN mail_at ELSE mailed END, \
    mail_tries = CASE WHEN mail = 'delivered' AND $3 = 1 THEN 0 ELSE mail_tries END, \
    mail_at = CASE WHEN mail = 'delivered' AND $3 = 1 THEN $2 ELSE mail_at END, \
    mail = CASE WHEN mail = 'delivered' AND $3 = 1 THEN 'pending' \
    WHEN mail = 'pending' AND $3 = 0 THEN NULL ELSE mail END, \
    webhook_tries = CASE WHEN webhook = 'delivered' AND $3 = 1 THEN 0 ELSE webhook_tries END, \
    webhook_at = CASE WHEN webhook = 'delivered' AND $3 = 1 THEN $2 ELSE webhook_at END, \
    webhook = CASE WHEN webhook = 'delivered' AND $3 = 1 THEN 'pending' \
    WHEN webhook = 'pending' AND $3 = 0 THEN NULL ELSE webhook END \
    WHERE id = $1 AND ended IS NULL";
const STATEMENTS: &str =
    "SELECT account_id FROM alert_events WHERE kind = 'statement' AND begun = $1";
const NOTE_MAIL: [&str; 2] =
    both!("UPDATE", "SET mail = $2, mail_tries = $3, mail_at = $4 WHERE id = $1");
const NOTE_WEBHOOK: [&str; 2] = both!(
    "UPDATE",
    "SET webhook = $2, webhook_tries = $3, webhook_at = $4, webhook_status = $5 WHERE id = $1"
);
const POSTPONE_MAIL: [&str; 2] =
    both!("UPDATE", "SET mail_at = $2 WHERE account_id = $1 AND mail = 'pending' AND mail_at < $2");
const POSTPONE_WEBHOOK: [&str; 2] = both!(
    "UPDATE",
    "SET webhook_at = $2 WHERE account_id = $1 AND webhook = 'pending' AND webhook_at < $2"
);
const LAST_MAIL: &str = "SELECT CAST(COALESCE(MAX(CASE WHEN mail = 'delivered' THEN mail_at ELSE mailed END), 0) \
    AS BIGINT) FROM all_alerts WHERE account_id = $1 AND at >= $2 AND (mail = 'delivered' OR mailed > 0)";
const DROP: &str = "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE at < $1 LIMIT $2)";
const DROP_EVENTS: &str =
    "DELETE FROM alert_events WHERE id IN (SELECT id FROM alert_events WHERE at < $1 LIMIT $2)";

impl Store {
    /// Adds alerts, and returns those that were not known.
    pub async fn add_alerts(&self, alerts: Vec<Alert>) -> Result<Vec<Alert>, StoreError> {
        let mut added = Vec::new();
        if alerts.is_empty() {
            return Ok(added);
        }
        let none = GatewayEvent::default();
        in_transaction!(&self.db, tx: Kind => {
            for alert in alerts {
                let Alert { id, account_id, key_id, kind, begun, amount, level, .. } = &alert;
                let add = match kind {
                    AlertKind::Spending(_) | AlertKind::Forecast(_) | AlertKind::KeyExpiry => {
                        sqlx::query(ADD)
                            .bind(clean(id))
                            .bind(clean(account_id))
                            .bind(clean(key_id.as_deref().unwrap_or_default()))
                            .bind(kind.word())
                            .bind(begun.get())
                            .bind(amount.as_nanos())
                            .bind(i64::from(*level))
                            .bind(alert.spent.as_nanos())
                            .bind(alert.at.get())
                    }
                    AlertKind::Gateway(_) | AlertKind::Statement => {
                        let GatewayEvent { subject, detail, .. } =
                            alert.event.as_ref().unwrap_or(&none);
                        sqlx::query(ADD_EVENT)
                            .bind(clean(id))
                            .bind(clean(account_id))
                            .bind(kind.word())
                            .bind(clean(subject))
                            .bind(clean(detail))
                            .bind(begun.get())
                            .bind(i64::from(*level))
                            .bind(alert.at.get())
                    }
                };
                let done = add
                    .bind(alert.mail.state.map(DeliveryState::word))
                    .bind(alert.webhook.state.map(DeliveryState::word))
                    .execute(&mut *tx)
                    .await?;
                if done.rows_affected() > 0 {
                    added.push(alert);
                }
            }
        });
        Ok(added)
    }

    /// Returns alerts, the newest first.
    pub async fn alerts(&self, filter: &AlertFilter, most: u32) -> Result<Vec<Alert>, StoreError> {
        let AlertFilter { account_id, before } = filter;
        let rows: Vec<AlertRow> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COLUMNS);
            query.push("WHERE 1 = 1");
            if let Some(id) = account_id {
                query.push(" AND account_id = ").push_bind(clean(id));
            }
            if let Some((at, id)) = before {
                query.push(" AND (at, id) < (").push_bind(at.get());
                query.push(", ").push_bind(clean(id)).push(")");
            }
            query.push(" ORDER BY at DESC, id DESC LIMIT ").push_bind(i64::from(most));
            query.build_query_as().fetch_all(pool).await?
        });
        read(rows)
    }

    /// Returns the events of the gateway that last, the oldest first.
    pub async fn open_alerts(&self) -> Result<Vec<Alert>, StoreError> {
        let rows: Vec<AlertRow> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COLUMNS);
            query.push(OPEN).build_query_as().fetch_all(pool).await?
        });
        read(rows)
    }

    /// Ends an event of the gateway. Its end is told like its begin if `is_told`.
    pub async fn end_alert(&self, id: &str, now: Micros, is_told: bool) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            let end = sqlx::query(END).bind(clean(id)).bind(now.get());
            end.bind(i64::from(is_told)).execute(pool).await?;
        });
        Ok(())
    }

    /// Returns the accounts that have got the statement of the month that begins then.
    pub async fn accounts_with_statement(
        &self,
        begun: Micros,
    ) -> Result<BTreeSet<String>, StoreError> {
        let ids: Vec<String> = on_reader!(&self.db, pool => {
            sqlx::query_scalar(STATEMENTS).bind(begun.get()).fetch_all(pool).await?
        });
        Ok(ids.into_iter().collect())
    }

    /// Returns alerts that are due in one way, those first that have been due the longest.
    pub async fn due_alerts(
        &self,
        way: AlertWay,
        now: Micros,
        most: u32,
    ) -> Result<Vec<Alert>, StoreError> {
        let (condition, order) = match way {
            AlertWay::Mail => ("WHERE mail = 'pending' AND mail_at <= ", "mail_at"),
            AlertWay::Webhook => ("WHERE webhook = 'pending' AND webhook_at <= ", "webhook_at"),
        };
        let rows: Vec<AlertRow> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(COLUMNS);
            query.push(condition).push_bind(now.get());
            query.push(" ORDER BY ").push(order).push(", at, id LIMIT ");
            query.push_bind(i64::from(most));
            query.build_query_as().fetch_all(pool).await?
        });
        read(rows)
    }

    /// Notes an attempt to deliver an alert.
    pub async fn note_alert_delivery(
        &self,
        id: &str,
        way: AlertWay,
        delivery: AlertDelivery,
    ) -> Result<(), StoreError> {
        let AlertDelivery { state, tries, at, status } = delivery;
        let statements = match way {
            AlertWay::Mail => NOTE_MAIL,
            AlertWay::Webhook => NOTE_WEBHOOK,
        };
        on_writer!(&self.db, pool => {
            // One of the tables has the row.
            for statement in statements {
                let note = sqlx::query(statement)
                    .bind(clean(id))
                    .bind(state.map(DeliveryState::word))
                    .bind(i64::from(tries))
                    .bind(at.get());
                let note = match way {
                    AlertWay::Mail => note,
                    AlertWay::Webhook => note.bind(status.map(i64::from)),
                };
                note.execute(pool).await?;
            }
        });
        Ok(())
    }

    /// Lets all pending alerts of an account wait in one way.
    pub async fn postpone_alerts(
        &self,
        account_id: &str,
        way: AlertWay,
        until: Micros,
    ) -> Result<(), StoreError> {
        let statements = match way {
            AlertWay::Mail => POSTPONE_MAIL,
            AlertWay::Webhook => POSTPONE_WEBHOOK,
        };
        on_writer!(&self.db, pool => {
            for statement in statements {
                let postpone = sqlx::query(statement).bind(clean(account_id)).bind(until.get());
                postpone.execute(pool).await?;
            }
        });
        Ok(())
    }

    /// Returns the time of the last mail about an alert of the account that is not older than `since`.
    pub async fn last_alert_mail(
        &self,
        account_id: &str,
        since: Micros,
    ) -> Result<Micros, StoreError> {
        let last: i64 = on_reader!(&self.db, pool => {
            sqlx::query_scalar(LAST_MAIL)
                .bind(clean(account_id))
                .bind(since.get())
                .fetch_one(pool)
                .await?
        });
        Ok(Micros::new(last))
    }

    /// Deletes some alerts from before that time, and returns their number.
    pub async fn drop_alerts(&self, before: Micros) -> Result<u64, StoreError> {
        let mut dropped = 0_u64;
        on_writer!(&self.db, pool => {
            for statement in [DROP, DROP_EVENTS] {
                let drop = sqlx::query(statement).bind(before.get()).bind(BATCH_ROWS);
                dropped += drop.execute(pool).await?.rows_affected();
            }
        });
        Ok(dropped)
    }
}

fn read(rows: Vec<AlertRow>) -> Result<Vec<Alert>, StoreError> {
    Ok(rows.into_iter().map(Alert::try_from).collect::<Result<_, sqlx::Error>>()?)
}
