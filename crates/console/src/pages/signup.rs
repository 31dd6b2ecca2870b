//! Sign-up with a confirmed e-mail address or an invitation.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use store::{
    Account, AccountRole, AccountTerms, Link, LinkPurpose, MemberChange, StoreError, TeamRole,
};

use super::login::client_network;
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, page};
use crate::links::{self, LINK_LIFETIMES, LinkData};
use crate::page_error::PageError;
use crate::signup::SignUpMode;
use crate::state::ConsoleState;
use crate::{mails, shared_fields, signin};
use admin::names;

const MAX_FIELD_BYTES: usize = 4_096;
const SIGNUP_PURPOSES: [LinkPurpose; 2] = [LinkPurpose::SignUp, LinkPurpose::Invite];

/// `GET /signup`
pub(crate) async fn show(State(desk): State<Arc<ConsoleState>>) -> Result<Response, PageError> {
    Ok(match closed_reason(&desk).await? {
        Some(why) => closed_page(why),
        None => email_form(StatusCode::OK, "", &FieldErrors::default()),
    })
}

/// `POST /signup`: the answer is the same for known and unknown addresses.
pub(crate) async fn send(
    State(desk): State<Arc<ConsoleState>>,
    extensions: Extensions,
    fields: FormFields,
) -> Result<Response, PageError> {
    if let Some(why) = closed_reason(&desk).await? {
        return Ok(closed_page(why));
    }
    let email = fields.get_single("email", MAX_FIELD_BYTES)?;
    if !names::is_email_address(email) {
        let mut wrongs = FieldErrors::default();
        wrongs.add("email", "This does not look like an e-mail address.");
        return Ok(email_form(StatusCode::BAD_REQUEST, email, &wrongs));
    }
    desk.mail_throttle.admit(&desk.store, email, client_network(&extensions), desk.now()).await?;
    let to = email.to_owned();
    tokio::spawn(async move {
        if let Err(trouble) = send_mail(&desk, &to).await {
            tracing::error!("cannot send a sign-up mail: {trouble:?}");
        }
    });
    Ok(super::message_page(
        "Look into your mail",
        "If this address can have an account here, a mail with a link is on its way to it. The \
         link works once, for a day.",
    ))
}

async fn send_mail(desk: &ConsoleState, to: &str) -> Result<(), PageError> {
    let mail = match desk.store.account_by_login(to).await? {
        Some(account) if account.disabled => return Ok(()),
        Some(account) => {
            mails::account_exists(to, &account.username, &format!("{}/login", desk.base_url()))
        }
        None => {
            let note = LinkData { email: Some(to.to_owned()), ..LinkData::default() };
            let word =
                links::create(desk, LinkPurpose::SignUp, None, &note, LINK_LIFETIMES.sign_up)
                    .await?;
            mails::signup(to, &desk.base_url(), &links::url(desk, &word))
        }
    };
    mails::send(desk, mail).await;
    Ok(())
}

/// Reason why sign-up is closed, if it is.
async fn closed_reason(desk: &ConsoleState) -> Result<Option<&'static str>, PageError> {
    Ok(match SignUpMode::load(desk).await? {
        SignUpMode::Open if desk.host.can_mail() => None,
        SignUpMode::Open => {
            Some("This gateway cannot send mail yet, so that nobody can prove an address.")
        }
        SignUpMode::Invited => Some(
            "Accounts are made by invitation here. Ask an administrator of this gateway for one.",
        ),
        SignUpMode::Closed => Some("This gateway takes no new accounts."),
    })
}

fn closed_page(why: &'static str) -> Response {
    let body = html! {
        section.card {
            h1 { "Sign up" }
            p { (why) }
            p.beside { a href="/login" { "Sign in" } }
        }
    };
    page(StatusCode::FORBIDDEN, &Layout::signed_out("Sign up"), &body)
}

fn email_form(status: StatusCode, email: &str, wrongs: &FieldErrors) -> Response {
    let body = html! {
        section.card {
            h1 { "Create an account" }
            p.muted { "We send a link to your address; with it you choose your password." }
            form method="post" action="/signup" {
                (FormInput {
                    name: "email",
                    label: "E-mail",
                    kind: "email",
                    value: email,
                    autocomplete: "email",
                    required: true,
                    autofocus: true,
                    ..FormInput::default()
                }.render(wrongs))
                button.button.wide type="submit" { "Send me the link" }
            }
            p.beside { a href="/login" { "I have an account" } }
        }
    };
    page(status, &Layout::signed_out("Sign up"), &body)
}

/// `GET /signup/new`
pub(crate) async fn new_account_page(
    State(desk): State<Arc<ConsoleState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let link = links::from_cookie(&desk, &headers, &SIGNUP_PURPOSES).await?;
    permitted_role(&desk, &link).await?;
    Ok(form(StatusCode::OK, &link, "", &FieldErrors::default()))
}

/// `POST /signup/new`
pub(crate) async fn create(
    State(desk): State<Arc<ConsoleState>>,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let link = links::from_cookie(&desk, &headers, &SIGNUP_PURPOSES).await?;
    let role = permitted_role(&desk, &link).await?;
    let email = links::link_data(&link).email;
    let username = fields.get_trimmed("username", MAX_FIELD_BYTES)?;
    let (password, again) = (fields.get("password"), fields.get("again"));
    let mut wrongs = FieldErrors::default();
    if let Some(why) = names::new_username_error(username) {
        wrongs.add("username", why);
    } else if desk.store.account_by_login(username).await?.is_some() {
        wrongs.add("username", "This username is taken. Choose another.");
    }
    let known = [username, email.as_deref().unwrap_or_default()];
    if let Some((field, why)) = names::password_form_error(password, again, &known) {
        wrongs.add(field, why);
    }
    if !wrongs.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &link, username, &wrongs));
    }
    let hash = desk.passwords.hash(password).await?;
    let terms = match link.purpose == LinkPurpose::SignUp {
        true => crate::signup::default_terms(&desk).await?,
        false => AccountTerms::default(),
    };
    links::consume(&desk, &link).await?;
    let now = desk.now();
    let account = Account {
        id: uuid::Uuid::now_v7().to_string(),
        username: username.to_owned(),
        email,
        role,
        password_hash: Some(hash),
        disabled: false,
        created: now,
        changed: now,
    };
    match desk.store.add_account_with_terms(&account, terms).await {
        Ok(()) => {}
        Err(StoreError::Conflict(_)) => {
            links::restore(&desk, &link).await?;
            wrongs.add("username", "This username or the address is taken.");
            return Ok(form(StatusCode::BAD_REQUEST, &link, username, &wrongs));
        }
        Err(error) => {
            links::restore(&desk, &link).await?;
            return Err(error.into());
        }
    }
    let maker = links::link_data(&link).maker.unwrap_or_else(|| account.id.clone());
    desk.audit(&maker, "account.create", &account.id, account.role.word()).await;
    if let Some((team, word)) = links::link_data(&link).team {
        join_team(&desk, &maker, &team, &word, &account).await;
    }
    signin::complete_sign_in(&desk, &headers, &account, link.purpose.word(), "/console").await
}

/// Adds an invited account to its team. The account exists already, so a failure is only logged and
/// an administrator can repeat the step.
async fn join_team(desk: &ConsoleState, maker: &str, team: &str, word: &str, account: &Account) {
    let role = TeamRole::by_word(word);
    let seated = desk.store.set_member(team, &account.id, role, true, desk.now()).await;
    match (seated, role) {
        (Ok(MemberChange::Done), Some(role)) => {
            let detail = format!("{} {}", account.id, role.word());
            desk.audit(maker, "team.member", team, &detail).await;
        }
        (seated, _) => {
            tracing::error!(team, "cannot add an invited account to its team: {seated:?}")
        }
    }
}

/// Returns the role of an account created with this link, if the sign-up mode allows it. An
/// invitation gives only what its creator may still give.
async fn permitted_role(desk: &ConsoleState, link: &Link) -> Result<AccountRole, PageError> {
    let mode = SignUpMode::load(desk).await?;
    let note = links::link_data(link);
    if link.purpose == LinkPurpose::SignUp {
        let role = crate::signup::default_role(desk).await?;
        return if mode == SignUpMode::Open { Ok(role) } else { Err(PageError::InvalidLink) };
    }
    let role = note.role.as_deref().and_then(AccountRole::by_word).ok_or(PageError::InvalidLink)?;
    if mode == SignUpMode::Closed {
        return Err(PageError::InvalidLink);
    }
    let Some(maker) = note.maker else { return Ok(role) };
    let maker = desk.store.account(&maker).await?.filter(|maker| !maker.disabled);
    let gives = maker.is_some_and(|maker| admin::may_grant_role(maker.role, role));
    if gives { Ok(role) } else { Err(PageError::InvalidLink) }
}

fn form(status: StatusCode, link: &Link, username: &str, wrongs: &FieldErrors) -> Response {
    let email = links::link_data(link).email;
    let body = html! {
        section.card {
            h1 { "Make your account" }
            @if let Some(email) = &email {
                p.muted { "For " strong { bdi { (email) } } "." }
            }
            (shared_fields::error_summary(wrongs))
            form method="post" action="/signup/new" {
                (FormInput {
                    name: "username",
                    label: "Username",
                    value: username,
                    autocomplete: "username",
                    required: true,
                    autofocus: true,
                    ..FormInput::default()
                }.render(wrongs))
                (shared_fields::new_password(wrongs, false))
                button.button.wide type="submit" { "Create the account" }
            }
        }
    };
    page(status, &Layout::signed_out("Make your account"), &body)
}
