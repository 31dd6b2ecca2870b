//! Settings of alerts: what an account and its keys are told of, who hears of it, and when.

use std::collections::BTreeMap;

use canon::Micros;

use crate::alerts::GATEWAY_OWNER;
use crate::audited_change::in_change;
use crate::db::{clean, from_json, on_reader, unknown_word};
use crate::quiet_hours::QuietHours;
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
    /// True if it is told that spending will pass a budget.
    pub forecasts: bool,
    /// True if it is told that a key expires soon.
    pub expiries: bool,
    /// True if the statement of each month is sent by mail.
    pub statements: bool,
    /// True if alerts are told by mail.
    pub mails: bool,
    /// Hours in which mails wait.
    pub quiet: Option<QuietHours>,
    /// Webhook that alerts are sent to.
    pub webhook: Option<SealedWebhook>,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            levels: USUAL_LEVELS.to_vec(),
            forecasts: true,
            expiries: true,
            statements: false,
            mails: true,
            quiet: None,
            webhook: None,
        }
    }
}

/// Ways in which alerts are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertReceivers {
    /// True if alerts are told by mail.
    pub mails: bool,
    /// Hours in which mails wait.
    pub quiet: Option<QuietHours>,
    /// Webhook that alerts are sent to.
    pub webhook: Option<SealedWebhook>,
}

impl From<AlertSettings> for AlertReceivers {
    fn from(settings: AlertSettings) -> Self {
        let AlertSettings { mails, quiet, webhook, .. } = settings;
        Self { mails, quiet, webhook }
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
        forecasts: i64,
        expiries: i64,
        statements: i64,
        mails: i64,
        quiet: Option<String>,
        form: Option<String>,
        sealed: Option<Vec<u8>>,
        sealed_by: Option<String>,
    }
}

impl TryFrom<SettingsRow> for AlertSettings {
    type Error = sqlx::Error;

    fn try_from(row: SettingsRow) -> Result<Self, sqlx::Error> {
        let SettingsRow { account_id: _, levels, forecasts, expiries, statements, mails, .. } = row;
        let SettingsRow { quiet, form, sealed, sealed_by, .. } = row;
        let webhook = read_webhook(form.as_deref(), sealed, sealed_by);
        Ok(Self {
            levels: from_json(&levels)?,
            forecasts: forecasts != 0,
            expiries: expiries != 0,
            statements: statements != 0,
            mails: mails != 0,
            quiet: quiet.as_deref().map(read_quiet).transpose()?.flatten(),
            webhook,
        })
    }
}

/// Reads a webhook from its columns.
pub(crate) fn read_webhook(
    form: Option<&str>,
    sealed: Option<Vec<u8>>,
    sealed_by: Option<String>,
) -> Option<SealedWebhook> {
    let form = form.and_then(WebhookForm::by_word)?;
    let (bytes, by) = (sealed?, sealed_by?);
    Some(SealedWebhook { form, address: SealedSecret { by, bytes } })
}

/// Writes the parts of quiet hours.
pub(crate) fn quiet_text(quiet: Option<&QuietHours>) -> Option<String> {
    quiet.map(|quiet| serde_json::json!(quiet.parts()).to_string())
}

/// Reads the parts of quiet hours. A time zone that this node does not know lets no mail wait.
pub(crate) fn read_quiet(text: &str) -> Result<Option<QuietHours>, sqlx::Error> {
    let parts: Vec<String> = from_json(text)?;
    let [from, to, zone] = parts.as_slice() else { return Err(unknown_word(text)) };
    Ok(QuietHours::new(from, to, zone).ok())
}

macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT account_id, levels, forecasts, expiries, statements, mails, quiet, form, sealed, \
             sealed_by FROM alert_settings",
            $condition
        )
    };
}

const GET: &str = select!(" WHERE account_id = $1");
const ALL: &str = select!("");
const PUT: &str = "INSERT INTO alert_settings \
    (account_id, levels, mails, form, sealed, sealed_by, changed, forecasts, expiries, quiet, statements) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
    ON CONFLICT (account_id) DO UPDATE SET levels = excluded.levels, mails = excluded.mails, \
    forecasts = excluded.forecasts, expiries = excluded.expiries, quiet = excluded.quiet, \
    statements = excluded.statements, form = excluded.form, sealed = excluded.sealed, sealed_by = excluded.sealed_by, \
    changed = excluded.changed";

impl Store {
    /// Returns the settings of an account.
    pub async fn alert_settings(&self, account_id: &str) -> Result<AlertSettings, StoreError> {
        let row: Option<SettingsRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(account_id)).fetch_optional(pool).await?
        });
        Ok(row.map(AlertSettings::try_from).transpose()?.unwrap_or_default())
    }

    /// Returns the ways in which an account, or the administrators of the gateway, are told.
    pub async fn alert_receivers(&self, owner_id: &str) -> Result<AlertReceivers, StoreError> {
        if owner_id == GATEWAY_OWNER {
            return Ok(self.gateway_alert_settings().await?.receivers);
        }
        Ok(self.alert_settings(owner_id).await?.into())
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
        let AlertSettings { levels, forecasts, expiries, statements, mails, quiet, webhook } =
            settings;
        let quiet = quiet_text(quiet.as_ref());
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
                .bind(i64::from(*forecasts))
                .bind(i64::from(*expiries))
                .bind(&quiet)
                .bind(i64::from(*statements))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("settings", "account"))?;
        });
        Ok(())
    }
}
