//! Mail about a change of the account.

use super::MailDraft;
use crate::MailMessage;

pub(crate) fn account_changed(to: &str, username: &str, what: &str) -> MailMessage {
    let paragraphs = [format!("The account {username} was changed: {what}.")];
    MailDraft {
        to,
        subject: "Your account was changed",
        paragraphs: &paragraphs,
        button: None,
        footnote: "If it was not you, choose another password and tell an administrator.",
    }
    .render()
}
