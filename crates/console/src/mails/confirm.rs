//! The mail that proves that an address is the account's.

use super::Letter;
use crate::Mail;

pub(crate) fn confirm(to: &str, username: &str, url: &str) -> Mail {
    let says = [
        format!("The account {username} wants to use this address."),
        "This link confirms that it is yours. It works once, for a day.".to_owned(),
    ];
    Letter {
        to,
        subject: "Confirm your address",
        says: &says,
        button: Some((url, "Confirm the address")),
        small: "If you do not know this account, there is nothing to do.",
    }
    .mail()
}
