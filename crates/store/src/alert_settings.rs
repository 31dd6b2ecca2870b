//! Settings of alerts: who hears of the spending of an account and of its keys.

use std::collections::BTreeMap;

use canon::Micros;

use crate::audited_change::in_change;
use crate::db::{clean, on_reader};
use crate::row::row;
use crate::vault::SealedSecret;
use crate::{AuditedChange, Store, StoreError};

/// Percents of a limit at which an alert is told, unless the account chooses others.
const USUAL_LEVELS: [u8; 2] = [80, 100];

/// Kind of the messages that a webhook gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookForm {
    /// The alert as JSON, signed as in Standard Webhooks.
    Signed,
    /// A text, as Slack and programs like it read it.
    Slack,
}

impl WebhookForm {
    /// Every form.
    pub const ALL: [Self; 2] = [Self::Signed, Self::Slack];

    /// The word in the database and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Slack => "slack",
        }
    }

    /// Returns the form with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.word() == word)
    }
}

/// Webhook whose address is sealed, because it may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedWebhook {
    /// Kind of its messages.
    pub form: WebhookForm,
    /// Its address.
    pub address: SealedSecret,
}

/// Settings of alerts of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertSettings {
    /// Percents of a limit at which an alert is told, the smallest first.
    pub levels: Vec<u8>,
    /// True if alerts are told by mail.
    pub mails: bool,
    /// Webhook that alerts are sent to.
    pub webhook: Option<SealedWebhook>,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self { levels: USUAL_LEVELS.to_vec(), mails: true, webhook: None }
    }
}

/// Returns the label that the address of an account's webhook is bound to.
pub fn webhook_label(account_id: &str) -> String {
    format!("alert_settings\0{account_id}")
}

row! {
    struct SettingsRow {
        account_id: String,
        levels: String,
        mails: i64,
        form: Option<String>,
        sealed: Option<Vec<u8>>,
        sealed_by: Option<String>,
    }
}

impl TryFrom<SettingsRow> for AlertSettings {
    type Error = sqlx::Error;

    fn try_from(row: SettingsRow) -> Result<Self, sqlx::Error> {
        let SettingsRow { account_id: _, levels, mails, form, sealed, sealed_by } = row;
        let form = form.as_deref().and_then(WebhookForm::by_word);
        let webhook = match (form, sealed, sealed_by) {
            (Some(form), Some(bytes), Some(by)) => {
                Some(SealedWebhook { form, address: SealedSecret { by, bytes } })
            }
            _ => None,
        };
        let levels = serde_json::from_str(&levels).map_err(|e| sqlx::Error::Decode(e.into()))?;
        Ok(Self { levels, mails: mails != 0, webhook })
    }
}

const GET: &str = "SELECT account_id, levels, mails, form, sealed, sealed_by FROM alert_settings \
    WHERE account_id = $1";
const ALL: &str = "SELECT account_id, levels, mails, form, sealed, sealed_by FROM alert_settings";
const PUT: &str = "INSERT INTO alert_settings \
    (account_id, levels, mails, form, sealed, sealed_by, changed) VALUES ($1, $2, $3, $4, $5, $6, $7) \
    ON CONFLICT (account_id) DO UPDATE SET levels = excluded.levels, mails = excluded.mails, \
    form = excluded.form, sealed = excluded.sealed, sealed_by = excluded.sealed_by, \
    changed = excluded.changed";

impl Store {
    /// Returns the settings of an account.
    pub async fn alert_settings(&self, account_id: &str) -> Result<AlertSettings, StoreError> {
        let row: Option<SettingsRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(account_id)).fetch_optional(pool).await?
        });
        Ok(row.map(AlertSettings::try_from).transpose()?.unwrap_or_default())
    }

    /// Returns the settings of all accounts that have changed them.
    pub async fn all_alert_settings(&self) -> Result<BTreeMap<String, AlertSettings>, StoreError> {
        let rows: Vec<SettingsRow> =
            on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?);
        let settings = rows.into_iter().map(|row| Ok((row.account_id.clone(), row.try_into()?)));
        Ok(settings.collect::<Result<_, sqlx::Error>>()?)
    }
}

impl AuditedChange {
    /// Changes the settings of an account.
    pub async fn put_alert_settings(
        &mut self,
        account_id: &str,
        settings: &AlertSettings,
        now: Micros,
    ) -> Result<(), StoreError> {
        let AlertSettings { levels, mails, webhook } = settings;
        let levels = serde_json::json!(levels).to_string();
        in_change!(self, tx => {
            sqlx::query(PUT)
                .bind(clean(account_id))
                .bind(&levels)
                .bind(i64::from(*mails))
                .bind(webhook.as_ref().map(|webhook| webhook.form.word()))
                .bind(webhook.as_ref().map(|webhook| &*webhook.address.bytes))
                .bind(webhook.as_ref().map(|webhook| &*webhook.address.by))
                .bind(now.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("settings", "account"))?;
        });
        Ok(())
    }
}
