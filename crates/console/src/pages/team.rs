//! One team: who belongs to it, its keys, and what it may spend.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use canon::Money;
use http::StatusCode;
use ledger::BudgetPeriod;
use maud::{Markup, html};
use store::{AccountTerms, BudgetTerms, RateLimits, StoreError, Team};

use super::key_form::{self, FAR_TOO_LONG};
use super::overview::{KeyState, Whose, key_table, spent};
use super::{members, teams};
use crate::desk::Desk;
use crate::fields::another_look;
use crate::form::{Fields, Input, Wrongs};
use crate::session::Signed;
use crate::shell::{Shell, page, sent_to};
use crate::show;
use crate::trouble::Trouble;
use admin::TeamDeed;
use admin::names;

pub(super) const TAKEN: &str = "This name is taken by a team or somebody's account.";

/// Where the page of a team is.
pub(super) fn address(team: &Team) -> String {
    format!("{}/{}", teams::HERE, crate::address::value(&team.id))
}

/// Whether a team is open.
pub(super) fn state(team: &Team) -> Markup {
    html! {
        @if team.disabled { span.badge.off { "Closed" } }
        @else { span.badge.good { "Open" } }
    }
}

/// What a team is called and may spend.
pub(super) struct Terms {
    pub(super) name: String,
    money: AccountTerms,
    limits: RateLimits,
}

impl Terms {
    /// Reads the form; what is wrong with it goes to `wrongs`.
    pub(super) fn read(fields: &Fields, wrongs: &mut Wrongs) -> Result<Self, Trouble> {
        let text = |field| fields.one(field, FAR_TOO_LONG);
        let name = text("name")?.to_owned();
        if let Some(why) = names::team_objection(&name) {
            wrongs.add("name", why);
        }
        let cap = text("cap")?;
        let cap = key_form::cap(cap, cap.is_empty());
        let budget = key_form::budget(text("budget")?, text("budget_period")?);
        let limit = |field| text(field).map(key_form::limit);
        let (rpm, tpm, concurrency) = (limit("rpm")?, limit("tpm")?, limit("concurrency")?);
        Ok(Self {
            name,
            money: AccountTerms {
                cap: taken("cap", cap, wrongs),
                budget: taken("budget", budget, wrongs),
            },
            limits: RateLimits {
                rpm: taken("rpm", rpm, wrongs),
                tpm: taken("tpm", tpm, wrongs),
                concurrency: taken("concurrency", concurrency, wrongs),
            },
        })
    }

    /// The terms a team has.
    async fn of(desk: &Desk, team: &Team) -> Result<Self, Trouble> {
        let money = desk.store.account_terms().await?;
        let limits = desk.store.account_limits().await?;
        let own = |id: &String| *id == team.id;
        Ok(Self {
            name: team.name.clone(),
            money: money.into_iter().find(|(id, _)| own(id)).map(|(_, t)| t).unwrap_or_default(),
            limits: limits.into_iter().find(|(id, _)| own(id)).map(|(_, l)| l).unwrap_or_default(),
        })
    }

    /// Gives a team what of these terms is new to it.
    pub(super) async fn set(
        &self,
        desk: &Desk,
        signed: &Signed,
        team: &Team,
    ) -> Result<(), Trouble> {
        let before = Self::of(desk, team).await?;
        let mut what = Vec::new();
        if self.money != before.money {
            desk.store.set_account_terms(&team.id, self.money).await?;
            what.push(self.money.to_string());
        }
        if self.limits != before.limits {
            desk.store.set_account_limits(&team.id, self.limits).await?;
            what.push("limits".to_owned());
        }
        if !what.is_empty() {
            desk.note(&signed.account.id, "team.terms", &team.id, &what.join(", ")).await;
        }
        Ok(())
    }

    fn fields(&self) -> Fields {
        let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
        let AccountTerms { cap, budget } = self.money;
        let RateLimits { rpm, tpm, concurrency } = self.limits;
        Fields::of(vec![
            ("name", self.name.clone()),
            ("cap", cap.map_or_else(String::new, key_form::plain)),
            ("budget", budget.map_or_else(String::new, |b| key_form::plain(b.limit))),
            ("budget_period", budget.map_or("", |b| b.period.word()).to_owned()),
            ("rpm", number(rpm)),
            ("tpm", number(tpm)),
            ("concurrency", number(concurrency)),
        ])
    }
}

fn taken<T>(
    field: &'static str,
    read: Result<Option<T>, &'static str>,
    wrongs: &mut Wrongs,
) -> Option<T> {
    read.unwrap_or_else(|why| {
        wrongs.add(field, why);
        None
    })
}

/// The fields of a team's terms.
pub(super) fn terms_form(fields: &Fields, wrongs: &Wrongs) -> Markup {
    html! {
        (Input {
            name: "name",
            label: "Name",
            value: fields.get("name"),
            required: true,
            ..Input::default()
        }.show(wrongs))
        (Input {
            name: "cap",
            label: "Spending cap in US dollars",
            value: fields.get("cap"),
            mode: Some("decimal"),
            help: Some("All keys of the team together never pass it. Leave empty for no cap."),
            ..Input::default()
        }.show(wrongs))
        (key_form::pace(fields, wrongs))
    }
}

/// The team of an address, if somebody may see it.
pub(super) async fn find(
    desk: &Desk,
    signed: &Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Team, Trouble> {
    let Path(id) = id.map_err(|_| Trouble::NotFound)?;
    signed.find_team(desk, &id).await
}

/// `GET /console/teams/{id}`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let team = find(&desk, &signed, id).await?;
    let (fields, wrongs) = (Fields::default(), Wrongs::default());
    whole(&desk, signed, team, StatusCode::OK, &fields, &wrongs).await
}

/// `POST /console/teams/{id}`: what it is called and may spend.
pub(crate) async fn change(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
    fields: Fields,
) -> Result<Response, Trouble> {
    let team = find(&desk, &signed, id).await?;
    if !signed.may_in(&team, TeamDeed::Terms) {
        return Err(Trouble::Forbidden);
    }
    let mut wrongs = Wrongs::default();
    let terms = Terms::read(&fields, &mut wrongs)?;
    if wrongs.is_empty() && terms.name != team.name {
        match desk.store.rename_account(&team.id, &terms.name, None, desk.now()).await {
            Ok(_) => desk.note(&signed.account.id, "team.rename", &team.id, &terms.name).await,
            Err(StoreError::Conflict(_)) => wrongs.add("name", TAKEN),
            Err(error) => return Err(error.into()),
        }
    }
    if !wrongs.is_empty() {
        return whole(&desk, signed, team, StatusCode::BAD_REQUEST, &fields, &wrongs).await;
    }
    terms.set(&desk, &signed, &team).await?;
    Ok(sent_to(&address(&team)))
}

/// `POST /console/teams/{id}/close`
pub(crate) async fn close(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    set_disabled(&desk, &signed, id, true).await
}

/// `POST /console/teams/{id}/open`
pub(crate) async fn open(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    set_disabled(&desk, &signed, id, false).await
}

async fn set_disabled(
    desk: &Desk,
    signed: &Signed,
    id: Result<Path<String>, PathRejection>,
    disabled: bool,
) -> Result<Response, Trouble> {
    let team = find(desk, signed, id).await?;
    if !signed.may_in(&team, TeamDeed::Terms) {
        return Err(Trouble::Forbidden);
    }
    if team.disabled != disabled {
        desk.store.set_disabled(&team.id, disabled, desk.now()).await?;
        let action = if disabled { "team.disable" } else { "team.enable" };
        desk.note(&signed.account.id, action, &team.id, &team.name).await;
        // Calls learn of it at once, and not only when the nodes next look.
        for key in desk.store.keys_of(&team.id).await? {
            desk.host.accounts().key_changed(key);
        }
    }
    Ok(sent_to(&address(&team)))
}

/// The whole page, with what was wrong with a form of it.
pub(super) async fn whole(
    desk: &Desk,
    mut signed: Signed,
    team: Team,
    status: StatusCode,
    fields: &Fields,
    wrongs: &Wrongs,
) -> Result<Response, Trouble> {
    // The page of a team acts for it, whatever its address says besides.
    signed.team = Some(team.clone());
    let now = desk.now();
    let all = desk.store.members(&team.id).await?;
    let mut keys = desk.store.keys_of(&team.id).await?;
    keys.sort_by_key(|key| (KeyState::of(key, now), std::cmp::Reverse(key.created)));
    let terms = Terms::of(desk, &team).await?;
    let (total, _) = desk.store.account_spending(&team.id).await?;
    let lately = match terms.money.budget {
        Some(budget) => {
            let (_, sum) = desk.store.account_spent_in(&team.id, budget.period, now).await?;
            Some((sum, budget))
        }
        None => None,
    };
    let whose = Whose::of(desk, &signed).await?;
    let own = terms.fields();
    let filled = if fields.ticked("cap") { fields } else { &own };
    let body = html! {
        p.crumbs { a href=(teams::HERE) { "Teams" } " / " bdi { (team.name) } }
        div.title {
            h1 { bdi { (team.name) } " " (state(&team)) }
            div.actions {
                a.button.quiet href=(signed.at("/console/usage")) { "Usage" }
                a.button.quiet href=(signed.at("/console/calls")) { "Calls" }
                @if signed.may_make_keys() {
                    a.button href=(signed.at("/console/keys/new")) { "New key" }
                }
            }
        }
        (money(total, terms.money.cap, lately, terms.limits))
        section {
            h2 { "Members" }
            (members::table(&team, &all, &keys, &signed, now))
        }
        section {
            h2 { "Keys" }
            @if keys.is_empty() {
                div.empty { h3 { "No keys yet" } p { "Keys made for the team are listed here." } }
            } @else {
                (key_table(&keys, &signed, &whose, now, 1))
            }
        }
        div.columns {
            @if signed.may_in(&team, TeamDeed::Members) {
                section.card { (members::add_form(&team, &signed, fields, wrongs)) }
            }
            @if signed.may_in(&team, TeamDeed::Terms) {
                section.card {
                    h2 { "Name, cap and limits" }
                    @if fields.ticked("cap") { (another_look(wrongs)) }
                    form method="post" action=(address(&team)) {
                        (terms_form(filled, wrongs))
                        button.button type="submit" { "Save" }
                    }
                    (door(&team))
                }
            }
        }
    };
    Ok(page(status, &Shell::signed(&team.name, &signed).at(teams::HERE), &body))
}

fn money(
    total: Money,
    cap: Option<Money>,
    lately: Option<(Money, BudgetTerms)>,
    limits: RateLimits,
) -> Markup {
    let RateLimits { rpm, tpm, concurrency } = limits;
    let limits =
        [(rpm, "Requests per minute"), (tpm, "Tokens per minute"), (concurrency, "Calls at once")];
    html! {
        dl.figures {
            div { dt { "Spent in all" } dd.spent { (spent(total, cap)) } }
            @if let Some((sum, BudgetTerms { limit, period })) = lately {
                div { dt { (lately_spent(period)) } dd.spent { (spent(sum, Some(limit))) } }
            }
            @for (limit, title) in limits {
                @if let Some(limit) = limit {
                    div { dt { (title) } dd { (show::count(u64::from(limit))) } }
                }
            }
        }
    }
}

const fn lately_spent(period: BudgetPeriod) -> &'static str {
    match period {
        BudgetPeriod::Day => "Spent today",
        BudgetPeriod::Week => "Spent this week",
        BudgetPeriod::Month => "Spent this month",
    }
}

/// What closes a team, or opens it again.
fn door(team: &Team) -> Markup {
    html! {
        @if team.disabled {
            form method="post" action={ (address(team)) "/open" } {
                p.help { "The team is closed: its keys do not work." }
                button.button.quiet type="submit" { "Open the team again" }
            }
        } @else {
            form method="post" action={ (address(team)) "/close" } {
                p.help { "Closing the team stops its keys at once, running streams included. What it "
                    "spent stays on the books, and it can be opened again." }
                button.button.harm type="submit" { "Close the team" }
            }
        }
    }
}
