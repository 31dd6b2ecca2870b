//! The mail that tells somebody that their account was changed.

use super::Letter;
use crate::Mail;

pub(crate) fn changed(to: &str, username: &str, what: &str) -> Mail {
    let says = [format!("The account {username} was changed: {what}.")];
    Letter {
        to,
        subject: "Your account was changed",
        says: &says,
        button: None,
        small: "If it was not you, choose another password and tell an administrator.",
    }
    .mail()
}
