//! Handlers of the sign-in through an identity provider.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::html;
use store::{Account, AccountRole, Identity, StoreError};

use crate::cookies::{self, CookieKind};
use crate::form::{FormFields, QueryFields};
use crate::layout::{Layout, page};
use crate::links;
use crate::oidc::{self, IdentityClaims, IdentityReturn};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session;
use crate::signup::SignUpMode;
use crate::state::ConsoleState;
use crate::{signin, urls};
use admin::names;

/// `POST /auth/{identity}`
pub(crate) async fn begin(
    State(state): State<Arc<ConsoleState>>,
    name: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let Path(name) = name.map_err(|_| PageError::NotFound)?;
    let next = urls::console_path(fields.get("next")).unwrap_or("/console");
    oidc::begin_sign_in(&state, &name, None, next).await
}

/// `GET /auth/{identity}/callback`
pub(crate) async fn callback(
    State(state): State<Arc<ConsoleState>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let Path(name) = name.map_err(|_| PageError::NotFound)?;
    let IdentityReturn { provider, claims: person, link } =
        oidc::finish_sign_in(&state, &name, &headers, &query).await?;
    let next = links::link_data(&link).next.unwrap_or_else(|| "/console".to_owned());
    if let Some(account_id) = &link.account_id {
        return link_identity(&state, &headers, account_id, &person, &next).await;
    }
    let known = state.store.account_by_identity(&person.issuer, &person.subject).await?;
    if let Some(account) = known {
        if account.disabled {
            return Err(PageError::SignInRefused("This account is locked."));
        }
        return signin::complete_sign_in(&state, &headers, &account, &provider.name, &next).await;
    }
    if let Some(email) = &person.email
        && state.store.account_by_login(email).await?.is_some()
    {
        return Ok(address_taken_page(&provider.name));
    }
    let open = SignUpMode::load(&state).await? == SignUpMode::Open;
    let own = crate::signup::default_role(&state).await?;
    let role = provider.default_role.or(open.then_some(own));
    let role = role.ok_or(PageError::SignInRefused(
        "You have no account here yet. Ask an administrator of this gateway for an invitation.",
    ))?;
    if person.email.is_some() && !person.email_verified {
        return Err(PageError::SignInRefused(
            "The identity provider has not verified your e-mail address. Verify it there first.",
        ));
    }
    let account = create_account(&state, &person, role).await?;
    state.audit(&account.id, "account.create", &account.id, &provider.name).await;
    signin::complete_sign_in(&state, &headers, &account, &provider.name, &next).await
}

/// Links an identity to an account. The user who started the flow must still be signed in.
async fn link_identity(
    state: &ConsoleState,
    headers: &HeaderMap,
    account_id: &str,
    person: &IdentityClaims,
    next: &str,
) -> Result<Response, PageError> {
    let user = session::find_session(state, headers).await?;
    if user.is_none_or(|user| user.account.id != account_id) {
        return Err(PageError::SignInRefused(
            "You were signed out meanwhile. Sign in and try again.",
        ));
    }
    match state.store.add_identity(&identity_record(state, account_id, person)).await {
        Ok(()) => state.audit(account_id, "identity.add", account_id, &person.issuer).await,
        Err(StoreError::Conflict(_)) => {
            let owner = state.store.account_by_identity(&person.issuer, &person.subject).await?;
            if owner.is_none_or(|owner| owner.id != account_id) {
                return Err(PageError::SignInRefused(
                    "This identity belongs to another account here.",
                ));
            }
        }
        Err(error) => return Err(error.into()),
    }
    let mut response = redirect_to(next);
    cookies::clear(state, &mut response, CookieKind::IdentityFlow);
    Ok(response)
}

fn identity_record(state: &ConsoleState, account_id: &str, person: &IdentityClaims) -> Identity {
    let label = person.email.as_ref().or(person.name.as_ref()).unwrap_or(&person.subject);
    Identity {
        issuer: person.issuer.clone(),
        subject: person.subject.clone(),
        account_id: account_id.to_owned(),
        label: label.chars().take(254).collect(),
        created: state.now(),
    }
}

/// Creates an account for a user of an identity provider, under a free username.
async fn create_account(
    state: &ConsoleState,
    person: &IdentityClaims,
    role: AccountRole,
) -> Result<Account, PageError> {
    let email = person.email.clone().filter(|email| names::is_email_address(email));
    let wished = person.name.as_deref().or(email.as_deref()).unwrap_or("user");
    let wished = wished.split('@').next().unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let base: String = wished.chars().filter(plain).take(30).collect();
    let base = base.trim_start_matches(['.', '_', '-']);
    let base = if names::new_username_error(base).is_some() { "user" } else { base };
    let now = state.now();
    let terms = crate::signup::default_terms(state).await?;
    for attempt in 0..20 {
        let word = admin::random::random_token().map_err(|_| PageError::Internal)?;
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
        let identity = identity_record(state, &account.id, person);
        match state.store.add_account_with_identity(&account, &identity, terms).await {
            Ok(()) => return Ok(account),
            Err(StoreError::Conflict("username or email")) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(PageError::Internal)
}

fn address_taken_page(provider: &str) -> Response {
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
    page(StatusCode::CONFLICT, &Layout::signed_out("This address has an account already"), &body)
}
