//! The account a user acts for: their own, or a team's. The choice is the query parameter `for`, so
//! links can be shared and no choice is stored. The session guard checks it for every page.

use axum::extract::Query;
use http::Uri;
use maud::{Markup, html};
use store::{Account, Team};

use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls::{TEAM_PARAMETER, with_team};

/// Paths of the pages whose content depends on the chosen team.
const SWITCHABLE_PATHS: [&str; 7] = [
    "/console",
    "/console/keys",
    "/console/activity",
    "/console/statements",
    "/console/alerts",
    "/console/playground",
    "/console/mcp",
];

/// The user a page is rendered for.
#[derive(Clone, Copy)]
pub(crate) struct PageViewer<'a> {
    pub(crate) account: &'a Account,
    /// Present only on pages where the chosen team matters.
    user: Option<&'a SignedInUser>,
}

impl<'a> From<&'a Account> for PageViewer<'a> {
    fn from(account: &'a Account) -> Self {
        Self { account, user: None }
    }
}

impl<'a> From<&'a SignedInUser> for PageViewer<'a> {
    fn from(user: &'a SignedInUser) -> Self {
        Self { account: &user.account, user: Some(user) }
    }
}

impl PageViewer<'_> {
    /// Returns the path of a console page, with the chosen team where the page depends on it.
    pub(crate) fn link_to(self, path: &str) -> String {
        match self.user {
            Some(user) if SWITCHABLE_PATHS.contains(&path) => user.path_for(path),
            Some(_) | None => path.to_owned(),
        }
    }

    /// Renders the links that choose a team. Empty for users without teams.
    pub(crate) fn team_switch(self, here: &str) -> Markup {
        let Some(user) = self.user else { return html! {} };
        let here = if SWITCHABLE_PATHS.contains(&here) { here } else { "/console" };
        let mut teams: Vec<&Team> =
            user.memberships.iter().map(|membership| &membership.team).collect();
        // An administrator may act for a team without belonging to it.
        teams.extend(user.team.iter().filter(|team| user.role_in(&team.id).is_none()));
        let chosen = |team: Option<&Team>| {
            (team.map(|team| &team.id) == user.team.as_ref().map(|team| &team.id)).then_some("true")
        };
        html! {
            @if !teams.is_empty() {
                nav.acting.choices aria-labelledby="acting-for" {
                    span #acting-for { "Acting for" }
                    div {
                        a href=(here) aria-current=[chosen(None)] { "You" }
                        @for team in teams {
                            a href=(with_team(here, &team.id)) aria-current=[chosen(Some(team))] {
                                bdi { (team.name) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the team named in the address, if the user may see it. A team the user may not see
/// counts as not found.
pub(crate) async fn team_from_query(
    state: &ConsoleState,
    user: &SignedInUser,
    uri: &Uri,
) -> Result<Option<Team>, PageError> {
    let query: Query<Vec<(String, String)>> = Query::try_from_uri(uri)
        .map_err(|_| PageError::BadRequest("The address contains invalid parameters."))?;
    let mut ids = query.0.into_iter().filter(|(name, _)| name == TEAM_PARAMETER).map(|(_, id)| id);
    let Some(id) = ids.next().filter(|id| !id.is_empty()) else { return Ok(None) };
    if ids.next().is_some() {
        return Err(PageError::BadRequest("The address names two teams to act for."));
    }
    user.find_team(state, &id).await.map(Some)
}
