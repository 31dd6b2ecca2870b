//! One account for administrators: role, spending terms, sign-in methods.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{Account, AccountRole};

use super::terms_form::{read_terms, term_fields, terms_form};
use super::{read_version, select, version_field};
use crate::form::{FieldErrors, FormFields, QueryFields};
use crate::layout::{Layout, ok_page, page};
use crate::page_error::PageError;
use crate::pages::copy_block;
use crate::pages::people::role_description;
use crate::redirect::redirect_to;
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::{display, links, urls};
use admin::{
    AccountAdmin, AccountChange, Actor, AdminError, may_grant_role, user_json, version_of,
};

const PEOPLE_PATH: &str = "/console/people";
/// Fields of the forms, named as in the API.
const FORM_FIELDS: [&str; 7] = [
    "role",
    "cap_usd",
    "budget.most_usd",
    "budget.per",
    "limits.rpm",
    "limits.tpm",
    "limits.concurrency",
];
type AccountPath = Result<Path<String>, PathRejection>;

/// The account on the page, and the person who changes it.
struct AccountPage<'a> {
    accounts: &'a AccountAdmin,
    user: &'a SignedInUser,
    actor: Actor,
    id: String,
}

/// Content of the page besides the account.
#[derive(Default)]
struct PageContent {
    /// Values of the form of terms; `None` shows the stored ones.
    fields: Option<FormFields>,
    errors: FieldErrors,
    notice: Option<&'static str>,
}

impl<'a> AccountPage<'a> {
    fn new(
        state: &'a ConsoleState,
        user: &'a SignedInUser,
        id: AccountPath,
    ) -> Result<Self, PageError> {
        let Path(id) = id.map_err(|_| PageError::NotFound)?;
        Ok(Self { accounts: state.host.accounts(), user, actor: user.actor(), id })
    }

    fn path(&self) -> String {
        format!("{PEOPLE_PATH}/{}", urls::escape_value(&self.id))
    }

    fn redirect_with_notice(&self, notice: &str) -> Response {
        redirect_to(&format!("{}?told={notice}", self.path()))
    }

    async fn change(&self, fields: &FormFields, change: AccountChange) -> Result<(), AdminError> {
        let read = read_version(fields);
        self.accounts.change_account(&self.actor, &self.id, read, change).await.map(|_| ())
    }

    /// Renders the page with the reason a change was refused.
    async fn rejected(
        &self,
        error: AdminError,
        fields: Option<FormFields>,
    ) -> Result<Response, PageError> {
        let mut content = PageContent { fields, ..PageContent::default() };
        let status = if let AdminError::Forbidden(message) = error {
            // The user may see the page, so the page shows the reason.
            content.errors.add("", message);
            StatusCode::FORBIDDEN
        } else {
            let refusal = FormRefusal::try_from(error)?;
            content.errors = refusal.field_errors(&FORM_FIELDS);
            refusal.status
        };
        self.render(status, content).await
    }
}

/// `GET /console/people/{id}`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let notice = match query.get("told") {
        "role" => Some("The role is changed."),
        "locked" => Some("The account is locked out: its sessions are over and its keys stop."),
        "open" => Some("The account is let in again."),
        "terms" => Some("Saved."),
        "out" => Some("Every session of this account is over."),
        _ => None,
    };
    person.render(StatusCode::OK, PageContent { notice, ..PageContent::default() }).await
}

/// `POST /console/people/{id}/role`
pub(crate) async fn role(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let Some(role) = AccountRole::by_word(fields.get("role")) else {
        let wrong = AdminError::invalid("role", "write owner, admin, member or viewer");
        return person.rejected(wrong, None).await;
    };
    let change = AccountChange { role: Some(role), ..AccountChange::default() };
    match person.change(&fields, change).await {
        Ok(()) => Ok(person.redirect_with_notice("role")),
        Err(error) => person.rejected(error, None).await,
    }
}

/// `POST /console/people/{id}/lock`
pub(crate) async fn lock(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let locked = fields.get("disabled") == "true";
    let change = AccountChange { disabled: Some(locked), ..AccountChange::default() };
    match person.change(&fields, change).await {
        Ok(()) => Ok(person.redirect_with_notice(if locked { "locked" } else { "open" })),
        Err(error) => person.rejected(error, None).await,
    }
}

/// `POST /console/people/{id}/terms`
pub(crate) async fn terms(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let mut errors = FieldErrors::default();
    let (terms, limits) = read_terms(&fields, &mut errors);
    if !errors.is_empty() {
        let content = PageContent { fields: Some(fields), errors, notice: None };
        return person.render(StatusCode::BAD_REQUEST, content).await;
    }
    let (accounts, read) = (person.accounts, read_version(&fields));
    match accounts.set_account_terms(&person.actor, &person.id, read, terms, limits).await {
        Ok(_) => Ok(person.redirect_with_notice("terms")),
        Err(error) => person.rejected(error, Some(fields)).await,
    }
}

/// `POST /console/people/{id}/reset`: creates a password link to hand over.
pub(crate) async fn reset(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    let link = match person.accounts.issue_password_link(&person.actor, &person.id).await {
        Ok(path) => links::absolute(&state, &path),
        Err(error) => return person.rejected(error, None).await,
    };
    let body = html! {
        section.card.broad {
            h1 { "A link to choose a password" }
            p { "Give this link to the owner of the account. It is shown once, works once, "
                "and for half an hour." }
            (copy_block("reset", "Link", &link))
            p.actions { a.button href=(person.path()) { "Done" } }
        }
    };
    Ok(ok_page(
        &Layout::signed_in("A link to choose a password", &user.account).with_nav(PEOPLE_PATH),
        &body,
    ))
}

/// `POST /console/people/{id}/sign-out`
pub(crate) async fn sign_out(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: AccountPath,
) -> Result<Response, PageError> {
    let person = AccountPage::new(&state, &user, id)?;
    match person.accounts.end_sessions(&person.actor, &person.id).await {
        Ok(_) => Ok(person.redirect_with_notice("out")),
        Err(error) => person.rejected(error, None).await,
    }
}

impl AccountPage<'_> {
    async fn render(
        &self,
        status: StatusCode,
        content: PageContent,
    ) -> Result<Response, PageError> {
        let PageContent { fields, errors, notice } = content;
        let (errors, user) = (&errors, self.user);
        let account = self.accounts.user(&self.actor, &self.id).await?;
        let terms = self.accounts.account_terms(&self.actor, &self.id).await?;
        let fields = fields.unwrap_or_else(|| term_fields(&terms));
        let (locked, at) = (account.disabled, self.path());
        let body = html! {
            p.crumbs { a href=(PEOPLE_PATH) { "People" } " / account" }
            div.title {
                h1 { bdi { (account.username) } }
                @if locked { span.badge.off { "Locked" } } @else { span.badge.good { "Active" } }
            }
            @if let Some(notice) = notice { p.told role="status" { (notice) } }
            (error_summary(errors))
            div.columns {
                section.card {
                    h2 { "Account" }
                    dl.facts {
                        div { dt { "E-mail" } dd {
                            @match &account.email {
                                Some(email) => bdi { (email) },
                                None => span.muted { "none" },
                            }
                        } }
                        div { dt { "Spent" } dd { (display::money(terms.spent)) } }
                        div { dt { "See" } dd {
                            a href={ "/console/activity?account=" (urls::escape_value(&self.id)) } { "activity" } ", "
                            a href={ "/console/audit?actor=" (urls::escape_value(&self.id)) } { "what they changed" }
                        } }
                    }
                    (role_form(user, &account, &at, errors))
                }
                section.card { h2 { "What it may spend, and how fast" } (terms_form(&at, &terms, &fields, errors)) }
                section.card {
                    h2 { "Ways in" }
                    @if !locked {
                        form method="post" action={ (at) "/reset" } {
                            button.button.quiet type="submit" { "Make a link to choose a password" }
                        }
                        form method="post" action={ (at) "/sign-out" } {
                            button.button.quiet type="submit" { "End every session" }
                        }
                    }
                    (lock_form(&account, locked, &at))
                }
            }
        };
        let layout = Layout::signed_in(&account.username, &user.account).with_nav(PEOPLE_PATH);
        Ok(page(status, &layout, &body))
    }
}

fn role_form(user: &SignedInUser, account: &Account, at: &str, errors: &FieldErrors) -> Markup {
    let own = account.role.word();
    let options: Vec<(&str, &str)> = AccountRole::ALL
        .into_iter()
        .filter(|role| role.word() == own || may_grant_role(user.account.role, *role))
        .map(|role| (role.word(), role_description(role)))
        .collect();
    html! {
        form method="post" action={ (at) "/role" } {
            (version_field(&version_of(&user_json(account))))
            (select(("role", "Role"), own, &options, errors))
            button.button.quiet type="submit" { "Change the role" }
        }
    }
}

fn lock_form(account: &Account, locked: bool, at: &str) -> Markup {
    html! {
        @if locked {
            form method="post" action={ (at) "/lock" } {
                (version_field(&version_of(&user_json(account))))
                input type="hidden" name="disabled" value="false";
                button.button.quiet type="submit" { "Let the account in again" }
            }
        } @else {
            details {
                summary { "Lock the account out" }
                form method="post" action={ (at) "/lock" } {
                    (version_field(&version_of(&user_json(account))))
                    input type="hidden" name="disabled" value="true";
                    p.help { "Its sessions end, and its keys stop until it is let in again." }
                    button.button.harm type="submit" { "Lock it out" }
                }
            }
        }
    }
}
