//! The places of the console, in the order they are listed. A new page adds a line.

use maud::{Markup, html};
use store::AccountRole;

use crate::acting::Who;

/// A place of the console.
struct Place {
    path: &'static str,
    title: &'static str,
    /// Who finds it in the list. What a page shows and does is decided by the page.
    seen_by: &'static [AccountRole],
}

const EVERYONE: &[AccountRole] = &AccountRole::ALL;
const SPENDERS: &[AccountRole] = &[AccountRole::Owner, AccountRole::Admin, AccountRole::Member];
const ADMINISTRATORS: &[AccountRole] = &[AccountRole::Owner, AccountRole::Admin];

const PLACES: [Place; 12] = [
    Place { path: "/console", title: "Overview", seen_by: EVERYONE },
    Place { path: "/console/usage", title: "Usage", seen_by: EVERYONE },
    Place { path: "/console/calls", title: "Calls", seen_by: EVERYONE },
    Place { path: "/console/playground", title: "Playground", seen_by: SPENDERS },
    Place { path: "/console/teams", title: "Teams", seen_by: EVERYONE },
    Place { path: "/console/people", title: "People", seen_by: ADMINISTRATORS },
    Place { path: "/console/providers", title: "Providers", seen_by: ADMINISTRATORS },
    Place { path: "/console/models", title: "Models & prices", seen_by: ADMINISTRATORS },
    Place { path: "/console/settings", title: "Settings", seen_by: ADMINISTRATORS },
    Place { path: "/console/audit", title: "Audit log", seen_by: ADMINISTRATORS },
    Place { path: "/console/system", title: "System", seen_by: ADMINISTRATORS },
    Place { path: "/console/account", title: "Your account", seen_by: EVERYONE },
];

/// The list for somebody who is at that place.
pub(crate) fn bar(who: Who<'_>, here: &str) -> Markup {
    let role = who.account.role;
    html! {
        nav.places aria-label="Console" {
            ul {
                @for place in PLACES.iter().filter(|place| place.seen_by.contains(&role)) {
                    li {
                        a href=(who.place(place.path))
                            aria-current=[(place.path == here).then_some("page")] {
                            (place.title)
                        }
                    }
                }
            }
        }
    }
}
