//! Lines of the audit log that name an account by its e-mail address. An erasure removes the address from them.
//!
//! The log may be long, so it is read before the change that erases the account, and that change only looks at the
//! lines since then.

use std::collections::BTreeSet;

use sqlx::QueryBuilder;

use crate::audited_change::in_change;
use crate::db::on_reader;
use crate::{Account, AuditedChange, Store, StoreError};

/// Lines that are read at once. The change reads so many again that an earlier line was committed late.
const BATCH_LINES: i64 = 5_000;
/// Lines per statement.
const LINES_PER_STATEMENT: usize = 500;
const WITH_ADDRESS: &str = "SELECT id, subject, detail FROM audits WHERE id > $1 AND id <= $2 \
    AND (subject LIKE '%@%' OR detail LIKE '%@%')";
const ERASE_SUBJECTS: &str = "UPDATE audits SET subject = '' WHERE id IN (";
const ERASE_DETAILS: &str = "UPDATE audits SET detail = '' WHERE id IN (";

/// Lines of the audit log that name an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamingLines {
    /// Lines about the account.
    subjects: BTreeSet<i64>,
    /// Those, and lines whose detail names it.
    all: BTreeSet<i64>,
    /// The last line that was read.
    until: i64,
}

/// Returns the address of an account as lines are compared with it.
pub(crate) fn address_of(account: &Account) -> Option<String> {
    let email = account.email.as_deref().map(str::trim).filter(|email| !email.is_empty());
    email.map(str::to_lowercase)
}

/// Returns true if the text has that address in lower case, and not only as a part of another one.
pub(crate) fn names_address(text: &str, address: &str) -> bool {
    let text = text.to_lowercase();
    text.match_indices(address).any(|(begin, found)| {
        let (before, after) = text.split_at(begin);
        let mut after = after.get(found.len()..).unwrap_or_default().chars();
        let is_longer = before
            .chars()
            .next_back()
            .is_some_and(|letter| letter.is_alphanumeric() || "._%+-".contains(letter));
        let goes_on = match after.next() {
            // The end of a sentence, or a further part of the domain.
            Some('.') => after.next().is_some_and(char::is_alphanumeric),
            Some(letter) => letter.is_alphanumeric() || letter == '-',
            None => false,
        };
        !is_longer && !goes_on
    })
}

impl NamingLines {
    fn add(&mut self, lines: Vec<(i64, String, String)>, address: &str) {
        for (id, subject, detail) in lines {
            let is_subject = names_address(&subject, address);
            if is_subject {
                self.subjects.insert(id);
            }
            if is_subject || names_address(&detail, address) {
                self.all.insert(id);
            }
        }
    }
}

impl Store {
    /// Reads the lines of the audit log that name the e-mail address of an account.
    pub async fn lines_naming(&self, account: &Account) -> Result<NamingLines, StoreError> {
        let Some(address) = address_of(account) else { return Ok(NamingLines::default()) };
        let last = self.last_audit_id().await?;
        let mut found = NamingLines::default();
        while found.until < last {
            let to = found.until.saturating_add(BATCH_LINES).min(last);
            let lines: Vec<(i64, String, String)> = on_reader!(&self.db, pool => {
                sqlx::query_as(WITH_ADDRESS).bind(found.until).bind(to).fetch_all(pool).await?
            });
            found.add(lines, &address);
            found.until = to;
        }
        Ok(found)
    }
}

impl AuditedChange {
    /// Erases the e-mail address of an account in the audit log: in these lines, and in those that were added since.
    /// Returns their number.
    pub async fn erase_names_in_audits(
        &mut self,
        account: &Account,
        mut found: NamingLines,
    ) -> Result<u64, StoreError> {
        let Some(address) = address_of(account) else { return Ok(0) };
        let mut erased = 0;
        in_change!(self, tx: Kind => {
            let later: Vec<(i64, String, String)> = sqlx::query_as(WITH_ADDRESS)
                .bind(found.until.saturating_sub(BATCH_LINES))
                .bind(i64::MAX)
                .fetch_all(&mut *tx)
                .await?;
            found.add(later, &address);
            let NamingLines { subjects, all, .. } = found;
            for (update, ids) in [(ERASE_SUBJECTS, subjects), (ERASE_DETAILS, all)] {
                let ids: Vec<i64> = ids.into_iter().collect();
                for chunk in ids.chunks(LINES_PER_STATEMENT) {
                    let mut query = QueryBuilder::<Kind>::new(update);
                    let mut list = query.separated(", ");
                    for id in chunk {
                        list.push_bind(*id);
                    }
                    query.push(")").build().persistent(false).execute(&mut *tx).await?;
                }
                erased = ids.len();
            }
        });
        Ok(u64::try_from(erased).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_not_found_within_another_one() {
        for text in [
            "bob@x.org",
            "Invited BOB@X.org.",
            "<bob@x.org>",
            "{\"email\":\"bob@x.org\"}",
            "to=bob@x.org,",
        ] {
            assert!(names_address(text, "bob@x.org"), "{text}");
        }
        for text in
            ["jimbob@x.org", "a.bob@x.org", "bob@x.org.uk", "bob@x.organic", "bob@x", "bob@x.org-y"]
        {
            assert!(!names_address(text, "bob@x.org"), "{text}");
        }
        assert!(names_address("jimbob@x.org and bob@x.org", "bob@x.org"), "the second one");
    }
}
