//! The mail to somebody who signs up with an address that has an account already.

use super::Letter;
use crate::Mail;

pub(crate) fn known(to: &str, username: &str, url: &str) -> Mail {
    let says = [format!(
        "Somebody, probably you, wanted to sign up with this address. It has an account already: \
         {username}. Sign in with it, or choose another password if you have forgotten yours."
    )];
    Letter {
        to,
        subject: "You have an account already",
        says: &says,
        button: Some((url, "Sign in")),
        small: "If it was not you, nothing has changed and there is nothing to do.",
    }
    .mail()
}
