//! Limits that an administrator set on a key. The people of its account stay within them.

use canon::{Micros, Money};
use ledger::BudgetPeriod;
use serde::{Deserialize, Serialize};

use crate::{BudgetTerms, RateLimits};

/// Limits that an administrator set on a key, an account or a team; an absent one binds nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// Highest spending cap.
    pub cap: Option<Money>,
    /// Highest budget.
    pub budget: Option<BudgetTerms>,
    /// Models of which the key may have some; empty binds nobody.
    pub models: Vec<String>,
    /// Latest expiry.
    pub expires: Option<Micros>,
    /// Highest rate limits.
    pub limits: RateLimits,
    /// Networks of which the key may have parts; empty binds nobody.
    pub ips: Vec<String>,
}

/// The form in the database.
#[derive(Deserialize, Serialize)]
struct StoredBounds {
    cap: Option<i64>,
    budget: Option<(i64, String)>,
    models: Vec<String>,
    expires: Option<i64>,
    rpm: Option<u32>,
    tpm: Option<u32>,
    concurrency: Option<u32>,
    ips: Vec<String>,
}

impl KeyBounds {
    /// Returns true if nothing is bound.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Encodes bounds for the database; `None` if nothing is bound.
    pub(crate) fn to_text(&self) -> Option<String> {
        if self.is_none() {
            return None;
        }
        let Self { cap, budget, models, expires, limits, ips } = self.clone();
        let RateLimits { rpm, tpm, concurrency } = limits;
        let budget =
            budget.map(|budget| (budget.limit.as_nanos(), budget.period.word().to_owned()));
        let (cap, expires) = (cap.map(Money::as_nanos), expires.map(Micros::get));
        let stored = StoredBounds { cap, budget, models, expires, rpm, tpm, concurrency, ips };
        serde_json::to_string(&stored).ok()
    }

    /// Decodes bounds of the database. Unreadable bounds are an error: they must not turn into none.
    pub(crate) fn from_text(text: Option<&str>) -> Result<Self, sqlx::Error> {
        let Some(text) = text else { return Ok(Self::default()) };
        let stored: StoredBounds =
            serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        let StoredBounds { cap, budget, models, expires, rpm, tpm, concurrency, ips } = stored;
        let budget = budget.map(|(limit, word)| {
            let period =
                BudgetPeriod::by_word(&word).ok_or_else(|| crate::db::unknown_word(&word))?;
            Ok::<_, sqlx::Error>(BudgetTerms { limit: Money::from_nanos(limit), period })
        });
        Ok(Self {
            cap: cap.map(Money::from_nanos),
            budget: budget.transpose()?,
            models,
            expires: expires.map(Micros::new),
            limits: RateLimits { rpm, tpm, concurrency },
            ips,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_survive_the_database_and_broken_ones_are_refused() {
        let bounds = KeyBounds {
            cap: Some(Money::from_nanos(5)),
            budget: Some(BudgetTerms { limit: Money::from_nanos(7), period: BudgetPeriod::Week }),
            models: vec!["a".to_owned()],
            expires: Some(Micros::new(9)),
            limits: RateLimits { rpm: Some(1), tpm: None, concurrency: Some(2) },
            ips: vec!["10.0.0.0/8".to_owned()],
        };
        let text = bounds.to_text().unwrap();
        assert_eq!(KeyBounds::from_text(Some(&text)).unwrap(), bounds);
        assert_eq!(KeyBounds::default().to_text(), None);
        assert!(KeyBounds::from_text(None).unwrap().is_none());
        assert!(KeyBounds::from_text(Some("{}")).is_err());
        assert!(KeyBounds::from_text(Some(&text.replace("week", "fortnight"))).is_err());
    }
}
