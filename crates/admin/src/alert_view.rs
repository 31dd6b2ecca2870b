//! Alerts with the names of their accounts and keys, as JSON and as a sentence.

use std::collections::BTreeMap;

use canon::{Micros, Money};
use jiff::Timestamp;
use ledger::BudgetPeriod;
use serde_json::{Value, json};
use store::{
    Alert, AlertDelivery, AlertKind, DeliveryState, EventKind, GATEWAY_OWNER, GatewayEvent,
    KeyOwner, LimitKind, Store, StoreError,
};

use crate::statements::StatementMonth;
use crate::time_text::rfc3339;

/// An alert with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertView {
    /// The alert.
    pub alert: Alert,
    /// Name of the account or team; empty for an event of the gateway.
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
            if account_id != GATEWAY_OWNER && !owners.contains_key(account_id) {
                owners.insert(account_id.clone(), store.owner(account_id).await?);
            }
            if let Some(key_id) = &alert.key_id
                && !keys.contains_key(key_id)
            {
                let key = store.key(key_id).await?;
                keys.insert(key_id.clone(), key.map(|key| key.name));
            }
            if account_id == GATEWAY_OWNER {
                views.push(Self { alert, account: String::new(), is_team: false, key: None });
                continue;
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

    /// One sentence: who has spent how much of what, or what will happen.
    pub fn sentence(&self) -> String {
        let Self { account, key, .. } = self;
        let key = key.as_ref().map(|key| format!("“{key}”"));
        self.sentence_about(account, key.as_deref(), |text| text.to_owned())
    }

    /// The same for a chat with mentions, links and marks, where names are code: nothing in them has a meaning.
    pub fn chat_sentence(&self) -> String {
        let code = |name: &str| format!("`{}`", name.replace('`', "'"));
        let key = self.key.as_deref().map(code);
        self.sentence_about(&code(&self.account), key.as_deref(), code)
    }

    /// Makes the sentence with texts of others as `quoted` writes them.
    fn sentence_about(
        &self,
        account: &str,
        key: Option<&str>,
        quoted: impl Fn(&str) -> String,
    ) -> String {
        let Self { alert, is_team, .. } = self;
        let who = match (key, is_team) {
            (Some(key), true) => format!("The key {key} of the team {account}"),
            (Some(key), false) => format!("The key {key} of {account}"),
            (None, true) => format!("The team {account}"),
            (None, false) => format!("The account {account}"),
        };
        let (spent, amount) = (dollars(alert.spent), dollars(alert.amount));
        match alert.kind {
            AlertKind::Spending(limit) if alert.spent >= alert.amount => {
                // It may be read after the period, in which calls are taken again.
                let until = match limit {
                    LimitKind::Cap => String::new(),
                    LimitKind::Budget(period) => {
                        utc_text(period.end(alert.begun), " until %Y-%m-%d at %H:%M UTC")
                    }
                };
                let limit = limit_words(limit);
                format!("{who} has spent {limit} of {amount}. Further calls are refused{until}.")
            }
            AlertKind::Spending(limit) => {
                let (limit, percent) = (limit_words(limit), alert.spent.percent_of(alert.amount));
                format!("{who} has spent {spent}, which is {percent} % of {limit} of {amount}.")
            }
            AlertKind::Forecast(period) => {
                let limit = limit_words(LimitKind::Budget(period));
                let forecast = dollars(self.forecast().unwrap_or(alert.spent));
                let end = utc_text(period.end(alert.begun), "%Y-%m-%d");
                format!(
                    "{who} has spent {spent} of {limit} of {amount}. At this pace it would spend {forecast} by {end}, \
                     and calls would be refused before."
                )
            }
            AlertKind::KeyExpiry => {
                let end = utc_text(alert.begun, "%Y-%m-%d at %H:%M");
                let time = match alert.level {
                    1 => "a day".to_owned(),
                    days => format!("{days} days"),
                };
                format!(
                    "{who} expires within {time}, on {end} UTC. Calls with it fail from then on."
                )
            }
            AlertKind::Gateway(event) => self.event_sentence(event, quoted),
            AlertKind::Statement => {
                let month = StatementMonth::of(alert.begun).map(StatementMonth::title);
                let of = if *is_team { "the team " } else { "" };
                format!("The statement of {} for {of}{account}.", month.unwrap_or_default())
            }
        }
    }

    fn event_sentence(&self, kind: EventKind, quoted: impl Fn(&str) -> String) -> String {
        const TIME: &str = "%Y-%m-%d %H:%M";
        let none = GatewayEvent::default();
        let Alert { begun, level, event, .. } = &self.alert;
        let GatewayEvent { subject, detail, ended } = event.as_ref().unwrap_or(&none);
        let (begun, subject, detail) = (utc_text(*begun, TIME), quoted(subject), quoted(detail));
        let ended = ended.map(|ended| utc_text(ended, TIME));
        let (time, is, can) = match &ended {
            None => (format!("since {begun} UTC"), "is", "cannot"),
            Some(ended) => (format!("from {begun} to {ended} UTC"), "was", "could not"),
        };
        match (kind, &ended) {
            (EventKind::Lane, _) => format!("The lane {subject} {is} down {time}: {detail}."),
            (EventKind::Credential, _) => {
                format!("The credential {subject} {can} be used {time}: {detail}.")
            }
            (EventKind::Health, _) => {
                format!("The check {subject} {is} not good {time}: {detail}.")
            }
            (EventKind::ErrorRate, None) => {
                format!("{level} % of the calls in the hour before {begun} UTC failed: {detail}.")
            }
            (EventKind::ErrorRate, Some(ended)) => format!(
                "Since {ended} UTC few calls fail. {level} % of those in the hour before {begun} UTC failed: {detail}."
            ),
        }
    }

    /// Money that the period would cost; `None` for other alerts.
    fn forecast(&self) -> Option<Money> {
        let Alert { kind, begun, at, spent, .. } = self.alert;
        match kind {
            AlertKind::Forecast(period) => period.forecast(begun, at, spent),
            AlertKind::Spending(_)
            | AlertKind::KeyExpiry
            | AlertKind::Gateway(_)
            | AlertKind::Statement => None,
        }
    }

    /// The month of a statement.
    pub fn month(&self) -> Option<StatementMonth> {
        match self.alert.kind {
            AlertKind::Statement => StatementMonth::of(self.alert.begun),
            AlertKind::Spending(_)
            | AlertKind::Forecast(_)
            | AlertKind::KeyExpiry
            | AlertKind::Gateway(_) => None,
        }
    }

    /// The subject of a mail about these alerts, which are of one account or of the gateway.
    pub fn subject(alerts: &[Self]) -> &'static str {
        let mut events = alerts.iter().filter_map(|one| one.alert.event.as_ref());
        if let Some(first) = events.next() {
            let is_over = first.ended.is_some() && events.all(|event| event.ended.is_some());
            return if is_over {
                "A trouble of the gateway is over"
            } else {
                "The gateway needs somebody"
            };
        }
        let mut expiries = alerts.iter().map(|one| one.alert.kind == AlertKind::KeyExpiry);
        match (expiries.clone().any(|is_expiry| is_expiry), expiries.all(|is_expiry| is_expiry)) {
            (false, _) => "Spending is near a limit",
            (true, true) => "A key expires soon",
            (true, false) => "Spending is near a limit, and a key expires soon",
        }
    }

    /// The limit of an alert about spending.
    const fn limit(&self) -> Option<LimitKind> {
        match self.alert.kind {
            AlertKind::Spending(limit) => Some(limit),
            AlertKind::Forecast(period) => Some(LimitKind::Budget(period)),
            AlertKind::KeyExpiry | AlertKind::Gateway(_) | AlertKind::Statement => None,
        }
    }

    /// The word of its kind.
    pub const fn kind_word(&self) -> &'static str {
        match self.alert.kind {
            AlertKind::Spending(_) => "spending",
            AlertKind::Forecast(_) => "forecast",
            AlertKind::KeyExpiry | AlertKind::Gateway(_) | AlertKind::Statement => {
                self.alert.kind.word()
            }
        }
    }

    /// The whole description.
    pub fn to_json(&self) -> Value {
        let Self { alert, account, is_team, key } = self;
        let limit = self.limit();
        let (kind, period) = match limit {
            Some(LimitKind::Budget(period)) => ("budget", Some(period)),
            Some(LimitKind::Cap) | None => ("cap", None),
        };
        let limit_json = || {
            let amount = alert.amount.to_string();
            json!({ "kind": kind, "per": period.map(BudgetPeriod::word), "amount_usd": amount })
        };
        let level = match alert.kind {
            AlertKind::Spending(_) | AlertKind::Gateway(EventKind::ErrorRate) => Some(alert.level),
            AlertKind::Forecast(_)
            | AlertKind::KeyExpiry
            | AlertKind::Gateway(_)
            | AlertKind::Statement => None,
        };
        let expires = (alert.kind == AlertKind::KeyExpiry).then_some(alert.begun);
        let event = alert.event.as_ref();
        let owner = |text: &String| event.is_none().then(|| text.clone());
        let subject = event.map(|event| &event.subject).filter(|subject| !subject.is_empty());
        json!({
            "id": alert.id,
            "kind": self.kind_word(),
            "account_id": owner(&alert.account_id),
            "account": owner(account),
            "team": is_team,
            "key_id": alert.key_id,
            "key_name": key,
            "limit": limit.map(|_| limit_json()),
            "level_percent": level,
            "spent_usd": limit.map(|_| alert.spent.to_string()),
            "forecast_usd": self.forecast().map(|forecast| forecast.to_string()),
            "resets_at": period.and_then(|period| rfc3339(period.end(alert.begun))),
            "expires_at": expires.and_then(rfc3339),
            "subject": subject,
            "began_at": event.and_then(|_| rfc3339(alert.begun)),
            "ended_at": event.and_then(|event| event.ended).and_then(rfc3339),
            "month": self.month().map(StatementMonth::word),
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

/// Writes a time of UTC; nothing if it lies outside the calendar.
fn utc_text(at: Micros, form: &str) -> String {
    let time = Timestamp::from_microsecond(at.get());
    time.map(|time| time.strftime(form).to_string()).unwrap_or_default()
}

/// Writes an amount with whole cents, and one below a dollar with all its digits.
pub fn dollars(amount: Money) -> String {
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

    fn view(kind: AlertKind, spent: &str, amount: &str, key: Option<&str>) -> AlertView {
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
            event: None,
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
        let (month, cap) =
            (LimitKind::Budget(BudgetPeriod::Month), AlertKind::Spending(LimitKind::Cap));
        let month = AlertKind::Spending(month);
        assert_eq!(
            view(cap, "8.109", "10", Some("ci")).sentence(),
            "The key “ci” of anna has spent $8.10, which is 81 % of its cap of $10.00."
        );
        assert_eq!(
            view(month, "0.0004", "0.0005", None).sentence(),
            "The team anna has spent $0.0004, which is 80 % of its monthly budget of $0.0005."
        );
        assert_eq!(
            view(month, "10", "10", None).sentence(),
            "The team anna has spent its monthly budget of $10.00. Further calls are refused until 1970-02-01 at 00:00 UTC."
        );
        assert_eq!(
            view(cap, "10", "10", Some("ci")).sentence(),
            "The key “ci” of anna has spent its cap of $10.00. Further calls are refused."
        );
        assert_eq!(
            view(cap, "10", "10", Some("`@all` *x*")).chat_sentence(),
            "The key `'@all' *x*` of `anna` has spent its cap of $10.00. Further calls are refused."
        );
    }

    #[test]
    fn json_names_the_limit_and_its_end() {
        let budget = LimitKind::Budget(BudgetPeriod::Month);
        let month = view(AlertKind::Spending(budget), "9", "10", None).to_json();
        assert_eq!(month["limit"]["per"], "month");
        assert_eq!(month["resets_at"], "1970-02-01T00:00:00Z");
        let cap = view(AlertKind::Spending(LimitKind::Cap), "9", "10", Some("ci")).to_json();
        assert_eq!((&cap["limit"]["kind"], &cap["resets_at"]), (&json!("cap"), &Value::Null));
        for other in ["forecast_usd", "expires_at"] {
            assert_eq!((&month[other], &cap[other]), (&Value::Null, &Value::Null));
        }
    }

    #[test]
    fn a_forecast_says_what_the_period_would_cost() {
        let mut half = view(AlertKind::Forecast(BudgetPeriod::Month), "6", "10", None);
        // Half of January.
        half.alert.at = Micros::from_hours(31 * 12);
        assert_eq!(
            half.sentence(),
            "The team anna has spent $6.00 of its monthly budget of $10.00. At this pace it would spend $12.00 \
             by 1970-02-01, and calls would be refused before."
        );
        let told = half.to_json();
        assert_eq!((&told["kind"], &told["limit"]["per"]), (&json!("forecast"), &json!("month")));
        assert_eq!(told["forecast_usd"], "12.000000000");
        assert_eq!((&told["level_percent"], &told["expires_at"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_key_that_expires_has_no_limit() {
        let mut week = view(AlertKind::KeyExpiry, "0", "0", Some("ci"));
        week.alert.begun = Micros::from_hours(36);
        week.alert.level = 7;
        let expires = "on 1970-01-02 at 12:00 UTC. Calls with it fail from then on.";
        assert_eq!(
            week.sentence(),
            format!("The key “ci” of anna expires within 7 days, {expires}")
        );
        let mut day = week.clone();
        day.alert.level = 1;
        assert_eq!(day.sentence(), format!("The key “ci” of anna expires within a day, {expires}"));
        let told = week.to_json();
        assert_eq!(told["expires_at"], "1970-01-02T12:00:00Z");
        for none in ["limit", "level_percent", "spent_usd", "forecast_usd", "resets_at"] {
            assert_eq!(told[none], Value::Null, "{none}");
        }
    }

    #[test]
    fn an_event_of_the_gateway_says_what_is_wrong_since_when() {
        let event = |kind, ended: Option<Micros>| {
            let mut one = view(AlertKind::Gateway(kind), "0", "0", None);
            let (subject, detail) = ("a/m".to_owned(), "its calls fail <!all>".to_owned());
            one.alert.event = Some(GatewayEvent { subject, detail, ended });
            one.alert.account_id = GATEWAY_OWNER.to_owned();
            one.alert.begun = Micros::from_hours(2);
            one
        };
        let lane = event(EventKind::Lane, None);
        let text = "The lane a/m is down since 1970-01-01 02:00 UTC: its calls fail <!all>.";
        assert_eq!(lane.sentence(), text);
        assert_eq!(
            lane.chat_sentence(),
            "The lane `a/m` is down since 1970-01-01 02:00 UTC: `its calls fail <!all>`."
        );
        let told = lane.to_json();
        assert_eq!((&told["kind"], &told["subject"]), (&json!("lane"), &json!("a/m")));
        assert_eq!(told["began_at"], "1970-01-01T02:00:00Z");
        for none in ["account_id", "account", "ended_at", "expires_at", "limit", "month"] {
            assert_eq!(told[none], Value::Null, "{none}");
        }
        let over = event(EventKind::Lane, Some(Micros::from_hours(3)));
        assert_eq!(
            over.sentence(),
            "The lane a/m was down from 1970-01-01 02:00 to 1970-01-01 03:00 UTC: its calls fail <!all>."
        );
        assert_eq!(over.to_json()["ended_at"], "1970-01-01T03:00:00Z");
        assert_eq!(
            AlertView::subject(std::slice::from_ref(&over)),
            "A trouble of the gateway is over"
        );
        assert_eq!(AlertView::subject(&[over, lane]), "The gateway needs somebody");
        let rate = event(EventKind::ErrorRate, None);
        assert_eq!(rate.to_json()["level_percent"], 80);
    }

    #[test]
    fn a_statement_names_its_month() {
        let month = view(AlertKind::Statement, "0", "0", None);
        assert_eq!(month.sentence(), "The statement of January 1970 for the team anna.");
        let told = month.to_json();
        assert_eq!((&told["month"], &told["expires_at"]), (&json!("1970-01"), &Value::Null));
    }

    #[test]
    fn the_subject_of_a_mail_names_what_it_is_about() {
        let cap = view(AlertKind::Spending(LimitKind::Cap), "9", "10", None);
        let key = view(AlertKind::KeyExpiry, "0", "0", Some("ci"));
        let of = |alerts: &[&AlertView]| {
            AlertView::subject(&alerts.iter().map(|one| (*one).clone()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[&cap]), "Spending is near a limit");
        assert_eq!(of(&[&key, &key]), "A key expires soon");
        assert_eq!(of(&[&key, &cap]), "Spending is near a limit, and a key expires soon");
    }
}
