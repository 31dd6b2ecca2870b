//! Mail with an invitation.

use super::MailDraft;
use crate::MailMessage;

pub(crate) fn invite(to: &str, from: &str, place: &str, url: &str) -> MailMessage {
    let says = [
        format!("{from} invites you to {place}, a gateway to many models with one key."),
        "This link lets you make your account. It works once, for a week.".to_owned(),
    ];
    MailDraft {
        to,
        subject: "You are invited",
        paragraphs: &says,
        button: Some((url, "Make your account")),
        footnote: "If you do not know what this is, there is nothing to do.",
    }
    .render()
}
