//! Mail that confirms an account's e-mail address.

use super::MailDraft;
use crate::MailMessage;

pub(crate) fn confirm(to: &str, username: &str, url: &str) -> MailMessage {
    let paragraphs = [
        format!("The account {username} wants to use this address."),
        "This link confirms that it is yours. It works once, for a day.".to_owned(),
    ];
    MailDraft {
        to,
        subject: "Confirm your address",
        paragraphs: &paragraphs,
        button: Some((url, "Confirm the address")),
        footnote: "If you do not know this account, there is nothing to do.",
    }
    .render()
}
