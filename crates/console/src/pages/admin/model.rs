//! One model: where it is served and what it costs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::models::{HERE, lane_names, page_of};
use super::providers::source;
use super::{TAG, area, price_form, select, tag_field, warned};
use crate::address;
use crate::clerk::{Clerk, Told, list, text};
use crate::desk::Desk;
use crate::fields::another_look;
use crate::form::{Asked, Fields, Input, Wrongs};
use crate::session::Signed;
use crate::shell::{Shell, page, sent_to};
use crate::trouble::Trouble;

const LONGEST: usize = 512;
const KINDS: [(&str, &str); 4] = [
    ("", "As the directory has it, or chat"),
    ("chat", "Chat"),
    ("image", "Images"),
    ("embedding", "Embeddings"),
];

/// The address of a model in the API.
fn at(id: &str) -> String {
    format!("/models/{}", address::path(id))
}

/// The model as it is now. Where the API has no such address yet, out of the list of all.
async fn now(clerk: &Clerk, id: &str) -> Result<Told, Trouble> {
    if id.is_empty() {
        return Err(Trouble::NotFound);
    }
    clerk.get(&at(id)).await
}

/// What is stored of a model, if anything is.
fn settings(model: &Value) -> Option<Map<String, Value>> {
    model.get("settings").and_then(Value::as_object).cloned()
}

/// What a model costs now, in writing.
fn prices_now(desk: &Desk, id: &str) -> Value {
    let written = |catalog: &catalog::Catalog| {
        catalog.get(id).map(|model| price_form::written(&model.prices)).unwrap_or_default()
    };
    Value::Object(desk.catalog(written))
}

/// `GET /console/models/edit?id=…`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let clerk = Clerk::of(&desk, &signed);
    let model = now(&clerk, asked.short("id", LONGEST)?).await?;
    let fields = filled(&desk, &model.value);
    Ok(form(&signed, StatusCode::OK, Some(&model), &fields, &Wrongs::default()))
}

/// A model as fields: what is stored of it, or else how it is.
fn filled(desk: &Desk, model: &Value) -> Fields {
    let id = text(model, "id");
    let stored = settings(model).map(Value::Object).unwrap_or_default();
    let price = stored.get("price").cloned().unwrap_or_else(|| prices_now(desk, id));
    let lanes = if stored.get("lanes").is_some() { &stored } else { model };
    let lanes: Vec<String> = list(lanes, "lanes").iter().map(lane_line).collect();
    let mut fields = price_form::filled(&price);
    fields.push(("id", id.to_owned()));
    fields.push(("kind", text(&stored, "kind").to_owned()));
    fields.push(("lanes", lanes.join("\n")));
    Fields::of(fields)
}

/// A lane as a line: its name, and behind it its weight, where it has one.
fn lane_line(lane: &Value) -> String {
    match lane {
        Value::String(name) => name.clone(),
        lane => match lane.get("weight").and_then(Value::as_u64) {
            Some(weight) if weight != 1 => format!("{} {weight}", text(lane, "lane")),
            _ => text(lane, "lane").to_owned(),
        },
    }
}

/// The lanes of a form. What was said of one beyond its weight stays with it.
fn lanes(fields: &Fields, before: &[Value]) -> Result<Vec<Value>, Wrongs> {
    let lines = fields.get("lanes").lines().map(str::trim).filter(|line| !line.is_empty());
    let read = lines.map(|line| {
        let (name, weight) = match line.rsplit_once(char::is_whitespace) {
            Some((name, weight)) => match weight.parse::<u32>() {
                Ok(weight) => (name.trim(), Some(weight)),
                Err(_) => {
                    let mut wrongs = Wrongs::default();
                    wrongs.add(
                        "lanes",
                        format!("`{line}`: write provider/model, and a weight behind it."),
                    );
                    return Err(wrongs);
                }
            },
            None => (line, None),
        };
        let known =
            before.iter().find(|lane| text(lane, "lane") == name).and_then(Value::as_object);
        let mut lane = known.cloned().unwrap_or_default();
        lane.remove("weight");
        lane.insert("lane".to_owned(), Value::from(name));
        if let Some(weight) = weight {
            lane.insert("weight".to_owned(), Value::from(weight));
        }
        Ok(if lane.len() == 1 { Value::from(name) } else { Value::Object(lane) })
    });
    read.collect()
}

/// The settings a form stands for: those that were there, with what it says put in their place.
/// Prices that are the model's anyway are not written down, so that they follow the directory.
fn body(
    desk: &Desk,
    id: &str,
    before: Map<String, Value>,
    fields: &Fields,
) -> Result<Value, Wrongs> {
    let mut settings = before;
    let own = Value::Object(settings.clone());
    let lanes = lanes(fields, list(&own, "lanes"))?;
    settings.insert("lanes".to_owned(), Value::Array(lanes));
    let price = price_form::body(fields)?.map(Value::Object);
    let follows = own.get("price").is_none() && price == Some(prices_now(desk, id));
    match price.filter(|_| !follows) {
        Some(price) => drop(settings.insert("price".to_owned(), price)),
        None => drop(settings.remove("price")),
    }
    match fields.get("kind") {
        "" => drop(settings.remove("kind")),
        kind => drop(settings.insert("kind".to_owned(), Value::from(kind))),
    }
    Ok(Value::Object(settings))
}

/// The fields an objection of the API can be beside.
fn names() -> Vec<&'static str> {
    price_form::names().into_iter().chain(["id", "kind", "lanes"]).collect()
}

/// `POST /console/models/edit`
pub(crate) async fn change(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    let clerk = Clerk::of(&desk, &signed);
    let id = fields.one("id", LONGEST)?;
    let model = now(&clerk, id).await?;
    let (status, wrongs) =
        match body(&desk, id, settings(&model.value).unwrap_or_default(), &fields) {
            Ok(body) => match clerk.change(Method::PUT, &at(id), fields.get(TAG), &body).await? {
                Ok(saved) => {
                    return Ok(warned(&signed, HERE, &saved.value, "/console/models?told=saved"));
                }
                Err(refusal) => (refusal.status, refusal.beside(&names())),
            },
            Err(wrongs) => (StatusCode::BAD_REQUEST, wrongs),
        };
    Ok(form(&signed, status, Some(&model), &fields, &wrongs))
}

/// `GET /console/models/new`
pub(crate) async fn ask(
    signed: Signed,
    State(desk): State<Arc<Desk>>,
) -> Result<Response, Trouble> {
    // Whoever may not add one is told before they fill a form.
    Clerk::of(&desk, &signed).get("/settings").await?;
    Ok(form(&signed, StatusCode::OK, None, &Fields::default(), &Wrongs::default()))
}

/// `POST /console/models`
pub(crate) async fn add(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    let clerk = Clerk::of(&desk, &signed);
    let id = fields.one("id", LONGEST)?;
    let told = clerk.get("/models").await?.value;
    let mut wrongs = Wrongs::default();
    if id.is_empty() {
        wrongs.add("id", "What callers ask for, please.");
    } else if list(&told, "data").iter().any(|one| text(one, "id") == id) {
        wrongs.add("id", "There is a model of this id already.");
    }
    let mut status = StatusCode::BAD_REQUEST;
    if wrongs.is_empty() {
        match body(&desk, id, Map::new(), &fields) {
            Ok(body) => match clerk.change(Method::PUT, &at(id), "", &body).await? {
                Ok(saved) => return Ok(warned(&signed, HERE, &saved.value, &page_of(id))),
                Err(refusal) => (status, wrongs) = (refusal.status, refusal.beside(&names())),
            },
            Err(more) => wrongs = more,
        }
    }
    Ok(form(&signed, status, None, &fields, &wrongs))
}

/// `POST /console/models/remove`
pub(crate) async fn remove(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    let clerk = Clerk::of(&desk, &signed);
    let id = fields.one("id", LONGEST)?;
    match clerk.change(Method::DELETE, &at(id), fields.get(TAG), &Value::Null).await? {
        Ok(_) => Ok(sent_to("/console/models?told=removed")),
        Err(refusal) => {
            let model = now(&clerk, id).await?;
            let fields = filled(&desk, &model.value);
            Ok(form(&signed, refusal.status, Some(&model), &fields, &refusal.beside(&[])))
        }
    }
}

fn form(
    signed: &Signed,
    status: StatusCode,
    model: Option<&Told>,
    fields: &Fields,
    wrongs: &Wrongs,
) -> Response {
    let id = fields.get("id");
    let nothing = json!({});
    let facts = model.map_or(&nothing, |model| &model.value);
    let from = text(facts, "source");
    let fixed = matches!(from, "file" | "environment");
    let title = if model.is_some() { id } else { "Add a model" };
    let action = if model.is_some() { format!("{HERE}/edit") } else { HERE.to_owned() };
    let body = html! {
        p.crumbs { a href=(HERE) { "Models & prices" } @if model.is_none() { " / new" } }
        div.title.close {
            @if model.is_some() { h1.id { bdi { (id) } } (source(facts)) } @else { h1 { (title) } }
        }
        (another_look(wrongs))
        @if let Some(why) = facts.get("trouble").and_then(Value::as_str) {
            p.objection role="alert" { (why) }
        }
        @if fixed { (elsewhere(facts, fields)) } @else {
            form.card.broad method="post" action=(action) {
                @match model {
                    Some(model) => { (tag_field(model)) input type="hidden" name="id" value=(id); },
                    None => (Input {
                        name: "id",
                        label: "Id",
                        value: id,
                        required: true,
                        focus: true,
                        help: Some("What callers ask for."),
                        ..Input::default()
                    }.show(wrongs)),
                }
                (area(
                    ("lanes", "Lanes"),
                    fields.get("lanes"),
                    "provider/model, one a line, in the order in which they are tried; a number \
                     behind one is its weight.",
                    wrongs,
                ))
                (select(("kind", "Kind"), fields.get("kind"), &KINDS, wrongs))
                (price_form::show(fields, wrongs))
                div.actions {
                    button.button type="submit" { @if model.is_some() { "Save" } @else { "Add the model" } }
                    a.button.quiet href=(HERE) { "Cancel" }
                }
            }
            @if let (Some(model), "stored") = (model, from) { (removal(model, id)) }
        }
    };
    page(status, &Shell::signed(title, &signed.account).at(HERE), &body)
}

fn removal(model: &Told, id: &str) -> Markup {
    html! {
        section.card.broad {
            details {
                summary { "Remove what is said here" }
                form method="post" action={ (HERE) "/remove" } {
                    (tag_field(model))
                    input type="hidden" name="id" value=(id);
                    p.help { "A model of the directory is again as the directory has it; any other \
                        is gone. Calls that run go on." }
                    button.button.harm type="submit" { "Remove it" }
                }
            }
        }
    }
}

/// A model that is configured elsewhere.
fn elsewhere(facts: &Value, fields: &Fields) -> Markup {
    html! {
        section.card.broad {
            dl.facts {
                div { dt { "Kind" } dd { (text(facts, "model_type")) } }
                div { dt { "Lanes" } dd { @for lane in lane_names(facts) { div { bdi.id { (lane) } } } } }
                @for (name, label) in price_form::PLAIN {
                    @if !fields.get(name).is_empty() {
                        div { dt { (label) } dd.num { "$" (fields.get(name)) } }
                    }
                }
            }
            p.muted { "To change it, edit " code { "[models.\"" (text(facts, "id")) "\"]" } " in the \
                configuration file; it is read again by itself." }
        }
    }
}
