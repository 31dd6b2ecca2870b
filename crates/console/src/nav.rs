//! Navigation of the console, in display order.

use maud::{Markup, html};
use store::AccountRole;

use crate::acting_for::PageViewer;

/// One entry of the navigation.
struct NavEntry {
    path: &'static str,
    title: &'static str,
    /// Roles that see the entry. The page itself checks the rights.
    visible_to: &'static [AccountRole],
}

const EVERYONE: &[AccountRole] = &AccountRole::ALL;
const SPENDERS: &[AccountRole] = &[AccountRole::Owner, AccountRole::Admin, AccountRole::Member];
const ADMINISTRATORS: &[AccountRole] = &[AccountRole::Owner, AccountRole::Admin];

const NAV_ENTRIES: [NavEntry; 17] = [
    NavEntry { path: "/console", title: "Overview", visible_to: EVERYONE },
    NavEntry { path: "/console/keys", title: "Keys", visible_to: EVERYONE },
    NavEntry { path: "/console/activity", title: "Activity", visible_to: EVERYONE },
    NavEntry { path: "/console/statements", title: "Statements", visible_to: EVERYONE },
    NavEntry { path: "/console/alerts", title: "Alerts", visible_to: EVERYONE },
    NavEntry { path: "/console/sessions", title: "Sessions", visible_to: EVERYONE },
    NavEntry { path: "/console/agents", title: "Agents", visible_to: EVERYONE },
    NavEntry { path: "/console/mcp", title: "MCP servers", visible_to: EVERYONE },
    NavEntry { path: "/console/playground", title: "Playground", visible_to: SPENDERS },
    NavEntry { path: "/console/teams", title: "Teams", visible_to: EVERYONE },
    NavEntry { path: "/console/people", title: "People", visible_to: ADMINISTRATORS },
    NavEntry { path: "/console/providers", title: "Providers", visible_to: ADMINISTRATORS },
    NavEntry { path: "/console/models", title: "Models & prices", visible_to: ADMINISTRATORS },
    NavEntry { path: "/console/settings", title: "Settings", visible_to: ADMINISTRATORS },
    NavEntry { path: "/console/audit", title: "Audit log", visible_to: ADMINISTRATORS },
    NavEntry { path: "/console/system", title: "System", visible_to: ADMINISTRATORS },
    NavEntry { path: "/console/account", title: "Your account", visible_to: EVERYONE },
];

/// Returns true for a page of administration and those below it.
pub(crate) fn is_administration(path: &str) -> bool {
    NAV_ENTRIES.iter().filter(|entry| entry.visible_to == ADMINISTRATORS).any(|entry| {
        path.strip_prefix(entry.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Renders the navigation with the current page marked.
pub(crate) fn render_nav(viewer: PageViewer<'_>, here: &str) -> Markup {
    let role = viewer.account.role;
    let title = NAV_ENTRIES.iter().find(|entry| entry.path == here).map(|entry| entry.title);
    html! {
        nav.places aria-label="Console" {
            // Opens the list on a small screen, without a script. A wide screen always shows the list.
            input.unseen #places type="checkbox";
            label for="places" { "Menu" @if let Some(title) = title { span.muted { " · " (title) } } }
            ul {
                @for entry in NAV_ENTRIES.iter().filter(|entry| entry.visible_to.contains(&role)) {
                    li {
                        a href=(viewer.link_to(entry.path))
                            aria-current=[(entry.path == here).then_some("page")] {
                            (entry.title)
                        }
                    }
                }
            }
        }
    }
}
