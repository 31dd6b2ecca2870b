//! Making an account: by an address that is proved to be one's own, or by an invitation.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use store::{Account, AccountTerms, Link, LinkPurpose, AccountRole, MemberChange, StoreError, TeamRole};

use super::login::place;
use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::links::{self, LIFE, Note};
use crate::shell::{Shell, page};
use crate::signup::SignUp;
use crate::trouble::Trouble;
use crate::{fields, mails, signin};
use admin::names;

const LONGEST: usize = 4_096;
const DOORS: [LinkPurpose; 2] = [LinkPurpose::SignUp, LinkPurpose::Invite];

/// `GET /signup`
pub(crate) async fn show(State(desk): State<Arc<Desk>>) -> Result<Response, Trouble> {
    Ok(match closed(&desk).await? {
        Some(why) => shut(why),
        None => ask(StatusCode::OK, "", &Wrongs::default()),
    })
}

/// `POST /signup`: whether the address is known or not, the answer is the same.
pub(crate) async fn send(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
    fields: Fields,
) -> Result<Response, Trouble> {
    if let Some(why) = closed(&desk).await? {
        return Ok(shut(why));
    }
    let email = fields.one("email", LONGEST)?;
    if !names::is_address(email) {
        let mut wrongs = Wrongs::default();
        wrongs.add("email", "This does not look like an e-mail address.");
        return Ok(ask(StatusCode::BAD_REQUEST, email, &wrongs));
    }
    desk.mails.admit(&desk.store, email, place(&extensions), desk.now()).await?;
    let to = email.to_owned();
    tokio::spawn(async move {
        if let Err(trouble) = write(&desk, &to).await {
            tracing::error!("a mail to sign up could not be written: {trouble:?}");
        }
    });
    Ok(super::told(
        "Look into your mail",
        "If this address can have an account here, a mail with a link is on its way to it. The \
         link works once, for a day.",
    ))
}

async fn write(desk: &Desk, to: &str) -> Result<(), Trouble> {
    let mail = match desk.store.account_by_login(to).await? {
        Some(account) if account.disabled => return Ok(()),
        Some(account) => mails::known(to, &account.username, &format!("{}/login", desk.url())),
        None => {
            let note = Note { email: Some(to.to_owned()), ..Note::default() };
            let word = links::make(desk, LinkPurpose::SignUp, None, &note, LIFE.sign_up).await?;
            mails::signup(to, &desk.url(), &links::url(desk, &word))
        }
    };
    mails::send(desk, mail).await;
    Ok(())
}

/// Why nobody can sign up by an address, if so.
async fn closed(desk: &Desk) -> Result<Option<&'static str>, Trouble> {
    Ok(match SignUp::of(desk).await? {
        SignUp::Open if desk.host.can_mail() => None,
        SignUp::Open => {
            Some("This gateway cannot send mail yet, so that nobody can prove an address.")
        }
        SignUp::Invited => Some(
            "Accounts are made by invitation here. Ask an administrator of this gateway for one.",
        ),
        SignUp::Closed => Some("This gateway takes no new accounts."),
    })
}

fn shut(why: &'static str) -> Response {
    let body = html! {
        section.card {
            h1 { "Sign up" }
            p { (why) }
            p.beside { a href="/login" { "Sign in" } }
        }
    };
    page(StatusCode::FORBIDDEN, &Shell::outside("Sign up"), &body)
}

fn ask(status: StatusCode, email: &str, wrongs: &Wrongs) -> Response {
    let body = html! {
        section.card {
            h1 { "Create an account" }
            p.muted { "We send a link to your address; with it you choose your password." }
            form method="post" action="/signup" {
                (Input {
                    name: "email",
                    label: "E-mail",
                    kind: "email",
                    value: email,
                    complete: "email",
                    required: true,
                    focus: true,
                    ..Input::default()
                }.show(wrongs))
                button.button.wide type="submit" { "Send me the link" }
            }
            p.beside { a href="/login" { "I have an account" } }
        }
    };
    page(status, &Shell::outside("Sign up"), &body)
}

/// `GET /signup/new`
pub(crate) async fn choose(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let link = links::opened(&desk, &headers, &DOORS).await?;
    permitted(&desk, &link).await?;
    Ok(form(StatusCode::OK, &link, "", &Wrongs::default()))
}

/// `POST /signup/new`
pub(crate) async fn create(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let link = links::opened(&desk, &headers, &DOORS).await?;
    let role = permitted(&desk, &link).await?;
    let email = links::note(&link).email;
    let username = fields.short("username", LONGEST)?;
    let (password, again) = (fields.get("password"), fields.get("again"));
    let mut wrongs = Wrongs::default();
    if let Some(why) = names::newcomer_objection(username) {
        wrongs.add("username", why);
    } else if desk.store.account_by_login(username).await?.is_some() {
        wrongs.add("username", "This username is taken. Choose another.");
    }
    let known = [username, email.as_deref().unwrap_or_default()];
    if let Some((field, why)) = names::password_objection(password, again, &known) {
        wrongs.add(field, why);
    }
    if !wrongs.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &link, username, &wrongs));
    }
    let hash = desk.passwords.hash(password).await?;
    let terms = match link.purpose == LinkPurpose::SignUp {
        true => crate::signup::terms(&desk).await?,
        false => AccountTerms::default(),
    };
    links::take(&desk, &link).await?;
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
            links::put_back(&desk, &link).await?;
            wrongs.add("username", "This username or the address is taken.");
            return Ok(form(StatusCode::BAD_REQUEST, &link, username, &wrongs));
        }
        Err(error) => {
            links::put_back(&desk, &link).await?;
            return Err(error.into());
        }
    }
    let maker = links::note(&link).maker.unwrap_or_else(|| account.id.clone());
    desk.note(&maker, "account.create", &account.id, account.role.word()).await;
    if let Some((team, word)) = links::note(&link).team {
        join(&desk, &maker, &team, &word, &account).await;
    }
    signin::welcome(&desk, &headers, &account, link.purpose.word(), "/console").await
}

/// Takes somebody who was invited to a team into it. Their account is made; what goes wrong here an
/// administrator can do again.
async fn join(desk: &Desk, maker: &str, team: &str, word: &str, account: &Account) {
    let role = TeamRole::by_word(word);
    let seated = desk.store.set_member(team, &account.id, role, true, desk.now()).await;
    match (seated, role) {
        (Ok(MemberChange::Done), Some(role)) => {
            let detail = format!("{} {}", account.id, role.word());
            desk.note(maker, "team.member", team, &detail).await;
        }
        (seated, _) => tracing::error!(team, "an invited account did not join: {seated:?}"),
    }
}

/// The role of an account made with this link, if such accounts are made here at the moment. An
/// invitation is worth what whoever made it may still give.
async fn permitted(desk: &Desk, link: &Link) -> Result<AccountRole, Trouble> {
    let mode = SignUp::of(desk).await?;
    let note = links::note(link);
    if link.purpose == LinkPurpose::SignUp {
        let role = crate::signup::role(desk).await?;
        return if mode == SignUp::Open { Ok(role) } else { Err(Trouble::DeadLink) };
    }
    let role = note.role.as_deref().and_then(AccountRole::by_word).ok_or(Trouble::DeadLink)?;
    if mode == SignUp::Closed {
        return Err(Trouble::DeadLink);
    }
    let Some(maker) = note.maker else { return Ok(role) };
    let maker = desk.store.account(&maker).await?.filter(|maker| !maker.disabled);
    let gives = maker.is_some_and(|maker| admin::may_give(maker.role, role));
    if gives { Ok(role) } else { Err(Trouble::DeadLink) }
}

fn form(status: StatusCode, link: &Link, username: &str, wrongs: &Wrongs) -> Response {
    let email = links::note(link).email;
    let body = html! {
        section.card {
            h1 { "Make your account" }
            @if let Some(email) = &email {
                p.muted { "For " strong { bdi { (email) } } "." }
            }
            (fields::another_look(wrongs))
            form method="post" action="/signup/new" {
                (Input {
                    name: "username",
                    label: "Username",
                    value: username,
                    complete: "username",
                    required: true,
                    focus: true,
                    ..Input::default()
                }.show(wrongs))
                (fields::new_password(wrongs, false))
                button.button.wide type="submit" { "Create the account" }
            }
        }
    };
    page(status, &Shell::outside("Make your account"), &body)
}
