//! Mails about alerts, and with statements.

use admin::{MonthStatement, StatementLine, dollars};

use super::{MailDraft, signed};
use crate::{MailMessage, display, urls};

/// Lines of a list in a mail. The page has all.
const MAX_LINES: usize = 30;

/// Mail about alerts, or with a statement, before it has a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMail {
    /// Its subject.
    pub subject: String,
    /// Its paragraphs.
    pub paragraphs: Vec<String>,
    /// Alerts that have no paragraph.
    pub more: usize,
    /// Address of the page that has them.
    pub page: String,
    /// Label of the button that leads there.
    pub button: &'static str,
    /// Sentence about the place where these mails are turned off.
    pub footnote: &'static str,
}

impl AlertMail {
    /// Returns the mail with a statement: the total, by model and by key.
    pub fn of_statement(statement: &MonthStatement, console: &str) -> Self {
        let MonthStatement { month, owner, all, models, parts, .. } = statement;
        let (id, of) = match owner {
            Some(owner) if owner.is_team => (&*owner.id, format!("the team {}", owner.name)),
            Some(owner) => (&*owner.id, owner.name.clone()),
            None => ("", "this gateway".to_owned()),
        };
        let mut paragraphs = vec![format!(
            "In {}, from {} to {} (UTC), {} calls of {of} cost {}, exactly ${}.",
            month.title(),
            month.first_day(),
            month.last_day(),
            count(all.calls),
            dollars(all.cost),
            all.cost,
        )];
        if all.calls > 0 {
            paragraphs.push(list("By model", models, |line| line.id.clone()));
            let name = |line: &StatementLine| {
                if line.name.is_empty() { line.id.clone() } else { line.name.clone() }
            };
            paragraphs.push(list("By key", parts, name));
        }
        Self {
            subject: format!("Statement of {}", month.title()),
            paragraphs,
            more: 0,
            page: format!(
                "{console}/statements?month={}&account={}",
                month.word(),
                urls::escape_value(id)
            ),
            button: "Show the statement",
            footnote: "The page of alerts is where these mails are turned off.",
        }
    }

    /// Returns the mail to one receiver.
    pub fn for_receiver(&self, receiver: &str, gateway: &str) -> MailMessage {
        let Self { subject, paragraphs, more, page, button, footnote } = self;
        let mut paragraphs = paragraphs.clone();
        if *more > 0 {
            paragraphs.push(format!("{more} more alerts are on the page."));
        }
        let draft = MailDraft {
            to: receiver,
            subject,
            paragraphs: &paragraphs,
            button: Some((page, button)),
            footnote,
        };
        signed(draft.render(), gateway)
    }
}

/// Writes the lines of a list, the most expensive first.
fn list(title: &str, lines: &[StatementLine], name: impl Fn(&StatementLine) -> String) -> String {
    let mut text = format!("{title}:");
    for line in lines.iter().take(MAX_LINES) {
        let (calls, cost) = (count(line.totals.calls), dollars(line.totals.cost));
        text.push_str(&format!("\n- {}: {cost} ({calls} calls)", name(line)));
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    if more > 0 {
        text.push_str(&format!("\n- {more} more are on the page"));
    }
    text
}

fn count(calls: i64) -> String {
    display::count(calls.max(0).unsigned_abs())
}
