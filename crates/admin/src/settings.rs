//! Settings that can be changed at run time: sign-up, required second factors, the name of the
//! gateway.

use serde::Serialize;

use store::{Account, AccountRole, StoreError};

use crate::Admin;
use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::amount::parse_amount;
use crate::error::AdminError;
use crate::factors::is_second_factor;
use crate::names;
use crate::version::{ReadVersion, version_of};

const SIGNUP: &str = "signup";
const SIGNUP_ROLE: &str = "signup_role";
const SIGNUP_CAP: &str = "signup_cap_usd";
const SECOND_FACTOR_ROLES: &str = "second_factor_roles";
const NAME: &str = "name";

/// Settings of the gateway. `None` is the default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GatewaySettings {
    /// Sign-up mode: `open`, `invited` or `closed`.
    pub signup: Option<String>,
    /// Role of accounts that sign up without an invitation.
    pub signup_role: Option<String>,
    /// Spending cap of such accounts.
    pub signup_cap_usd: Option<String>,
    /// Roles whose people need a second factor, separated by commas.
    pub second_factor_roles: Option<String>,
    /// Name of the gateway.
    pub name: Option<String>,
}

/// A change of settings. A field that is `None` stays as it is; `Some(None)` resets it.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are those of `GatewaySettings`")]
pub struct SettingsChange {
    pub signup: Option<Option<String>>,
    pub signup_role: Option<Option<String>>,
    pub signup_cap_usd: Option<Option<String>>,
    pub second_factor_roles: Option<Option<String>>,
    pub name: Option<Option<String>>,
}

impl GatewaySettings {
    /// Version of the settings, for a change of what was read.
    pub fn version(&self) -> String {
        version_of(self)
    }
}

impl Admin {
    /// Returns the settings.
    pub async fn settings(&self, actor: &Actor) -> Result<GatewaySettings, AdminError> {
        actor.require_admin()?;
        Ok(GatewaySettings {
            signup: self.store.setting(SIGNUP).await?,
            signup_role: self.store.setting(SIGNUP_ROLE).await?,
            signup_cap_usd: self.store.setting(SIGNUP_CAP).await?,
            second_factor_roles: self.store.setting(SECOND_FACTOR_ROLES).await?,
            name: self.store.setting(NAME).await?,
        })
    }

    /// Changes settings. All values are checked before the first one is stored.
    pub async fn change_settings(
        &self,
        actor: &Actor,
        read: ReadVersion<'_>,
        change: SettingsChange,
    ) -> Result<GatewaySettings, AdminError> {
        let mut store_change = self.store.begin_change().await?;
        let before = self.settings(actor).await?;
        read.check(&before)?;
        let SettingsChange { signup, signup_role, signup_cap_usd, second_factor_roles, name } =
            change;
        let wanted = [
            (SIGNUP, before.signup, signup),
            (SIGNUP_ROLE, before.signup_role, signup_role),
            (SIGNUP_CAP, before.signup_cap_usd, signup_cap_usd),
            (SECOND_FACTOR_ROLES, before.second_factor_roles, second_factor_roles),
            (NAME, before.name, name),
        ];
        let mut changes = Vec::new();
        for (setting, old, new) in wanted {
            let Some(new) = new else { continue };
            let new = new.map(|text| validate_setting(setting, text)).transpose()?;
            if old != new {
                changes.push((setting, new));
            }
        }
        let mut notes = Vec::new();
        for (setting, value) in &changes {
            match value {
                Some(value) => store_change.put_setting(setting, value).await?,
                None => drop(store_change.take_setting(setting).await?),
            }
            notes.push(["setting.change", setting, value.as_deref().unwrap_or("default")]);
        }
        if !notes.is_empty() {
            self.accounts.commit(store_change, actor, &notes).await?;
        }
        self.settings(actor).await
    }
}

impl AccountAdmin {
    /// Returns true if the role of a person needs a second factor that the account lacks.
    ///
    /// An account without a password whose person comes through an identity provider needs none
    /// here: the provider asks for it.
    pub async fn lacks_second_factor(&self, account: &Account) -> Result<bool, StoreError> {
        if !self.needs_second_factor(account).await? {
            return Ok(false);
        }
        let factors = self.store.factors_of(&account.id).await?;
        let has_factor = factors.iter().any(|factor| is_second_factor(factor.kind));
        if has_factor || account.password_hash.is_some() {
            return Ok(!has_factor);
        }
        Ok(self.store.identities_of(&account.id).await?.is_empty())
    }

    /// Returns true if people of the account's role need a second factor.
    pub(crate) async fn needs_second_factor(&self, account: &Account) -> Result<bool, StoreError> {
        let roles = self.store.setting(SECOND_FACTOR_ROLES).await?;
        Ok(roles.is_some_and(|roles| roles.split(',').any(|role| role == account.role.word())))
    }
}

/// Checks the value of a setting and returns the text to store.
fn validate_setting(setting: &'static str, text: String) -> Result<String, AdminError> {
    let one_of = |words: &[&str]| {
        let wrong = || AdminError::invalid(setting, format!("write one of {}", words.join(", ")));
        if words.contains(&text.as_str()) { Ok(()) } else { Err(wrong()) }
    };
    match setting {
        SIGNUP => one_of(&["open", "invited", "closed"])?,
        SIGNUP_ROLE => one_of(&["member", "viewer"])?,
        SECOND_FACTOR_ROLES => {
            let named = |role: &AccountRole| text.split(',').any(|word| word.trim() == role.word());
            let roles: Vec<&str> = AccountRole::ALL
                .iter()
                .filter(|role| named(role))
                .map(|role| role.word())
                .collect();
            if roles.len() != text.split(',').count() {
                let words = AccountRole::ALL.map(AccountRole::word).join(", ");
                let why = format!("write some of {words}, with commas between them");
                return Err(AdminError::invalid(setting, why));
            }
            return Ok(roles.join(","));
        }
        SIGNUP_CAP => return Ok(parse_amount(setting, &text)?.to_string()),
        _ => {
            let long = text.chars().count();
            if text.trim() != text || !(1..=40).contains(&long) {
                return Err(AdminError::invalid(setting, "write 1 to 40 characters on one line"));
            }
            names::require_visible(setting, &text)?;
        }
    }
    Ok(text)
}
