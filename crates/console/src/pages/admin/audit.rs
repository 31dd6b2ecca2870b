//! The audit log: who changed what, newest first, with the view in its address.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header;
use maud::{Markup, html};
use serde_json::Value;

use crate::address;
use crate::clerk::{Clerk, list, text};
use crate::csv::csv_line;
use crate::desk::Desk;
use crate::form::{Asked, Fields};
use crate::session::Signed;
use crate::shell::{Shell, good};
use crate::show;
use crate::trouble::Trouble;

const HERE: &str = "/console/audit";
const PER_PAGE: usize = 50;
/// How many changes of an export are read at once.
const BATCH: usize = 1_000;
const LONGEST: usize = 256;

/// The kinds of changes to choose from: what they are called in the log, and for people.
const KINDS: [(&str, &str); 10] = [
    ("", "Anything"),
    ("key", "Keys"),
    ("account", "Accounts"),
    ("session", "Sessions"),
    ("factor", "Second steps"),
    ("identity", "Identities"),
    ("provider", "Providers"),
    ("model", "Models and prices"),
    ("setting", "Settings"),
    ("vault", "Vault"),
];

/// What the address asks for.
struct View<'a> {
    actor: &'a str,
    action: &'a str,
    from: &'a str,
    to: &'a str,
}

impl<'a> View<'a> {
    fn of(asked: &'a Fields) -> Result<Self, Trouble> {
        Ok(Self {
            actor: asked.short("actor", LONGEST)?,
            action: asked.short("action", LONGEST)?,
            from: day(asked.short("from", LONGEST)?)?,
            to: day(asked.short("to", LONGEST)?)?,
        })
    }

    /// The view in an address of the console, from a place on.
    fn query(&self, before: &str) -> String {
        joined(&[
            ("actor", self.actor),
            ("action", self.action),
            ("from", self.from),
            ("to", self.to),
            ("before", before),
        ])
    }

    /// The view in the words of the API. A day is in it to its end.
    fn wishes(&self, limit: usize, before: &str) -> String {
        let since =
            if self.from.is_empty() { String::new() } else { format!("{}T00:00:00Z", self.from) };
        let until = self.to.parse::<jiff::civil::Date>().ok().and_then(|day| day.tomorrow().ok());
        let until = until.map_or_else(String::new, |day| format!("{day}T00:00:00Z"));
        let limit = limit.to_string();
        let wishes = joined(&[
            ("actor", self.actor),
            ("action", self.action),
            ("since", &since),
            ("until", &until),
            ("limit", &limit),
            ("before", before),
        ]);
        format!("/audit?{wishes}")
    }
}

/// A day as a browser's field for days writes it, or none.
fn day(text: &str) -> Result<&str, Trouble> {
    if text.is_empty() || text.parse::<jiff::civil::Date>().is_ok() {
        Ok(text)
    } else {
        Err(Trouble::Bad("A day is written like this: 2026-03-12."))
    }
}

/// The pairs that say something, as a query.
fn joined(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        pairs.map(|(name, value)| format!("{name}={}", address::value(value))).collect();
    pairs.join("&")
}

/// What ids are called.
async fn names(desk: &Desk) -> Result<HashMap<String, String>, Trouble> {
    let accounts = desk.store.accounts().await?.into_iter().map(|one| (one.id, one.username));
    let keys = desk.store.keys().await?.into_iter().map(|key| (key.id, key.name));
    Ok(accounts.chain(keys).collect())
}

fn named<'a>(names: &'a HashMap<String, String>, id: &'a str) -> &'a str {
    names.get(id).map_or(id, String::as_str)
}

/// `GET /console/audit`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let view = View::of(&asked)?;
    let clerk = Clerk::of(&desk, &signed);
    let before = asked.short("before", LONGEST)?;
    let told = clerk.get(&view.wishes(PER_PAGE, before)).await?.value;
    let names = names(&desk).await?;
    let accounts = desk.store.accounts().await?;
    let changes = list(&told, "data");
    let next = text(&told, "next");
    let now = desk.now();
    let body = html! {
        div.title {
            h1 { "Audit log" }
            div.actions {
                a.button.quiet href={ (HERE) ".csv?" (view.query("")) } { "Export CSV" }
            }
        }
        form.filters method="get" action=(HERE) role="search" {
            div.field {
                label for="actor" { "Who" }
                select #actor name="actor" {
                    option value="" { "Anybody" }
                    @for one in &accounts {
                        option value=(one.id) selected[one.id == view.actor] { (one.username) }
                    }
                    option value="command line" selected[view.actor == "command line"] { "Command line" }
                }
            }
            div.field {
                label for="action" { "What" }
                select #action name="action" {
                    @for (word, title) in KINDS {
                        option value=(word) selected[word == view.action] { (title) }
                    }
                    @if !KINDS.iter().any(|(word, _)| *word == view.action) {
                        option value=(view.action) selected { (view.action) }
                    }
                }
            }
            div.field { label for="from" { "From" } input #from name="from" type="date" value=(view.from); }
            div.field { label for="to" { "To" } input #to name="to" type="date" value=(view.to); }
            div.field.go { button.button type="submit" { "Show" } }
        }
        @if changes.is_empty() {
            div.empty { h2 { "Nothing was changed" } p { "Take a longer time or fewer filters." } }
        } @else {
            (table(changes, &names, &view, now))
        }
        nav.pager aria-label="Pages of changes" {
            @if !before.is_empty() { a rel="first" href={ (HERE) "?" (view.query("")) } { "← Newest" } }
            @if !next.is_empty() {
                a rel="next" href={ (HERE) "?" (view.query(next)) } { "Older changes →" }
            }
        }
    };
    Ok(good(&Shell::signed("Audit log", &signed.account).at(HERE), &body))
}

fn table(
    changes: &[Value],
    names: &HashMap<String, String>,
    view: &View<'_>,
    now: ledger::Micros,
) -> Markup {
    let only = |action: &str| {
        let View { actor, from, to, .. } = *view;
        format!("{HERE}?{}", View { actor, action, from, to }.query(""))
    };
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "When" }
                    th scope="col" { "Who" }
                    th scope="col" { "What" }
                    th scope="col" { "To what" }
                    th scope="col" { "More" }
                } }
                tbody {
                    @for change in changes {
                        @let (actor, subject) = (text(change, "actor"), text(change, "subject"));
                        @let action = text(change, "action");
                        tr {
                            td data-label="When" {
                                @match micros(text(change, "at")) {
                                    Some(at) => (show::when(at, now)),
                                    None => (text(change, "at")),
                                }
                            }
                            td data-label="Who" { bdi title=(actor) { (named(names, actor)) } }
                            td data-label="What" { a.id href=(only(action)) { (action) } }
                            td data-label="To what" {
                                bdi.wrap title=(subject) { (named(names, subject)) }
                            }
                            td data-label="More" { bdi.wrap { (text(change, "detail")) } }
                        }
                    }
                }
            }
        }
    }
}

fn micros(text: &str) -> Option<ledger::Micros> {
    text.parse::<jiff::Timestamp>().ok().map(|at| at.as_microsecond())
}

/// Where an export goes on.
enum Next {
    Head,
    Page(String),
    End,
}

/// `GET /console/audit.csv`: as long as it is, a batch at a time.
pub(crate) async fn csv(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    View::of(&asked)?;
    let clerk = Clerk::of(&desk, &signed);
    // Whoever may not look is told so by a page, not by a file that breaks off.
    clerk.get("/audit?limit=1").await?;
    let export = Export { clerk, asked, names: names(&desk).await?, from: Next::Head };
    let pieces = stream::try_unfold(export, |mut export| async move {
        let piece = export.piece().await?;
        Ok::<_, std::io::Error>(piece.map(|piece| (piece, export)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"audit.csv\""),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

struct Export {
    clerk: Clerk,
    asked: Fields,
    names: HashMap<String, String>,
    from: Next,
}

impl Export {
    async fn piece(&mut self) -> Result<Option<Bytes>, std::io::Error> {
        let before = match &self.from {
            Next::Head => {
                self.from = Next::Page(String::new());
                let head = ["at", "actor", "actor_id", "action", "subject", "subject_id", "detail"];
                return Ok(Some(Bytes::from(csv_line(head))));
            }
            Next::Page(before) => before.clone(),
            Next::End => return Ok(None),
        };
        // Broken off on purpose: a file that ends early must not look whole.
        let unread = || std::io::Error::other("the audit log could not be read");
        let view = View::of(&self.asked).map_err(|_| unread())?;
        let told = self.clerk.get(&view.wishes(BATCH, &before)).await;
        let told = told.map_err(|trouble| {
            tracing::error!("an export of the audit log broke off: {trouble:?}");
            unread()
        })?;
        self.from = match text(&told.value, "next") {
            "" => Next::End,
            next => Next::Page(next.to_owned()),
        };
        let lines = list(&told.value, "data").iter().map(|change| {
            let (actor, subject) = (text(change, "actor"), text(change, "subject"));
            csv_line([
                text(change, "at"),
                named(&self.names, actor),
                actor,
                text(change, "action"),
                named(&self.names, subject),
                subject,
                text(change, "detail"),
            ])
        });
        Ok(Some(Bytes::from(lines.collect::<String>())))
    }
}
