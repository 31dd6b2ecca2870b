//! Mail with an invitation.

use super::MailDraft;
use crate::MailMessage;

pub(crate) fn invite(to: &str, from: &str, gateway: &str, url: &str) -> MailMessage {
    let paragraphs = [
        format!("{from} invites you to {gateway}, a gateway to many models with one key."),
        "This link lets you make your account. It works once, for a week.".to_owned(),
    ];
    MailDraft {
        to,
        subject: "You are invited",
        paragraphs: &paragraphs,
        button: Some((url, "Make your account")),
        footnote: "If you do not know what this is, there is nothing to do.",
    }
    .render()
}
