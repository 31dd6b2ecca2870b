//! Alerts with the names of their accounts and keys, as JSON and as a sentence.

use std::collections::BTreeMap;

use canon::Money;
use ledger::BudgetPeriod;
use serde_json::{Value, json};
use store::{Alert, AlertDelivery, DeliveryState, KeyOwner, LimitKind, Store, StoreError};

use crate::time_text::rfc3339;

/// An alert with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertView {
    /// The alert.
    pub alert: Alert,
    /// Name of the account or team.
    pub account: String,
    /// True if the account is a team.
    pub is_team: bool,
    /// Name of the key; `None` for a limit of the whole account.
    pub key: Option<String>,
}

impl AlertView {
    /// Adds the names to alerts. Those whose account is gone are left out.
    pub async fn load(store: &Store, alerts: Vec<Alert>) -> Result<Vec<Self>, StoreError> {
        let (mut owners, mut keys) = (BTreeMap::new(), BTreeMap::new());
        let mut views = Vec::new();
        for alert in alerts {
            let account_id = &alert.account_id;
            if !owners.contains_key(account_id) {
                owners.insert(account_id.clone(), store.owner(account_id).await?);
            }
            if let Some(key_id) = &alert.key_id
                && !keys.contains_key(key_id)
            {
                let key = store.key(key_id).await?;
                keys.insert(key_id.clone(), key.map(|key| key.name));
            }
            let (account, is_team) = match owners.get(account_id) {
                Some(Some(KeyOwner::Person(account))) => (account.username.clone(), false),
                Some(Some(KeyOwner::Team(team))) => (team.name.clone(), true),
                Some(None) | None => continue,
            };
            let name = |id: &String| keys.get(id).cloned().flatten().unwrap_or_default();
            let key = alert.key_id.as_ref().map(name);
            views.push(Self { alert, account, is_team, key });
        }
        Ok(views)
    }

    /// One sentence: who has spent how much of what.
    pub fn sentence(&self) -> String {
        let Self { account, key, .. } = self;
        self.sentence_about(account, key.as_ref().map(|key| format!("“{key}”")).as_deref())
    }

    /// The same for a chat with mentions, links and marks, where names are code: nothing in them has a meaning.
    pub fn chat_sentence(&self) -> String {
        let code = |name: &String| format!("`{}`", name.replace('`', "'"));
        self.sentence_about(&code(&self.account), self.key.as_ref().map(code).as_deref())
    }

    fn sentence_about(&self, account: &str, key: Option<&str>) -> String {
        let Self { alert, is_team, .. } = self;
        let who = match (key, is_team) {
            (Some(key), true) => format!("The key {key} of the team {account}"),
            (Some(key), false) => format!("The key {key} of {account}"),
            (None, true) => format!("The team {account}"),
            (None, false) => format!("The account {account}"),
        };
        let (spent, amount, limit) =
            (dollars(alert.spent), dollars(alert.amount), limit_words(alert.kind));
        if alert.spent >= alert.amount {
            return format!("{who} has spent {limit} of {amount}. Further calls are refused.");
        }
        format!("{who} has spent {spent}, which is {} % of {limit} of {amount}.", self.percent())
    }

    /// Whole percents of the limit that were spent.
    pub fn percent(&self) -> i64 {
        let (spent, amount) = (self.alert.spent.as_nanos(), self.alert.amount.as_nanos());
        if amount <= 0 {
            return 100;
        }
        i64::try_from(i128::from(spent) * 100 / i128::from(amount)).unwrap_or(i64::MAX)
    }

    /// The whole description.
    pub fn to_json(&self) -> Value {
        let Self { alert, account, is_team, key } = self;
        let (kind, period) = match alert.kind {
            LimitKind::Cap => ("cap", None),
            LimitKind::Budget(period) => ("budget", Some(period.word())),
        };
        let resets = match alert.kind {
            LimitKind::Cap => None,
            LimitKind::Budget(period) => Some(rfc3339(period.end(alert.begun))),
        };
        json!({
            "id": alert.id,
            "account_id": alert.account_id,
            "account": account,
            "team": is_team,
            "key_id": alert.key_id,
            "key_name": key,
            "limit": { "kind": kind, "per": period, "amount_usd": alert.amount.to_string() },
            "level_percent": alert.level,
            "spent_usd": alert.spent.to_string(),
            "resets_at": resets,
            "at": rfc3339(alert.at),
            "text": self.sentence(),
            "mail": delivery_json(alert.mail),
            "webhook": delivery_json(alert.webhook),
        })
    }
}

fn delivery_json(delivery: AlertDelivery) -> Value {
    let AlertDelivery { state, tries, at: _, status } = delivery;
    state.map_or(
        Value::Null,
        |state: DeliveryState| json!({ "state": state.word(), "tries": tries, "status": status }),
    )
}

const fn limit_words(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Cap => "its cap",
        LimitKind::Budget(BudgetPeriod::Day) => "its daily budget",
        LimitKind::Budget(BudgetPeriod::Week) => "its weekly budget",
        LimitKind::Budget(BudgetPeriod::Month) => "its monthly budget",
    }
}

/// Writes an amount with whole cents, and one below a dollar with all its digits.
fn dollars(amount: Money) -> String {
    const CENT: i64 = 10_000_000;
    let nanos = amount.as_nanos();
    if nanos % CENT != 0 && nanos.abs() < 100 * CENT {
        return format!("${amount}").trim_end_matches('0').to_owned();
    }
    let cents = nanos / CENT;
    format!("${}.{:02}", cents / 100, (cents % 100).abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Micros;

    fn view(kind: LimitKind, spent: &str, amount: &str, key: Option<&str>) -> AlertView {
        let alert = Alert {
            id: "1".to_owned(),
            account_id: "a".to_owned(),
            key_id: key.map(str::to_owned),
            kind,
            begun: Micros::ZERO,
            amount: amount.parse().unwrap(),
            level: 80,
            spent: spent.parse().unwrap(),
            at: Micros::ZERO,
            mail: AlertDelivery::default(),
            webhook: AlertDelivery::default(),
        };
        AlertView {
            alert,
            account: "anna".to_owned(),
            is_team: key.is_none(),
            key: key.map(str::to_owned),
        }
    }

    #[test]
    fn a_sentence_says_who_has_spent_how_much_of_what() {
        let month = LimitKind::Budget(BudgetPeriod::Month);
        assert_eq!(
            view(LimitKind::Cap, "8.109", "10", Some("ci")).sentence(),
            "The key “ci” of anna has spent $8.10, which is 81 % of its cap of $10.00."
        );
        assert_eq!(
            view(month, "0.0004", "0.0005", None).sentence(),
            "The team anna has spent $0.0004, which is 80 % of its monthly budget of $0.0005."
        );
        assert_eq!(
            view(LimitKind::Cap, "10", "10", Some("ci")).sentence(),
            "The key “ci” of anna has spent its cap of $10.00. Further calls are refused."
        );
        assert_eq!(
            view(LimitKind::Cap, "10", "10", Some("`@all` *x*")).chat_sentence(),
            "The key `'@all' *x*` of `anna` has spent its cap of $10.00. Further calls are refused."
        );
    }

    #[test]
    fn json_names_the_limit_and_its_end() {
        let month = view(LimitKind::Budget(BudgetPeriod::Month), "9", "10", None).to_json();
        assert_eq!(month["limit"]["per"], "month");
        assert_eq!(month["resets_at"], "1970-02-01T00:00:00Z");
        let cap = view(LimitKind::Cap, "9", "10", Some("ci")).to_json();
        assert_eq!((&cap["limit"]["kind"], &cap["resets_at"]), (&json!("cap"), &Value::Null));
    }
}
