//! Alerts: their settings, their list, and who may see both.

use canon::Micros;
use serde_json::{Value, json};
use store::{
    AlertFilter, AlertReceivers, AlertSettings, KeyOwner, QuietHours, SealedWebhook, StoreError,
    VaultError, WebhookForm, WrongQuietHours, webhook_label,
};

use crate::Admin;
use crate::actor::Actor;
use crate::alert_page::{AlertCursor, AlertPage, AlertQuery};
use crate::alert_view::AlertView;
use crate::error::AdminError;
use crate::random;
use crate::rights::{TeamAction, require_may_administrate};
use crate::version::ReadVersion;

const MAX_LEVELS: usize = 8;
const MAX_URL_BYTES: usize = 2_048;
/// Time for which alerts are kept.
const KEPT: Micros = Micros::from_days(400);

/// Settings of alerts as surfaces show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertSettingsView {
    /// Percents of a limit at which an alert is told.
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
    /// The webhook.
    pub webhook: Option<AlertWebhook>,
    /// True if the actor may change them.
    pub may_change: bool,
}

/// A webhook whose address is not shown: that of Slack is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct AlertWebhook {
    /// Kind of its messages.
    pub form: WebhookForm,
    /// Its address; `None` if it cannot be decrypted.
    address: Option<String>,
}

impl std::fmt::Debug for AlertWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlertWebhook").field("form", &self.form).finish_non_exhaustive()
    }
}

impl AlertWebhook {
    /// The kind of its messages and the shown part of its address.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "form": self.form.word(), "origin": self.origin() })
    }

    /// The address without what may be secret.
    pub fn origin(&self) -> String {
        let parsed = self.address.as_deref().and_then(|address| address.parse::<http::Uri>().ok());
        let authority = parsed.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?)));
        match authority {
            Some((scheme, authority)) => {
                let host = authority.as_str().rsplit('@').next().unwrap_or_default();
                format!("{scheme}://{host}/…")
            }
            None => "an address that cannot be decrypted".to_owned(),
        }
    }
}

/// A change of the settings. A field that is `None` stays as it is.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "the fields are those of `AlertSettingsView`")]
pub struct AlertChange {
    pub levels: Option<Vec<u8>>,
    pub forecasts: Option<bool>,
    pub expiries: Option<bool>,
    pub statements: Option<bool>,
    pub mails: Option<bool>,
    pub quiet: Option<Option<QuietDraft>>,
    pub webhook: Option<Option<WebhookDraft>>,
}

/// Quiet hours as they were written.
#[derive(Clone, Debug)]
pub struct QuietDraft {
    /// Their begin, such as `22:00`.
    pub from: String,
    /// Their end.
    pub to: String,
    /// Name of a time zone, such as `Europe/Berlin`.
    pub zone: String,
}

/// A new webhook, or a new kind of messages for the present one.
#[derive(Clone)]
pub struct WebhookDraft {
    /// Kind of its messages.
    pub form: WebhookForm,
    /// Its address; `None` for the present one.
    pub address: Option<String>,
}

impl AlertSettingsView {
    /// The whole description.
    pub fn to_json(&self) -> Value {
        json!({
            "levels_percent": self.levels,
            "forecast": self.forecasts,
            "key_expiry": self.expiries,
            "statement": self.statements,
            "mail": self.mails,
            "quiet_hours": self.quiet.as_ref().map(quiet_json),
            "webhook": self.webhook.as_ref().map(AlertWebhook::to_json),
        })
    }

    /// The part that only administration changes, from which the version is computed.
    pub fn stable_json(&self) -> Value {
        with_digest(self.to_json(), self.webhook.as_ref())
    }
}

pub(crate) fn quiet_json(quiet: &QuietHours) -> Value {
    let [from, to, zone] = quiet.parts();
    json!({ "from": from, "to": to, "time_zone": zone })
}

/// Adds a digest of the address of a webhook to the description of settings.
pub(crate) fn with_digest(mut stable: Value, webhook: Option<&AlertWebhook>) -> Value {
    let address = webhook.and_then(|webhook| webhook.address.as_deref());
    if let (Value::Object(fields), Some(address)) = (&mut stable, address) {
        fields.insert("digest".to_owned(), random::hex(&random::digest(address)).into());
    }
    stable
}

impl Admin {
    /// Returns the settings of an account or team, for those who see it.
    pub async fn alert_settings(
        &self,
        actor: &Actor,
        account_id: &str,
    ) -> Result<AlertSettingsView, AdminError> {
        let may_change = self.account_right(actor, account_id).await?;
        self.alert_settings_view(account_id, may_change).await
    }

    /// Changes the settings of an account or team.
    pub async fn change_alert_settings(
        &self,
        actor: &Actor,
        account_id: &str,
        read: ReadVersion<'_>,
        change: AlertChange,
    ) -> Result<AlertSettingsView, AdminError> {
        if !self.account_right(actor, account_id).await? {
            return Err(AdminError::forbidden("only a manager may change who hears of alerts"));
        }
        let AlertChange { levels, forecasts, expiries, statements, mails, quiet, webhook } = change;
        let levels = levels.map(checked_levels).transpose()?;
        let quiet = quiet.map(|quiet| quiet.map(checked_quiet).transpose()).transpose()?;
        // The store is read before the change writes.
        let mut store_change = self.store.begin_change().await?;
        let before = self.alert_settings_view(account_id, true).await?;
        read.check(&before.stable_json())?;
        let mut settings = self.store.alert_settings(account_id).await?;
        settings.levels = levels.unwrap_or(settings.levels);
        settings.forecasts = forecasts.unwrap_or(settings.forecasts);
        settings.expiries = expiries.unwrap_or(settings.expiries);
        settings.statements = statements.unwrap_or(settings.statements);
        settings.mails = mails.unwrap_or(settings.mails);
        settings.quiet = quiet.unwrap_or(settings.quiet);
        let is_new_address = matches!(&webhook, Some(Some(WebhookDraft { address: Some(_), .. })));
        if let Some(webhook) = webhook {
            settings.webhook = self.sealed_webhook(account_id, settings.webhook, webhook).await?;
        }
        store_change.put_alert_settings(account_id, &settings, self.accounts.now()).await?;
        let detail = settings_text(&settings, is_new_address);
        self.accounts
            .commit(store_change, actor, &[["alerts.change", account_id, &detail]])
            .await?;
        self.alert_settings_view(account_id, true).await
    }

    async fn alert_settings_view(
        &self,
        account_id: &str,
        may_change: bool,
    ) -> Result<AlertSettingsView, AdminError> {
        let AlertSettings { levels, forecasts, expiries, statements, mails, quiet, webhook } =
            self.store.alert_settings(account_id).await?;
        let webhook = webhook.map(|webhook| self.webhook_view(account_id, &webhook));
        Ok(AlertSettingsView {
            levels,
            forecasts,
            expiries,
            statements,
            mails,
            quiet,
            webhook,
            may_change,
        })
    }

    pub(crate) fn webhook_view(&self, owner_id: &str, webhook: &SealedWebhook) -> AlertWebhook {
        AlertWebhook { form: webhook.form, address: self.webhook_address(owner_id, webhook) }
    }

    /// Returns the address of a webhook, if it can be decrypted.
    pub fn webhook_address(&self, account_id: &str, webhook: &SealedWebhook) -> Option<String> {
        let opened = self.vault.open(&webhook_label(account_id), &webhook.address);
        opened.ok().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    pub(crate) async fn sealed_webhook(
        &self,
        account_id: &str,
        present: Option<SealedWebhook>,
        draft: Option<WebhookDraft>,
    ) -> Result<Option<SealedWebhook>, AdminError> {
        let Some(WebhookDraft { form, address }) = draft else { return Ok(None) };
        let Some(address) = address else {
            let present = present.ok_or_else(|| {
                AdminError::invalid("webhook.url", "is required for a new webhook")
            })?;
            return Ok(Some(SealedWebhook { form, ..present }));
        };
        if address.len() > MAX_URL_BYTES {
            return Err(AdminError::invalid(
                "webhook.url",
                format!("is longer than {MAX_URL_BYTES} bytes"),
            ));
        }
        let config = self.engine.config();
        let checked = config.media.fetcher.guard().check(&address);
        checked.map_err(|e| AdminError::invalid("webhook.url", e.to_string()))?;
        let unsealed = |e: VaultError| AdminError::invalid("webhook.url", e.to_string());
        let sealer = self.vault.sealer().await.map_err(unsealed)?;
        let address = sealer.seal(&webhook_label(account_id), address.as_bytes());
        let address = address.map_err(unsealed)?;
        Ok(Some(SealedWebhook { form, address }))
    }

    /// Returns a page of alerts of an account, or of all, the newest first.
    pub async fn alerts(
        &self,
        actor: &Actor,
        query: AlertQuery,
        most: u32,
    ) -> Result<AlertPage, AdminError> {
        let AlertQuery { account_id, before } = query;
        match &account_id {
            Some(id) => drop(self.account_right(actor, id).await?),
            None => actor.require_admin()?,
        }
        let before = before.map(|AlertCursor { at, id }| (at, id));
        // One more tells if there is a next page.
        let filter = AlertFilter { account_id, before };
        let mut found = self.store.alerts(&filter, most.saturating_add(1)).await?;
        let rows = usize::try_from(most).unwrap_or(usize::MAX);
        let has_more = found.len() > rows;
        found.truncate(rows);
        let last = found.last().filter(|_| has_more);
        let next = last.map(|last| AlertCursor { at: last.at, id: last.id.clone() });
        Ok(AlertPage { alerts: AlertView::load(&self.store, found).await?, next })
    }

    /// Refuses an actor who may not see what an account spends. Returns true if the actor may change who hears
    /// of it.
    pub(crate) async fn account_right(
        &self,
        actor: &Actor,
        account_id: &str,
    ) -> Result<bool, AdminError> {
        let owner = self.store.owner(account_id).await?;
        match owner.ok_or(AdminError::NotFound("account"))? {
            KeyOwner::Person(account) => {
                let is_own = actor.account().is_some_and(|own| own.id == account.id);
                let may_change = require_may_administrate(actor, &account);
                match (is_own, may_change) {
                    (_, Ok(())) => Ok(true),
                    (true, Err(_)) => Ok(!account.disabled && actor.key().is_none()),
                    (false, Err(_)) if actor.is_admin() => Ok(false),
                    (false, Err(_)) => Err(AdminError::NotFound("account")),
                }
            }
            KeyOwner::Team(team) => {
                let accounts = &self.accounts;
                accounts.team_for(actor, &team.id, TeamAction::View).await?;
                let manages = accounts.team_for(actor, &team.id, TeamAction::ManageMembers).await;
                match manages {
                    Ok(_) => Ok(true),
                    Err(AdminError::Forbidden(_)) => Ok(false),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Deletes alerts that are older than a year.
    pub async fn drop_old_alerts(&self) -> Result<u64, StoreError> {
        self.store.drop_alerts(self.accounts.now() - KEPT).await
    }
}

fn checked_levels(mut levels: Vec<u8>) -> Result<Vec<u8>, AdminError> {
    levels.sort_unstable();
    levels.dedup();
    let is_valid = levels.iter().all(|level| (1..=100).contains(level));
    if !is_valid || levels.len() > MAX_LEVELS {
        let why = format!("write at most {MAX_LEVELS} percents from 1 to 100");
        return Err(AdminError::invalid("levels_percent", why));
    }
    Ok(levels)
}

pub(crate) fn checked_quiet(draft: QuietDraft) -> Result<QuietHours, AdminError> {
    let QuietDraft { from, to, zone } = draft;
    QuietHours::new(&from, &to, &zone).map_err(|wrong| {
        let (field, why) = match wrong {
            WrongQuietHours::From => ("quiet_hours.from", "write a time such as 22:00"),
            WrongQuietHours::To => ("quiet_hours.to", "write another time, such as 07:00"),
            WrongQuietHours::Zone => {
                ("quiet_hours.time_zone", "write a time zone such as Europe/Berlin, or UTC")
            }
        };
        AdminError::invalid(field, why)
    })
}

/// Describes settings for the audit log, without the address of the webhook.
fn settings_text(settings: &AlertSettings, is_new_address: bool) -> String {
    let AlertSettings { levels, forecasts, expiries, statements, .. } = settings;
    let levels: Vec<String> = levels.iter().map(|level| format!("{level} %")).collect();
    let levels = if levels.is_empty() { "none".to_owned() } else { levels.join(", ") };
    let word = |is_on: &bool| if *is_on { "on" } else { "off" };
    let [forecasts, expiries, statements] = [forecasts, expiries, statements].map(word);
    let receivers = receivers_text(&settings.clone().into(), is_new_address);
    format!(
        "levels {levels}; forecast {forecasts}; key expiry {expiries}; statement {statements}; {receivers}"
    )
}

/// Describes who hears of alerts.
pub(crate) fn receivers_text(receivers: &AlertReceivers, is_new_address: bool) -> String {
    let AlertReceivers { mails, quiet, webhook } = receivers;
    let mails = if *mails { "on" } else { "off" };
    let quiet = quiet.as_ref().map_or_else(|| "none".to_owned(), |quiet| quiet.parts().join(" "));
    let webhook = match webhook {
        Some(webhook) if is_new_address => format!("{} at a new address", webhook.form.word()),
        Some(webhook) => webhook.form.word().to_owned(),
        None => "none".to_owned(),
    };
    format!("mail {mails}; quiet hours {quiet}; webhook {webhook}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_percents_without_repeats() {
        assert_eq!(checked_levels(vec![100, 50, 50]).unwrap(), [50, 100]);
        assert_eq!(checked_levels(Vec::new()).unwrap(), [0_u8; 0]);
        for wrong in [vec![0], vec![101], (1..=9).collect()] {
            assert!(checked_levels(wrong).is_err());
        }
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let shown = |address: Option<&str>| {
            let address = address.map(str::to_owned);
            AlertWebhook { form: WebhookForm::Slack, address }.origin()
        };
        assert_eq!(shown(Some("https://hooks.example/T1/secret?k=1")), "https://hooks.example/…");
        assert_eq!(shown(Some("https://user:word@h.example:8443/x")), "https://h.example:8443/…");
        assert_eq!(shown(None), "an address that cannot be decrypted");
    }
}
