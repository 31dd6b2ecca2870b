//! The mail with the link to choose another password.

use super::Letter;
use crate::Mail;

pub(crate) fn reset(to: &str, username: &str, url: &str) -> Mail {
    let says = [
        format!("Somebody, probably you, asked for another password for the account {username}."),
        "This link lets you choose one. It works once, for half an hour.".to_owned(),
    ];
    Letter {
        to,
        subject: "Choose another password",
        says: &says,
        button: Some((url, "Choose a password")),
        small: "If it was not you, nothing has changed and there is nothing to do.",
    }
    .mail()
}
