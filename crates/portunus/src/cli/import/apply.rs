//! Makes the objects of a plan, or only tells them, and reports each by name.

use admin::names::has_hidden_characters;
use admin::{
    AccountAdmin, Actor, AdminError, ImportEffect, ImportedAccount, ImportedKey, ImportedTeam,
};
use canon::Money;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use store::{AccountTerms, BudgetTerms, TeamRole};

use super::plan::{ImportPlan, PlannedKey, PlannedOwner};
use crate::cli::output::print_line;

/// Result for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ObjectResult {
    /// A dry run: it would be made.
    Planned,
    Made,
    Known,
    /// The reason why it is left out.
    LeftOut(String),
}

impl ObjectResult {
    const fn word(&self) -> &'static str {
        match self {
            Self::Planned => "to be made",
            Self::Made => "made",
            Self::Known => "here already",
            Self::LeftOut(_) => "left out",
        }
    }
}

impl From<Result<ImportEffect, AdminError>> for ObjectResult {
    fn from(done: Result<ImportEffect, AdminError>) -> Self {
        match done {
            Ok(ImportEffect::Made) => Self::Made,
            Ok(ImportEffect::Known) => Self::Known,
            Err(error) => Self::LeftOut(error.to_string()),
        }
    }
}

/// Prints results and counts them.
pub(super) struct ImportReport {
    json: bool,
    counts: [(&'static str, u64); 4],
}

impl ImportReport {
    pub(super) fn new(json: bool) -> Self {
        let results = [
            ObjectResult::Planned,
            ObjectResult::Made,
            ObjectResult::Known,
            ObjectResult::LeftOut(String::new()),
        ];
        Self { json, counts: results.map(|result| (result.word(), 0)) }
    }

    fn tell(&mut self, kind: &str, name: &str, result: &ObjectResult, detail: &Value) {
        for (word, count) in &mut self.counts {
            *count += u64::from(*word == result.word());
        }
        let why = match result {
            ObjectResult::LeftOut(why) => Some(why.as_str()),
            ObjectResult::Planned | ObjectResult::Made | ObjectResult::Known => None,
        };
        if self.json {
            let line = json!({
                "kind": kind, "name": name, "result": result.word(), "reason": why, "detail": detail,
            });
            print_line(&line.to_string());
            return;
        }
        let mut line = format!("{kind} `{name}`: {}", result.word());
        if let Some(why) = why {
            line = format!("{line}: {why}");
        } else if *result != ObjectResult::Known
            && let Some(fields) = detail.as_object()
        {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let value = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                line = format!("{line}, {name} {value}");
            }
        }
        print_line(&visible(&line));
    }

    /// Tells what is not carried.
    pub(super) fn note(&self, note: &str) {
        if self.json {
            print_line(&json!({ "kind": "note", "text": note }).to_string());
        } else {
            print_line(&visible(&format!("note: {note}")));
        }
    }

    /// Prints the counts. Returns false if an object was left out.
    pub(super) fn end(&self) -> bool {
        let counts = self.counts.iter().filter(|(_, count)| *count > 0);
        let text: Vec<String> = counts.map(|(word, count)| format!("{count} {word}")).collect();
        if self.json {
            let counts: serde_json::Map<String, Value> = self
                .counts
                .iter()
                .map(|(word, count)| (word.replace(' ', "_"), json!(count)))
                .collect();
            print_line(&json!({ "kind": "summary", "objects": counts }).to_string());
        } else {
            let text =
                if text.is_empty() { "nothing to import".to_owned() } else { text.join(", ") };
            print_line(&format!("objects: {text}"));
        }
        let [.., (_, left_out)] = self.counts;
        left_out == 0
    }
}

/// Escapes characters that cannot be seen: names of another gateway could hold lines and colours of their own.
fn visible(line: &str) -> String {
    let escaped = |letter: char| match has_hidden_characters(letter.encode_utf8(&mut [0; 4])) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    line.chars().map(escaped).collect()
}

/// Makes the objects of a plan, people and teams before keys. A dry run makes none.
pub(super) async fn apply(
    admin: &AccountAdmin,
    plan: ImportPlan,
    dry_run: bool,
    report: &mut ImportReport,
) {
    let ImportPlan { owners, keys, notes } = plan;
    // A key of an owner that was left out has no owner.
    let mut left_out = BTreeSet::new();
    for owner in owners {
        let (kind, name, id) = (kind_of(&owner), owner.name().to_owned(), owner.id().to_owned());
        let detail = owner_detail(&owner);
        let result = match owner {
            PlannedOwner::Known { .. } | PlannedOwner::Existing { .. } => ObjectResult::Known,
            PlannedOwner::Person(_) | PlannedOwner::Team(_) if dry_run => ObjectResult::Planned,
            PlannedOwner::Person(account) => {
                admin.import_account(&Actor::Operator, account).await.into()
            }
            PlannedOwner::Team(team) => admin.import_team(&Actor::Operator, team).await.into(),
        };
        if matches!(result, ObjectResult::LeftOut(_)) {
            left_out.insert(id);
        }
        report.tell(kind, &name, &result, &detail);
    }
    for PlannedKey { key, owner_name, is_known } in keys {
        let (name, detail) = (key.draft.name.clone(), key_detail(&key, &owner_name));
        let result = if is_known {
            ObjectResult::Known
        } else if left_out.contains(&key.owner_id) {
            ObjectResult::LeftOut("its owner is left out".to_owned())
        } else if dry_run {
            ObjectResult::Planned
        } else {
            admin.import_key(&Actor::Operator, key).await.into()
        };
        report.tell("key", &name, &result, &detail);
    }
    for note in &notes {
        report.note(note);
    }
}

const fn kind_of(owner: &PlannedOwner) -> &'static str {
    match owner {
        PlannedOwner::Person(_) => "account",
        PlannedOwner::Team(_) => "team",
        PlannedOwner::Known { .. } | PlannedOwner::Existing { .. } => "owner",
    }
}

fn budget_text(budget: BudgetTerms) -> String {
    format!("{} USD per {}", budget.limit, budget.period.word())
}

fn dollars(amount: Money) -> String {
    format!("{amount} USD")
}

fn owner_detail(owner: &PlannedOwner) -> Value {
    let terms_detail = |terms: &AccountTerms| {
        let AccountTerms { cap, budget, share: _, models } = terms;
        let models = (!models.is_empty()).then(|| models.join(" "));
        (cap.map(dollars), budget.map(budget_text), models)
    };
    match owner {
        PlannedOwner::Person(ImportedAccount { email, role, disabled, terms, limits, .. }) => {
            let (cap, budget, models) = terms_detail(terms);
            let locked = disabled.then_some(true);
            json!({
                "role": role.word(), "email": email, "locked": locked, "cap": cap, "budget": budget,
                "models": models, "rpm": limits.rpm, "tpm": limits.tpm,
                "concurrency": limits.concurrency,
            })
        }
        PlannedOwner::Team(ImportedTeam { disabled, terms, limits, members, .. }) => {
            let (cap, budget, models) = terms_detail(terms);
            let locked = disabled.then_some(true);
            let managers = members.iter().filter(|(_, role)| *role == TeamRole::Manager).count();
            json!({
                "members": members.len(), "managers": managers, "closed": locked, "cap": cap,
                "budget": budget, "models": models, "rpm": limits.rpm, "tpm": limits.tpm,
                "concurrency": limits.concurrency,
            })
        }
        PlannedOwner::Known { .. } | PlannedOwner::Existing { .. } => Value::Null,
    }
}

fn key_detail(key: &ImportedKey, owner_name: &str) -> Value {
    let ImportedKey { id, draft, blocked, spend, .. } = key;
    let expires = draft.expires.and_then(|at| jiff::Timestamp::from_microsecond(at.get()).ok());
    json!({
        "id": id,
        "owner": owner_name,
        "cap": draft.cap.map(dollars),
        "budget": draft.budget.map(budget_text),
        "spent": (spend.total() > Money::ZERO).then(|| dollars(spend.total())),
        "models": (!draft.models.is_empty()).then(|| draft.models.join(" ")),
        "expires": expires.map(|time| time.to_string()),
        "rpm": draft.limits.rpm,
        "tpm": draft.limits.tpm,
        "concurrency": draft.limits.concurrency,
        "ips": (!draft.ips.is_empty()).then(|| draft.ips.join(" ")),
        "revoked": blocked.then_some(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_write_a_line_or_colours_of_its_own() {
        assert_eq!(visible("key `a\u{1b}[2J\nb\u{202e}é`"), "key `a\\u{1b}[2J\\nb\\u{202e}é`");
    }
}
