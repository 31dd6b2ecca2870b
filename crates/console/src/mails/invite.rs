//! The mail with an invitation.

use super::Letter;
use crate::Mail;

pub(crate) fn invite(to: &str, from: &str, place: &str, url: &str) -> Mail {
    let says = [
        format!("{from} invites you to {place}, a gateway to many models with one key."),
        "This link lets you make your account. It works once, for a week.".to_owned(),
    ];
    Letter {
        to,
        subject: "You are invited",
        says: &says,
        button: Some((url, "Make your account")),
        small: "If you do not know what this is, there is nothing to do.",
    }
    .mail()
}
