//! Mail with the link to choose another password.

use super::MailDraft;
use crate::MailMessage;

pub(crate) fn reset(to: &str, username: &str, url: &str) -> MailMessage {
    let paragraphs = [
        format!("Somebody, probably you, asked for another password for the account {username}."),
        "This link lets you choose one. It works once, for half an hour.".to_owned(),
    ];
    MailDraft {
        to,
        subject: "Choose another password",
        paragraphs: &paragraphs,
        button: Some((url, "Choose a password")),
        footnote: "If it was not you, nothing has changed and there is nothing to do.",
    }
    .render()
}
