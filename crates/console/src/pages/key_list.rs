//! The keys of a person, a team or everybody: searched, sorted, and in pages.

use std::collections::HashMap;
use std::sync::Arc;

use admin::{key_front, key_id_in};
use axum::extract::State;
use axum::response::Response;
use canon::{Micros, Money};
use maud::{Markup, html};
use store::{KeyOrder, KeyOwner, KeyPage, KeyRecord, KeyScope, KeySelection, KeyStanding};

use super::revoke_keys;
use crate::display;
use crate::form::QueryFields;
use crate::layout::{Layout, ok_page};
use crate::list_view::{ListView, ORDER, TEXT};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls::{self, TEAM_PARAMETER};
use crate::viewer_time::ViewerClock;

pub(crate) const PAGE_PATH: &str = "/console/keys";
const STANDING: &str = "state";
const PARAMETERS: [&str; 4] = [TEAM_PARAMETER, TEXT, STANDING, ORDER];

/// Orders that can be chosen: parameter value, label.
const ORDERS: [(&str, &str); 5] = [
    (KeyOrder::Standing.word(), "State"),
    (KeyOrder::Name.word(), "Name"),
    (KeyOrder::Spent.word(), "Spent"),
    (KeyOrder::LastUse.word(), "Last use"),
    (KeyOrder::Created.word(), "Newest"),
];

/// `GET /console/keys`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let clock = &user.clock(&state);
    let view = ListView { path: PAGE_PATH, query: &query, parameters: &PARAMETERS };
    let word = query.get(STANDING);
    let standing = (!word.is_empty()).then(|| {
        let unknown = PageError::BadRequest("The state of keys is not known.");
        KeyStanding::by_word(word).ok_or(unknown)
    });
    let text = view.text()?;
    // A whole key does not stay in the address and the links of the page.
    if let Some(id) = text.as_deref().and_then(key_id_in) {
        return Ok(redirect_to(&view.address(TEXT, id.trim_end_matches('…'))));
    }
    let selection = KeySelection {
        account_id: (!user.sees_all()).then(|| user.owner_id().to_owned()),
        text,
        standing: standing.transpose()?,
    };
    let order = KeyOrder::by_word(query.get(ORDER)).unwrap_or_default();
    let page = state.store.key_page(&selection, order, view.rows(), clock.now).await?;
    let total = page.total(selection.standing);
    if let Some(last) = view.last_page(total) {
        return Ok(redirect_to(&last));
    }
    let owners = KeyOwners::load(&state, &user, &page.keys).await?;
    let table = KeyTable { user: &user, owners: &owners, clock };
    let body = html! {
        div.title {
            h1 { "Keys" }
            @if user.may_create_keys() {
                a.button href=(user.path_for("/console/keys/new")) { "New key" }
            }
        }
        @if page.total(None) == 0 && selection.text.is_none() {
            (no_keys(&user))
        } @else {
            (view.search_form("Name, key or owner", &ORDERS, order.word()))
            (standings(&view, &page))
            @if page.keys.is_empty() {
                div.empty {
                    h2 { "No matching keys" }
                    p { "Another search or state shows more. " a href=(user.path_for(PAGE_PATH)) { "Show all keys" } }
                }
            } @else {
                (table.render_list(&view, order, &page.keys))
                (view.pager("Pages of keys", total))
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Keys", &user).with_nav(PAGE_PATH), &body))
}

fn standings(view: &ListView<'_>, page: &KeyPage) -> Markup {
    let parts = KeyStanding::ALL.into_iter().zip(page.counts);
    let parts = parts.map(|(one, count)| (one.word(), standing_label(one), count));
    view.parts("States of keys", STANDING, [("", "All", page.total(None))].into_iter().chain(parts))
}

/// The place of the keys while there are none.
pub(super) fn no_keys(user: &SignedInUser) -> Markup {
    html! {
        div.empty {
            h2 { "No keys yet" }
            p {
                "A key lets a program call the models of this gateway. "
                @if user.may_create_keys() {
                    a href=(user.path_for("/console/keys/new")) { "Make the first one" } "."
                } @else {
                    "You may look at keys here, but not make them."
                }
            }
        }
    }
}

const fn standing_label(standing: KeyStanding) -> &'static str {
    match standing {
        KeyStanding::Active => "Active",
        KeyStanding::NearCap => "Near its cap",
        KeyStanding::CapReached => "Cap reached",
        KeyStanding::Expired => "Expired",
        KeyStanding::Revoked => "Revoked",
    }
}

fn badge(standing: KeyStanding) -> Markup {
    let class = match standing {
        KeyStanding::Active => "badge good",
        KeyStanding::NearCap | KeyStanding::CapReached => "badge warn",
        KeyStanding::Expired | KeyStanding::Revoked => "badge off",
    };
    html! { span class=(class) { (standing_label(standing)) } }
}

/// Owners and creators of keys.
pub(super) struct KeyOwners {
    owners: HashMap<String, KeyOwner>,
    creators: HashMap<String, String>,
}

impl KeyOwners {
    /// Loads the names needed for these keys.
    pub(super) async fn load(
        state: &ConsoleState,
        user: &SignedInUser,
        keys: &[KeyRecord],
    ) -> Result<Self, PageError> {
        let mut owners = HashMap::new();
        let own = match &user.team {
            Some(team) => KeyOwner::Team(team.clone()),
            None => KeyOwner::Person(user.account.clone()),
        };
        owners.insert(own.id().to_owned(), own);
        let mut creators = HashMap::new();
        for key in keys {
            if !owners.contains_key(&key.account_id)
                && let Some(owner) = state.store.owner(&key.account_id).await?
            {
                owners.insert(key.account_id.clone(), owner);
            }
            // Others do not see who administers them.
            let other = key.created_by.as_ref().filter(|_| user.team.is_some() || user.sees_all());
            let other = other.filter(|maker| **maker != key.account_id);
            if let Some(maker) = other.filter(|maker| !creators.contains_key(*maker))
                && let Some(person) = state.store.account(maker).await?
            {
                creators.insert(maker.clone(), person.username);
            }
        }
        Ok(Self { owners, creators })
    }
}

/// Settings of a table of keys.
#[derive(Clone, Copy)]
pub(super) struct KeyTable<'a> {
    pub(super) user: &'a SignedInUser,
    pub(super) owners: &'a KeyOwners,
    pub(super) clock: &'a ViewerClock,
}

impl KeyTable<'_> {
    /// A table of these keys.
    pub(super) fn render(self, keys: &[KeyRecord]) -> Markup {
        let headings = html! {
            th scope="col" { "Name" }
            th scope="col" { "Spent" }
            th scope="col" { "Last use" }
            th scope="col" { "Expires" }
            th scope="col" { "State" }
        };
        self.table(&headings, keys, |_| html! {})
    }

    /// A table whose headings sort it, and in which several keys can be chosen and revoked.
    fn render_list(self, view: &ListView<'_>, order: KeyOrder, keys: &[KeyRecord]) -> Markup {
        let heading = |of: KeyOrder, label: &str| view.heading(of.word(), label, order == of);
        let headings = html! {
            (heading(KeyOrder::Name, "Name"))
            (heading(KeyOrder::Spent, "Spent"))
            (heading(KeyOrder::LastUse, "Last use"))
            th scope="col" { "Expires" }
            (heading(KeyOrder::Standing, "State"))
        };
        let is_choosable =
            |key: &KeyRecord| revoke_keys::can_be_chosen(key) && self.may_change(key);
        let choice = |key: &KeyRecord| {
            html! {
                @if is_choosable(key) {
                    input.choice type="checkbox" name=(revoke_keys::CHOSEN) value=(key.id)
                        form="revoke-keys" aria-label={ "Choose " (key.name) };
                }
            }
        };
        html! {
            (self.table(&headings, keys, choice))
            @if keys.iter().any(is_choosable) {
                form #revoke-keys method="post" action=(self.user.path_for(revoke_keys::PATH)) {
                    div.actions { button.button.quiet type="submit" { "Revoke the chosen keys" } }
                }
            }
        }
    }

    fn may_change(self, key: &KeyRecord) -> bool {
        let owner = self.owners.owners.get(&key.account_id);
        owner.is_some_and(|owner| self.user.may_change_key(key, owner))
    }

    fn table(
        self,
        headings: &Markup,
        keys: &[KeyRecord],
        choice: impl Fn(&KeyRecord) -> Markup,
    ) -> Markup {
        html! {
            div.sheet {
                table.list.keys {
                    thead { tr { (headings) th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for key in keys { (self.row(key, &choice(key))) } }
                }
            }
        }
    }

    fn row(self, key: &KeyRecord, choice: &Markup) -> Markup {
        let KeyTable { user, owners: KeyOwners { owners, creators }, clock } = self;
        let standing = KeyStanding::of(key, clock.now);
        let other = owners.get(&key.account_id).filter(|owner| owner.id() != user.owner_id());
        let maker = key.created_by.as_ref().filter(|maker| **maker != key.account_id);
        let maker = maker.and_then(|maker| creators.get(maker));
        html! {
            tr.off[standing >= KeyStanding::Expired] {
                th scope="row" {
                    span.name { (choice) bdi { (key.name) } }
                    code.token { (key_front(&key.id, key.scope)) "…" }
                    @match key.scope {
                        KeyScope::Call => {},
                        KeyScope::Admin => span.small { span.badge.warn { "admin" } },
                    }
                    @if let Some(other) = other { span.small.muted { "of " bdi { (other.name()) } } }
                    @if let Some(maker) = maker { span.small.muted { "made by " bdi { (maker) } } }
                    @if !key.models.is_empty() {
                        span.small.muted title=(key.models.join(", ")) {
                            (display::plural(key.models.len(), "model", "models")) " only"
                        }
                    }
                }
                td.spent data-label="Spent" {
                    @match key.scope {
                        KeyScope::Call => (spent_of_cap(key.spent, key.cap)),
                        KeyScope::Admin => span.muted { "makes no calls" },
                    }
                }
                td data-label="Last use" { (time_or_never(key.last_used, clock)) }
                td data-label="Expires" { (time_or_never(key.expires, clock)) }
                td data-label="State" { (badge(standing)) }
                td.act {
                    @if standing != KeyStanding::Revoked && self.may_change(key) {
                        @let here = format!("/console/keys/{}", urls::escape_value(&key.id));
                        a href=(user.path_for(&format!("{here}/edit"))) {
                            "Edit" span.unseen { " " (key.name) }
                        }
                        a.danger href=(user.path_for(&format!("{here}/revoke"))) {
                            "Revoke" span.unseen { " " (key.name) }
                        }
                    }
                }
            }
        }
    }
}

/// A time relative to now, or that there is none.
pub(super) fn time_or_never(at: Option<Micros>, clock: &ViewerClock) -> Markup {
    match at {
        Some(at) => clock.relative_time(at),
        None => html! { span.muted { "never" } },
    }
}

/// Renders the spend in relation to the cap.
pub(super) fn spent_of_cap(spent: Money, cap: Option<Money>) -> Markup {
    let Some(cap) = cap else {
        return html! { (display::money(spent)) span.muted { " · unlimited" } };
    };
    // A thousandth is precise enough for a bar.
    let part = i128::from(spent.as_nanos().max(0)) * 1_000;
    let part = (part / i128::from(cap.as_nanos().max(1))).min(1_000);
    html! {
        (display::money(spent)) span.muted { " of " (display::money(cap)) }
        progress.full[part >= 1_000].near[part >= 800] value=(part) max="1000" {
            (part / 10) "%"
        }
    }
}
