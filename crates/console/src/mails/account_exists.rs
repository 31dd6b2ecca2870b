//! Mail to an address that already has an account and tries to sign up.

use super::MailDraft;
use crate::MailMessage;

pub(crate) fn account_exists(to: &str, username: &str, url: &str) -> MailMessage {
    let paragraphs = [format!(
        "Somebody, probably you, wanted to sign up with this address. It has an account already: \
         {username}. Sign in with it, or choose another password if you have forgotten yours."
    )];
    MailDraft {
        to,
        subject: "You have an account already",
        paragraphs: &paragraphs,
        button: Some((url, "Sign in")),
        footnote: "If it was not you, nothing has changed and there is nothing to do.",
    }
    .render()
}
