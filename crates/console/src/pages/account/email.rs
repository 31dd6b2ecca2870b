//! Using another address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::{HERE, prove, whole};
use crate::desk::Desk;
use crate::form::{Fields, Wrongs};
use crate::pages;
use crate::session::Signed;
use crate::shell::sent_to;
use crate::trouble::Trouble;
use admin::names;

/// `POST /console/account/email`: the address counts once the link sent to it was used. Whether it
/// is another account's already is not told here; its owner hears of it.
pub(crate) async fn change(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    if let Some(way) = prove::first(&desk, &signed, HERE).await? {
        return Ok(way);
    }
    let account = &signed.account;
    let email = fields.one("email", 4_096)?;
    let mut wrongs = Wrongs::default();
    if !desk.host.can_mail() {
        wrongs.add("email", "This gateway sends no mail, so that no address can be confirmed.");
    } else if !names::is_address(email) {
        wrongs.add("email", "This does not look like an e-mail address.");
    }
    if !wrongs.is_empty() {
        return whole(&desk, &signed, StatusCode::BAD_REQUEST, &fields, &wrongs, None).await;
    }
    desk.mails.admit_name(&desk.store, email, desk.now()).await?;
    let (account, email) = (account.clone(), email.to_owned());
    tokio::spawn(async move {
        let asked = match desk.store.account_by_login(&email).await {
            Ok(Some(other)) if other.id != account.id => {
                let what = "another account wanted to use its address";
                pages::tell_owner(&desk, &other, what);
                Ok(())
            }
            Ok(_) => pages::confirm::ask(&desk, &account, &email).await,
            Err(error) => Err(error.into()),
        };
        if let Err(trouble) = asked {
            tracing::error!("a mail to confirm an address could not be written: {trouble:?}");
        }
    });
    Ok(sent_to("/console/account?told=sent"))
}
