//! Signing in through a provider of identities: the way out and the way back.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::html;
use store::{Account, Identity, AccountRole, StoreError};

use crate::cookies::{self, Jar};
use crate::desk::Desk;
use crate::form::{Asked, Fields};
use crate::links;
use crate::oidc::{self, Person, Return};
use crate::session;
use crate::shell::{Shell, page, sent_to};
use crate::signup::SignUp;
use crate::trouble::Trouble;
use crate::{address, signin};
use admin::names;

/// `POST /auth/{identity}`
pub(crate) async fn depart(
    State(desk): State<Arc<Desk>>,
    name: Result<Path<String>, PathRejection>,
    fields: Fields,
) -> Result<Response, Trouble> {
    let Path(name) = name.map_err(|_| Trouble::NotFound)?;
    let next = address::inside(fields.get("next")).unwrap_or("/console");
    oidc::depart(&desk, &name, None, next).await
}

/// `GET /auth/{identity}/callback`
pub(crate) async fn arrive(
    State(desk): State<Arc<Desk>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let Path(name) = name.map_err(|_| Trouble::NotFound)?;
    let Return { provider, person, link } = oidc::arrive(&desk, &name, &headers, &asked).await?;
    let next = links::note(&link).next.unwrap_or_else(|| "/console".to_owned());
    if let Some(account_id) = &link.account_id {
        return attach(&desk, &headers, account_id, &person, &next).await;
    }
    let known = desk.store.account_by_identity(&person.issuer, &person.subject).await?;
    if let Some(account) = known {
        if account.disabled {
            return Err(Trouble::Refused("This account is locked."));
        }
        return signin::welcome(&desk, &headers, &account, &provider.name, &next).await;
    }
    if let Some(email) = &person.email
        && desk.store.account_by_login(email).await?.is_some()
    {
        return Ok(taken(&provider.name));
    }
    let open = SignUp::of(&desk).await? == SignUp::Open;
    let own = crate::signup::role(&desk).await?;
    let role = provider.admits.or(open.then_some(own));
    let role = role.ok_or(Trouble::Refused(
        "You have no account here yet. Ask an administrator of this gateway for an invitation.",
    ))?;
    if person.email.is_some() && !person.email_verified {
        return Err(Trouble::Refused(
            "The identity provider has not verified your e-mail address. Verify it there first.",
        ));
    }
    let account = newcomer(&desk, &person, role).await?;
    desk.note(&account.id, "account.create", &account.id, &provider.name).await;
    signin::welcome(&desk, &headers, &account, &provider.name, &next).await
}

/// Links an account of ours to who somebody is elsewhere. Whoever left must still be signed in.
async fn attach(
    desk: &Desk,
    headers: &HeaderMap,
    account_id: &str,
    person: &Person,
    next: &str,
) -> Result<Response, Trouble> {
    let signed = session::find(desk, headers).await?;
    if signed.is_none_or(|signed| signed.account.id != account_id) {
        return Err(Trouble::Refused("You were signed out meanwhile. Sign in and try again."));
    }
    match desk.store.add_identity(&identity(desk, account_id, person)).await {
        Ok(()) => desk.note(account_id, "identity.add", account_id, &person.issuer).await,
        Err(StoreError::Conflict(_)) => {
            let owner = desk.store.account_by_identity(&person.issuer, &person.subject).await?;
            if owner.is_none_or(|owner| owner.id != account_id) {
                return Err(Trouble::Refused("This identity belongs to another account here."));
            }
        }
        Err(error) => return Err(error.into()),
    }
    let mut response = sent_to(next);
    cookies::clear(desk, &mut response, Jar::Flow);
    Ok(response)
}

fn identity(desk: &Desk, account_id: &str, person: &Person) -> Identity {
    let label = person.email.as_ref().or(person.name.as_ref()).unwrap_or(&person.subject);
    Identity {
        issuer: person.issuer.clone(),
        subject: person.subject.clone(),
        account_id: account_id.to_owned(),
        label: label.chars().take(254).collect(),
        created: desk.now(),
    }
}

/// Makes an account for somebody a provider vouches for, under a name that is free.
async fn newcomer(desk: &Desk, person: &Person, role: AccountRole) -> Result<Account, Trouble> {
    let email = person.email.clone().filter(|email| names::is_address(email));
    let wished = person.name.as_deref().or(email.as_deref()).unwrap_or("user");
    let wished = wished.split('@').next().unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let base: String = wished.chars().filter(plain).take(30).collect();
    let base = base.trim_start_matches(['.', '_', '-']);
    let base = if names::newcomer_objection(base).is_some() { "user" } else { base };
    let now = desk.now();
    let terms = crate::signup::terms(desk).await?;
    for attempt in 0..20 {
        let word = admin::random::word().map_err(|_| Trouble::Broken)?;
        let suffix: String = word.chars().take(6).collect();
        let username = if attempt == 0 { base.to_owned() } else { format!("{base}-{suffix}") };
        let account = Account {
            id: uuid::Uuid::now_v7().to_string(),
            username,
            email: email.clone(),
            role,
            password_hash: None,
            disabled: false,
            created: now,
            changed: now,
        };
        let identity = identity(desk, &account.id, person);
        match desk.store.add_account_with_identity(&account, &identity, terms).await {
            Ok(()) => return Ok(account),
            Err(StoreError::Conflict("username or email")) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Trouble::Broken)
}

fn taken(provider: &str) -> Response {
    let body = html! {
        section.card {
            h1 { "This address has an account already" }
            p { "There is an account with your e-mail address here, made in another way. To sign "
                "in to it with " (provider) ", sign in the way you did before and link "
                (provider) " under “Your account”." }
            p.actions {
                a.button href="/login?next=%2Fconsole%2Faccount" { "Sign in" }
                a.button.quiet href="/reset" { "Reset Password" }
            }
        }
    };
    page(StatusCode::CONFLICT, &Shell::outside("This address has an account already"), &body)
}
