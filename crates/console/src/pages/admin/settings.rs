//! Settings: sign-up, required second factors, name of the gateway, vault key.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::{read_version, select, version_field};
use crate::display;
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::{redirect_to, see_other};
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::signup::SignUpMode;
use crate::state::ConsoleState;
use admin::{GatewaySettings, SettingsChange, VaultStatus};

const PAGE_PATH: &str = "/console/settings";
/// Fields of the form, named as in the API.
const FORM_FIELDS: [&str; 5] =
    ["signup", "signup_role", "signup_cap_usd", "second_factor_roles", "name"];

/// `GET /console/settings`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let notice = match query.get("told") {
        "saved" => Some("Saved."),
        "rekeyed" => Some("Everything in the vault is sealed with the newest key now."),
        _ => None,
    };
    let now = state.host.admin().settings(&user.actor()).await?;
    let GatewaySettings { signup, signup_role, signup_cap_usd, second_factor_roles, name } =
        now.clone();
    let values = [signup, signup_role, signup_cap_usd, second_factor_roles, name];
    let values = values.map(Option::unwrap_or_default);
    let form = SettingsForm {
        current: now,
        fields: FormFields::prefilled(FORM_FIELDS.into_iter().zip(values).collect()),
        errors: FieldErrors::default(),
        notice,
    };
    form.page(&state, &user, StatusCode::OK).await
}

/// `POST /console/settings`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (admin, actor) = (state.host.admin(), user.actor());
    // An empty field resets the setting.
    let value = |name| Some(Some(fields.get(name).trim().to_owned()).filter(|t| !t.is_empty()));
    let [signup, signup_role, signup_cap_usd, second_factor_roles, name] = FORM_FIELDS.map(value);
    let change = SettingsChange { signup, signup_role, signup_cap_usd, second_factor_roles, name };
    let Err(error) = admin.change_settings(&actor, read_version(&fields), change).await else {
        return Ok(redirect_to("/console/settings?told=saved"));
    };
    let refusal = FormRefusal::try_from(error)?;
    let form = SettingsForm {
        current: admin.settings(&actor).await?,
        fields,
        errors: refusal.field_errors(&FORM_FIELDS),
        notice: None,
    };
    form.page(&state, &user, refusal.status).await
}

/// `POST /console/settings/rekey`
pub(crate) async fn rekey(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    state.host.admin().rekey_vault(&user.actor()).await?;
    Ok(redirect_to("/console/settings?told=rekeyed"))
}

/// `GET` on a path that only accepts forms, for browsers that reload the page.
pub(crate) async fn redirect_back(_: SignedInUser) -> Response {
    see_other(PAGE_PATH)
}

struct SettingsForm {
    current: GatewaySettings,
    fields: FormFields,
    errors: FieldErrors,
    notice: Option<&'static str>,
}

impl SettingsForm {
    async fn page(
        &self,
        state: &ConsoleState,
        user: &SignedInUser,
        status: StatusCode,
    ) -> Result<Response, PageError> {
        let Self { current, fields, errors, notice } = self;
        let vault = state.host.admin().vault_status(&user.actor()).await?;
        let mode = SignUpMode::parse(fields.get("signup")).unwrap_or(SignUpMode::Invited);
        let body = html! {
            div.title { h1 { "Settings" } }
            @if let Some(notice) = notice { p.told role="status" { (notice) } }
            (error_summary(errors))
            form method="post" action=(PAGE_PATH) {
                (version_field(&current.version()))
                div.columns {
                    section.card { (sign_up_fields(mode, state.host.can_mail(), fields, errors)) }
                    section.card {
                        h2 { "Second factor" }
                        (select(
                            ("second_factor_roles", "Who needs one"),
                            fields.get("second_factor_roles"),
                            &second_factor_choices(&current.second_factor_roles),
                            errors,
                        ))
                        p.help { "An authenticator app or a passkey. Until they have one, these \
                            people see their own account only. Accounts without a password that \
                            sign in through an identity provider need none here." }
                        h2 { "Name" }
                        (FormInput {
                            name: "name",
                            label: "Name of this gateway",
                            value: fields.get("name"),
                            help: Some("At the top of every page, and below every mail. \
                                Portunus, unless you choose."),
                            ..FormInput::default()
                        }.render(errors))
                    }
                }
                div.actions { button.button type="submit" { "Save" } }
            }
            section {
                h2 { "Alerts" }
                p { a href="/console/settings/alerts" { "Alerts about the gateway" }
                    ": lanes, credentials, parts and failed calls, of which administrators are told." }
            }
            section {
                h2 { "Agents" }
                p { a href="/console/managed-settings" { "Managed settings" }
                    " of the agents that people signed in, for the gateway and for teams." }
            }
            section { (vault_section(&vault)) }
        };
        let layout = Layout::signed_in("Settings", &user.account).with_nav(PAGE_PATH);
        Ok(page(status, &layout, &body))
    }
}

/// Choices of the roles that need a second factor. A set that only the API can make is kept.
fn second_factor_choices(current: &Option<String>) -> Vec<(&str, &str)> {
    let mut choices = vec![
        ("", "Nobody"),
        ("owner", "Owners"),
        ("owner,admin", "Owners and administrators"),
        ("owner,admin,member", "Everybody but viewers"),
        ("owner,admin,member,viewer", "Everybody"),
    ];
    if let Some(own) = current
        && !choices.iter().any(|(value, _)| value == own)
    {
        choices.push((own, own));
    }
    choices
}

fn sign_up_fields(
    mode: SignUpMode,
    can_mail: bool,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    html! {
        h2 { "Who may sign up" }
        @if mode == SignUpMode::Open && !can_mail {
            p.objection { "Sign-up is open, but without mail nobody can prove an address. Set "
                code { "[mail]" } " in the configuration." }
        }
        fieldset.plain {
            legend.unseen { "Who may sign up" }
            @for choice in SignUpMode::ALL {
                label.tick {
                    input type="radio" name="signup" value=(choice.as_str()) checked[choice == mode];
                    span { (choice.description()) }
                }
            }
        }
        @if let Some(why) = errors.get("signup") { p.objection { (why) } }
        (select(
            ("signup_role", "Role of accounts that sign up without an invitation"),
            fields.get("signup_role"),
            &[("member", "Member: own keys and usage"), ("viewer", "Viewer: looks, does not touch")],
            errors,
        ))
        (FormInput {
            name: "signup_cap_usd",
            label: "What they may spend, in USD",
            value: fields.get("signup_cap_usd"),
            input_mode: Some("decimal"),
            help: Some("All keys of such an account together; nothing is no cap. Accounts that are \
                there already stay as they are."),
            ..FormInput::default()
        }.render(errors))
    }
}

/// Vault keys, and the number of secrets sealed with each.
fn vault_section(vault: &VaultStatus) -> Markup {
    let in_use = |key: &String| vault.current.as_ref() == Some(key);
    let of = |key: &String| {
        let sealed = vault.sealed.get(key).copied().unwrap_or_default();
        u64::try_from(sealed).unwrap_or_default()
    };
    let old: u64 = vault.keys.iter().filter(|key| !in_use(key)).map(of).sum();
    html! {
        h2 { "Vault" }
        p.muted { "Credentials of providers are stored sealed. After you added a newer key to the "
            "configuration, re-seal all secrets, then remove the old key." }
        @if let Some(why) = &vault.trouble {
            p.objection role="alert" { (why) }
        }
        dl.facts {
            @for key in &vault.keys {
                div {
                    dt { code { (key) } @if in_use(key) { " · in use" } }
                    dd { (display::count(of(key))) " sealed with it" }
                }
            }
        }
        form method="post" action={ (PAGE_PATH) "/rekey" } {
            div.actions {
                button.button.quiet type="submit" disabled[old == 0] { "Re-seal everything" }
            }
            @if old == 0 { p.help { "Everything is sealed with the key in use." } }
        }
    }
}
