//! The mail with the link to finish signing up.

use super::Letter;
use crate::Mail;

pub(crate) fn signup(to: &str, place: &str, url: &str) -> Mail {
    let says = [
        format!("Somebody, probably you, wants an account at {place} with this address."),
        "This link proves that the address is yours. It works once, for a day.".to_owned(),
    ];
    Letter {
        to,
        subject: "Finish signing up",
        says: &says,
        button: Some((url, "Make the account")),
        small: "If it was not you, there is nothing to do: no account is made without the link.",
    }
    .mail()
}
