//! Mail with the link to finish signing up.

use super::MailDraft;
use crate::MailMessage;

pub(crate) fn signup(to: &str, gateway: &str, url: &str) -> MailMessage {
    let paragraphs = [
        format!("Somebody, probably you, wants an account at {gateway} with this address."),
        "This link proves that the address is yours. It works once, for a day.".to_owned(),
    ];
    MailDraft {
        to,
        subject: "Finish signing up",
        paragraphs: &paragraphs,
        button: Some((url, "Make the account")),
        footnote: "If it was not you, there is nothing to do: no account is made without the link.",
    }
    .render()
}
