//! The question that both ways of an agent's sign-in ask: who asks, for whom, under which name.

use admin::{AskingAgent, SignInApproval, TeamAction};
use maud::{Markup, html};
use store::Team;

use crate::form::{FieldErrors, FormFields, FormInput};
use crate::page_error::PageError;
use crate::session::SignedInUser;

/// Longest text of the fields of this form.
const MAX_FIELD_BYTES: usize = 200;

/// Renders who asks.
pub(super) fn asking_view(asking: &AskingAgent) -> Markup {
    html! {
        dl.facts {
            div { dt { "Program" } dd { bdi { (asking.label()) } } }
            @if !asking.agent.is_empty() {
                div { dt { "It calls itself" } dd { bdi { (asking.agent) } } }
            }
            @if !asking.address.is_empty() {
                div { dt { "Asks from" } dd { bdi { (asking.address) } } }
            }
        }
    }
}

/// Teams the user may sign in for.
fn teams(user: &SignedInUser) -> Vec<&Team> {
    let teams = user.memberships.iter().map(|membership| &membership.team);
    teams.filter(|team| user.may_in(team, TeamAction::CreateKeys)).collect()
}

/// Returns true if the user may sign in for anybody.
pub(super) fn may_approve(user: &SignedInUser) -> bool {
    user.may_create_keys() || !teams(user).is_empty()
}

/// Renders the fields of the answer and its two buttons.
pub(super) fn answer_fields(user: &SignedInUser, name: &str, fields: &FormFields) -> Markup {
    let teams = teams(user);
    let chosen = fields.get("owner");
    let name = if fields.contains("name") { fields.get("name") } else { name };
    html! {
        @if !teams.is_empty() {
            div.field {
                label for="owner" { "Calls are paid by" }
                select #owner name="owner" {
                    @if user.may_create_keys() {
                        option value=(user.account.id) { "your account, " (user.account.username) }
                    }
                    @for team in teams {
                        option value=(team.id) selected[team.id == chosen] { "team " (team.name) }
                    }
                }
            }
        } @else {
            input type="hidden" name="owner" value=(user.account.id);
        }
        (FormInput {
            name: "name",
            label: "Name of its key",
            value: name,
            required: true,
            help: Some("Shown in your list of keys, where you can end this sign-in."),
            ..FormInput::default()
        }.render(&FieldErrors::default()))
        div.actions {
            button.button type="submit" name="answer" value="approve" { "Sign it in" }
            button.button.quiet type="submit" name="answer" value="deny" { "Refuse" }
        }
    }
}

/// Returns the answer of the form: the approval, or `None` if the person refused.
pub(super) fn read_answer(fields: &FormFields) -> Result<Option<SignInApproval>, PageError> {
    match fields.get("answer") {
        "approve" => Ok(Some(SignInApproval {
            owner_id: fields.get_single("owner", MAX_FIELD_BYTES)?.to_owned(),
            name: fields.get_single("name", MAX_FIELD_BYTES)?.to_owned(),
        })),
        "deny" => Ok(None),
        _ => Err(PageError::BadRequest("Choose one of the two answers.")),
    }
}
