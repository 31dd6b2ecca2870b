//! Managed settings of Claude Code: a JSON object that agents fetch with their key and obey.
//!
//! A team may have its own; everybody else gets those of the gateway. They can run commands on the
//! machines of the people who sign in, so only administrators change them.

use dialects::json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::random;

/// Name of the stored text. That of a team follows a colon.
const SETTING: &str = "managed_settings";
/// Largest text of managed settings.
const MAX_SETTINGS_BYTES: usize = 15 << 10;

/// Managed settings, as agents get them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManagedSettings {
    /// Id of this document.
    pub uuid: String,
    /// `sha256:` and the digest of the settings with sorted keys and without spaces.
    pub checksum: String,
    /// The settings.
    pub settings: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct StoredSettings {
    uuid: String,
    settings: Map<String, Value>,
}

impl ManagedSettings {
    fn new(uuid: String, settings: Map<String, Value>) -> Self {
        let text = sorted(&Value::Object(settings.clone())).to_string();
        let checksum = format!("sha256:{}", random::hex(&random::digest(&text)));
        Self { uuid, checksum, settings }
    }
}

/// Largest integer that JavaScript tells from its neighbours.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Returns a number as JavaScript writes it, which computes the checksum again: `2.0` is `2`.
#[expect(clippy::cast_possible_truncation, reason = "the number is an integer in that range")]
fn script_number(number: &Number) -> Value {
    match number.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() <= MAX_SAFE_INTEGER => {
            Value::from(float as i64)
        }
        _ => Value::from(number.clone()),
    }
}

/// Returns a value with the keys of all its objects in the order of JavaScript, by UTF-16.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut fields: Vec<(&String, &Value)> = object.iter().collect();
            fields.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            fields.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect()
        }
        Value::Array(list) => list.iter().map(sorted).collect(),
        Value::Number(number) => script_number(number),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn setting_name(team_id: Option<&str>) -> String {
    team_id.map_or_else(|| SETTING.to_owned(), |id| format!("{SETTING}:{id}"))
}

/// Parses the text of managed settings.
pub fn parse_managed_settings(text: &str) -> Result<Map<String, Value>, AdminError> {
    if text.len() > MAX_SETTINGS_BYTES {
        return Err(AdminError::invalid("settings", "must have at most 15 KiB"));
    }
    match json::read_bytes(text.as_bytes()) {
        Ok(Value::Object(settings)) => Ok(settings),
        Ok(_) => Err(AdminError::invalid("settings", "must be a JSON object")),
        Err(error) => Err(AdminError::invalid("settings", format!("is not JSON: {error}"))),
    }
}

impl AccountAdmin {
    /// Returns the managed settings of a team, or of the gateway, for administrators.
    pub async fn managed_settings(
        &self,
        actor: &Actor,
        team_id: Option<&str>,
    ) -> Result<Option<ManagedSettings>, AdminError> {
        actor.require_admin()?;
        self.require_team(team_id).await?;
        self.read_managed_settings(team_id).await
    }

    /// Stores managed settings of a team, or of the gateway. `None` removes them.
    pub async fn set_managed_settings(
        &self,
        actor: &Actor,
        team_id: Option<&str>,
        settings: Option<Map<String, Value>>,
    ) -> Result<Option<ManagedSettings>, AdminError> {
        actor.require_admin()?;
        let mut change = self.store.begin_change().await?;
        self.require_team(team_id).await?;
        let name = setting_name(team_id);
        let subject = team_id.unwrap_or("gateway");
        let Some(settings) = settings else {
            change.take_setting(&name).await?;
            self.commit(change, actor, &[["managed_settings.remove", subject, ""]]).await?;
            return Ok(None);
        };
        let stored = StoredSettings { uuid: uuid::Uuid::now_v7().to_string(), settings };
        let text = serde_json::to_string(&stored);
        let text = text.map_err(|error| AdminError::Internal(error.to_string()))?;
        if text.len() > MAX_SETTINGS_BYTES + 100 {
            return Err(AdminError::invalid("settings", "must have at most 15 KiB"));
        }
        let saved = ManagedSettings::new(stored.uuid, stored.settings);
        change.put_setting(&name, &text).await?;
        let note = ["managed_settings.change", subject, &saved.checksum];
        self.commit(change, actor, &[note]).await?;
        Ok(Some(saved))
    }

    /// Returns the managed settings for the keys of an account or team.
    pub async fn managed_settings_of(
        &self,
        owner_id: &str,
    ) -> Result<Option<ManagedSettings>, AdminError> {
        match self.read_managed_settings(Some(owner_id)).await? {
            Some(own) => Ok(Some(own)),
            None => self.read_managed_settings(None).await,
        }
    }

    async fn read_managed_settings(
        &self,
        team_id: Option<&str>,
    ) -> Result<Option<ManagedSettings>, AdminError> {
        let Some(text) = self.store.setting(&setting_name(team_id)).await? else {
            return Ok(None);
        };
        let stored: StoredSettings =
            serde_json::from_str(&text).map_err(|error| AdminError::Internal(error.to_string()))?;
        Ok(Some(ManagedSettings::new(stored.uuid, stored.settings)))
    }

    async fn require_team(&self, team_id: Option<&str>) -> Result<(), AdminError> {
        match team_id {
            Some(id) if self.store.team(id).await?.is_none() => Err(AdminError::NotFound("team")),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is what Claude Code computes: `sha256` of the JSON with sorted keys.
    #[test]
    fn checksum_does_not_depend_on_the_order_of_keys() {
        let one = parse_managed_settings(r#"{"b":[{"y":1,"x":"é"}],"a":{"d":true,"c":null}}"#);
        let other = parse_managed_settings(r#"{ "a":{"c":null,"d":true}, "b":[{"x":"é","y":1}] }"#);
        let [one, other] =
            [one, other].map(|map| ManagedSettings::new("u".to_owned(), map.unwrap()));
        assert_eq!(one.checksum, other.checksum);
        let text = r#"{"a":{"c":null,"d":true},"b":[{"x":"é","y":1}]}"#;
        assert_eq!(one.checksum, format!("sha256:{}", random::hex(&random::digest(text))));
    }

    /// The texts are what `JSON.stringify` of sorted objects gives.
    #[test]
    fn numbers_and_keys_are_those_of_javascript() {
        let given = "{\"\u{ff00}\":1,\"\u{1f600}\":[2.0,1e2,-0.0,0.5,-3]}";
        let given = ManagedSettings::new("u".to_owned(), parse_managed_settings(given).unwrap());
        let text = "{\"\u{1f600}\":[2,100,0,0.5,-3],\"\u{ff00}\":1}";
        assert_eq!(given.checksum, format!("sha256:{}", random::hex(&random::digest(text))));
    }

    #[test]
    fn only_objects_are_settings() {
        for text in ["[]", "1", "", "{", "null"] {
            assert!(parse_managed_settings(text).is_err(), "{text}");
        }
        assert_eq!(parse_managed_settings("{}").unwrap().len(), 0);
    }
}
