//! Account links and checks for callers without a browser. The rules are those of the console.

use ledger::Micros;
use store::{Account, AccountRole, LinkPurpose, Store};

use crate::one_time_link::{self, LINK_LIFETIMES, LinkData};
use crate::{names, password, random};

/// Returns the first problem with the username or e-mail address of a new account.
pub fn account_names_error(username: &str, email: Option<&str>) -> Option<String> {
    if let Some(why) = names::username_error(username) {
        return Some(format!("the username `{username}`: {why}"));
    }
    let email = email.filter(|email| !names::is_email_address(email))?;
    Some(format!("`{email}` does not look like an e-mail address"))
}

/// Returns the hash to store for a password, or the rule the password breaks.
pub fn hash_password(password: &str, names: &[&str]) -> Result<String, String> {
    match password::password_error(password, names) {
        Some(why) => Err(why),
        None => password::hash(password).map_err(|error| error.to_string()),
    }
}

/// Creates a one-time link with which an account chooses a password, and returns its path.
pub async fn reset_link(store: &Store, account: &Account, now: Micros) -> Result<String, String> {
    create_link(
        store,
        LinkPurpose::Reset,
        Some(&account.id),
        &LinkData::default(),
        (now, LINK_LIFETIMES.reset),
    )
    .await
}

/// Creates a one-time link with which a person creates an account, and returns its path.
pub async fn invite_link(
    store: &Store,
    role: AccountRole,
    email: Option<&str>,
    now: Micros,
) -> Result<String, String> {
    let note = LinkData {
        role: Some(role.word().to_owned()),
        email: email.map(str::to_owned),
        ..LinkData::default()
    };
    create_link(store, LinkPurpose::Invite, None, &note, (now, LINK_LIFETIMES.invite)).await
}

async fn create_link(
    store: &Store,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &LinkData,
    times: (Micros, Micros),
) -> Result<String, String> {
    let token = random::random_token().map_err(|_| "no random numbers are available".to_owned())?;
    let link = one_time_link::new_link(random::digest(&token), purpose, account_id, note, times);
    store.add_link(&link).await.map_err(|error| error.to_string())?;
    Ok(format!("/link/{token}"))
}
