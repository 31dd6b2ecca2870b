//! Settings of the alerts about the gateway, which its administrators are told.

use canon::Micros;

use crate::alert_settings::{AlertReceivers, quiet_text, read_quiet, read_webhook};
use crate::alerts::GATEWAY_OWNER;
use crate::audited_change::in_change;
use crate::db::on_reader;
use crate::row::row;
use crate::{AuditedChange, Store, StoreError};

/// Percent of failed calls in an hour above which an alert is told, unless administrators choose another.
const USUAL_ERROR_PERCENT: u8 = 10;

/// Settings of the alerts about the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayAlertSettings {
    /// True if it is told that a lane is down.
    pub lanes: bool,
    /// True if it is told that a provider refuses a credential.
    pub credentials: bool,
    /// True if it is told that a health check is not good.
    pub health: bool,
    /// Percent of failed calls in an hour above which an alert is told; `None` for never.
    pub error_percent: Option<u8>,
    /// Ways in which they are told.
    pub receivers: AlertReceivers,
}

impl Default for GatewayAlertSettings {
    fn default() -> Self {
        Self {
            lanes: true,
            credentials: true,
            health: true,
            error_percent: Some(USUAL_ERROR_PERCENT),
            receivers: AlertReceivers { mails: true, quiet: None, webhook: None },
        }
    }
}

row! {
    struct SettingsRow {
        lanes: i64,
        credentials: i64,
        health: i64,
        error_percent: Option<i64>,
        mails: i64,
        quiet: Option<String>,
        form: Option<String>,
        sealed: Option<Vec<u8>>,
        sealed_by: Option<String>,
    }
}

impl TryFrom<SettingsRow> for GatewayAlertSettings {
    type Error = sqlx::Error;

    fn try_from(row: SettingsRow) -> Result<Self, sqlx::Error> {
        let SettingsRow { lanes, credentials, health, error_percent, mails, .. } = row;
        let SettingsRow { quiet, form, sealed, sealed_by, .. } = row;
        Ok(Self {
            lanes: lanes != 0,
            credentials: credentials != 0,
            health: health != 0,
            error_percent: error_percent.and_then(|percent| u8::try_from(percent).ok()),
            receivers: AlertReceivers {
                mails: mails != 0,
                quiet: quiet.as_deref().map(read_quiet).transpose()?.flatten(),
                webhook: read_webhook(form.as_deref(), sealed, sealed_by),
            },
        })
    }
}

const GET: &str = "SELECT lanes, credentials, health, error_percent, mails, quiet, form, sealed, \
    sealed_by FROM gateway_alert_settings WHERE id = $1";
const PUT: &str = "INSERT INTO gateway_alert_settings \
    (id, lanes, credentials, health, error_percent, mails, quiet, form, sealed, sealed_by, changed) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
    ON CONFLICT (id) DO UPDATE SET lanes = excluded.lanes, credentials = excluded.credentials, \
    health = excluded.health, error_percent = excluded.error_percent, mails = excluded.mails, \
    quiet = excluded.quiet, form = excluded.form, sealed = excluded.sealed, \
    sealed_by = excluded.sealed_by, changed = excluded.changed";

impl Store {
    /// Returns the settings of the alerts about the gateway.
    pub async fn gateway_alert_settings(&self) -> Result<GatewayAlertSettings, StoreError> {
        let row: Option<SettingsRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(GATEWAY_OWNER).fetch_optional(pool).await?
        });
        Ok(row.map(GatewayAlertSettings::try_from).transpose()?.unwrap_or_default())
    }
}

impl AuditedChange {
    /// Changes the settings of the alerts about the gateway.
    pub async fn put_gateway_alert_settings(
        &mut self,
        settings: &GatewayAlertSettings,
        now: Micros,
    ) -> Result<(), StoreError> {
        let GatewayAlertSettings { lanes, credentials, health, error_percent, receivers } =
            settings;
        let AlertReceivers { mails, quiet, webhook } = receivers;
        let quiet = quiet_text(quiet.as_ref());
        in_change!(self, tx => {
            sqlx::query(PUT)
                .bind(GATEWAY_OWNER)
                .bind(i64::from(*lanes))
                .bind(i64::from(*credentials))
                .bind(i64::from(*health))
                .bind(error_percent.map(i64::from))
                .bind(i64::from(*mails))
                .bind(&quiet)
                .bind(webhook.as_ref().map(|webhook| webhook.form.word()))
                .bind(webhook.as_ref().map(|webhook| &*webhook.address.bytes))
                .bind(webhook.as_ref().map(|webhook| &*webhook.address.by))
                .bind(now.get())
                .execute(&mut *tx)
                .await?;
        });
        Ok(())
    }
}
