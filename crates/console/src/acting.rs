//! Whom somebody acts for: themselves, or a team. The choice stands in the address (`for`), so that
//! links can be shared and nothing is remembered; the guard of every page checks it.

use axum::extract::Query;
use http::Uri;
use maud::{Markup, html};
use store::{Account, Team};

use crate::address;
use crate::desk::Desk;
use crate::session::Signed;
use crate::trouble::Trouble;

/// The name of the choice in an address.
pub(crate) const FOR: &str = "for";
/// The places that show what belongs to whomever one acts for.
const PLACES: [&str; 4] = ["/console", "/console/usage", "/console/calls", "/console/playground"];

/// Whose page it is.
#[derive(Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) account: &'a Account,
    /// With the teams they may act for, on pages where that makes a difference.
    signed: Option<&'a Signed>,
}

impl<'a> From<&'a Account> for Who<'a> {
    fn from(account: &'a Account) -> Self {
        Self { account, signed: None }
    }
}

impl<'a> From<&'a Signed> for Who<'a> {
    fn from(signed: &'a Signed) -> Self {
        Self { account: &signed.account, signed: Some(signed) }
    }
}

impl Who<'_> {
    /// The address of a place of the console, for whomever one acts for.
    pub(crate) fn place(self, path: &str) -> String {
        match self.signed {
            Some(signed) if PLACES.contains(&path) => signed.at(path),
            Some(_) | None => path.to_owned(),
        }
    }

    /// The switch from one to the other, for those who have a choice.
    pub(crate) fn switch(self, here: &str) -> Markup {
        let Some(signed) = self.signed else { return html! {} };
        let here = if PLACES.contains(&here) { here } else { "/console" };
        let mut teams: Vec<&Team> = signed.seats.iter().map(|seat| &seat.team).collect();
        // An administrator may act for a team without belonging to it.
        teams.extend(signed.team.iter().filter(|team| signed.seat_in(&team.id).is_none()));
        let chosen = |team: Option<&Team>| {
            (team.map(|team| &team.id) == signed.team.as_ref().map(|team| &team.id))
                .then_some("true")
        };
        html! {
            @if !teams.is_empty() {
                nav.acting.choices aria-labelledby="acting-for" {
                    span #acting-for { "Acting for" }
                    div {
                        a href=(here) aria-current=[chosen(None)] { "You" }
                        @for team in teams {
                            a href=(with(here, &team.id)) aria-current=[chosen(Some(team))] {
                                bdi { (team.name) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A path, for a team.
pub(crate) fn with(path: &str, team_id: &str) -> String {
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{FOR}={}", address::value(team_id))
}

/// The team an address names, if whoever asks may see it. To others there is none.
pub(crate) async fn chosen(
    desk: &Desk,
    signed: &Signed,
    uri: &Uri,
) -> Result<Option<Team>, Trouble> {
    let asked: Query<Vec<(String, String)>> = Query::try_from_uri(uri)
        .map_err(|_| Trouble::Bad("The address holds parameters that cannot be read."))?;
    let mut ids = asked.0.into_iter().filter(|(name, _)| name == FOR).map(|(_, id)| id);
    let Some(id) = ids.next().filter(|id| !id.is_empty()) else { return Ok(None) };
    if ids.next().is_some() {
        return Err(Trouble::Bad("The address names two teams to act for."));
    }
    signed.find_team(desk, &id).await.map(Some)
}
