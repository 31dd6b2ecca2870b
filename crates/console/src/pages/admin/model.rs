//! Form of one model: lanes and prices.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::models::{PAGE_PATH, lane_names, page_of};
use super::providers::source_badge;
use super::{ETAG_FIELD, etag_field, price_form, redirect_with_warnings, select, text_area};
use crate::admin_client::{AdminClient, ApiReply, list, text};
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::urls;

const MAX_ID_BYTES: usize = 512;
const KIND_CHOICES: [(&str, &str); 4] = [
    ("", "As the directory has it, or chat"),
    ("chat", "Chat"),
    ("image", "Images"),
    ("embedding", "Embeddings"),
];

fn api_path(id: &str) -> String {
    format!("/models/{}", urls::escape_path(id))
}

/// Loads the current model.
async fn load(client: &AdminClient, id: &str) -> Result<ApiReply, PageError> {
    if id.is_empty() {
        return Err(PageError::NotFound);
    }
    client.get(&api_path(id)).await
}

/// Stored settings of a model.
fn stored_settings(model: &Value) -> Option<Map<String, Value>> {
    model.get("settings").and_then(Value::as_object).cloned()
}

/// Current prices of a model as JSON.
fn current_prices(state: &ConsoleState, id: &str) -> Value {
    let written = |catalog: &catalog::Catalog| {
        catalog.get(id).map(|model| price_form::to_json(&model.prices)).unwrap_or_default()
    };
    Value::Object(state.with_catalog(written))
}

/// `GET /console/models/edit?id=…`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let client = AdminClient::new(&state, &user);
    let model = load(&client, query.get_trimmed("id", MAX_ID_BYTES)?).await?;
    let fields = model_fields(&state, &model.value);
    Ok(form(&user, StatusCode::OK, Some(&model), &fields, &FieldErrors::default()))
}

/// Form fields of a model: its stored settings, or its current values.
fn model_fields(state: &ConsoleState, model: &Value) -> FormFields {
    let id = text(model, "id");
    let stored = stored_settings(model).map(Value::Object).unwrap_or_default();
    let price = stored.get("price").cloned().unwrap_or_else(|| current_prices(state, id));
    let lanes = if stored.get("lanes").is_some() { &stored } else { model };
    let lanes: Vec<String> = list(lanes, "lanes").iter().map(lane_line).collect();
    let mut fields = price_form::price_fields(&price);
    fields.push(("id", id.to_owned()));
    fields.push(("kind", text(&stored, "kind").to_owned()));
    fields.push(("lanes", lanes.join("\n")));
    FormFields::prefilled(fields)
}

/// A lane as one line: name, and weight if it has one.
fn lane_line(lane: &Value) -> String {
    match lane {
        Value::String(name) => name.clone(),
        lane => match lane.get("weight").and_then(Value::as_u64) {
            Some(weight) if weight != 1 => format!("{} {weight}", text(lane, "lane")),
            _ => text(lane, "lane").to_owned(),
        },
    }
}

/// Reads the lanes of a form. Other stored settings of a lane are kept.
fn parse_lanes(fields: &FormFields, before: &[Value]) -> Result<Vec<Value>, FieldErrors> {
    let lines = fields.get("lanes").lines().map(str::trim).filter(|line| !line.is_empty());
    let read = lines.map(|line| {
        let (name, weight) = match line.rsplit_once(char::is_whitespace) {
            Some((name, weight)) => match weight.parse::<u32>() {
                Ok(weight) => (name.trim(), Some(weight)),
                Err(_) => {
                    let mut errors = FieldErrors::default();
                    errors.add(
                        "lanes",
                        format!("`{line}`: write provider/model, and a weight behind it."),
                    );
                    return Err(errors);
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

/// Merges the form into the stored settings. Prices equal to the model's own are not stored, so
/// they keep following the directory.
fn settings_body(
    state: &ConsoleState,
    id: &str,
    before: Map<String, Value>,
    fields: &FormFields,
) -> Result<Value, FieldErrors> {
    let mut settings = before;
    let own = Value::Object(settings.clone());
    let lanes = parse_lanes(fields, list(&own, "lanes"))?;
    settings.insert("lanes".to_owned(), Value::Array(lanes));
    let price = price_form::parse(fields)?.map(Value::Object);
    let follows = own.get("price").is_none() && price == Some(current_prices(state, id));
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

/// Names of the fields that can show an error of the API.
fn field_names() -> Vec<&'static str> {
    price_form::field_names().into_iter().chain(["id", "kind", "lanes"]).collect()
}

/// `POST /console/models/edit`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let client = AdminClient::new(&state, &user);
    let id = fields.get_single("id", MAX_ID_BYTES)?;
    let model = load(&client, id).await?;
    let (status, errors) =
        match settings_body(&state, id, stored_settings(&model.value).unwrap_or_default(), &fields)
        {
            Ok(body) => {
                match client
                    .change(Method::PUT, &api_path(id), fields.get(ETAG_FIELD), &body)
                    .await?
                {
                    Ok(saved) => {
                        return Ok(redirect_with_warnings(
                            &user,
                            PAGE_PATH,
                            &saved.value,
                            "/console/models?told=saved",
                        ));
                    }
                    Err(refusal) => (refusal.status, refusal.field_errors(&field_names())),
                }
            }
            Err(errors) => (StatusCode::BAD_REQUEST, errors),
        };
    Ok(form(&user, status, Some(&model), &fields, &errors))
}

/// `GET /console/models/new`
pub(crate) async fn new_form(
    user: SignedInUser,
    State(state): State<Arc<ConsoleState>>,
) -> Result<Response, PageError> {
    // Checks the rights before showing the form.
    AdminClient::new(&state, &user).get("/settings").await?;
    Ok(form(&user, StatusCode::OK, None, &FormFields::default(), &FieldErrors::default()))
}

/// `POST /console/models`
pub(crate) async fn add(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let client = AdminClient::new(&state, &user);
    let id = fields.get_single("id", MAX_ID_BYTES)?;
    let reply = client.get("/models").await?.value;
    let mut errors = FieldErrors::default();
    if id.is_empty() {
        errors.add("id", "What callers ask for, please.");
    } else if list(&reply, "data").iter().any(|one| text(one, "id") == id) {
        errors.add("id", "There is a model of this id already.");
    }
    let mut status = StatusCode::BAD_REQUEST;
    if errors.is_empty() {
        match settings_body(&state, id, Map::new(), &fields) {
            Ok(body) => match client.change(Method::PUT, &api_path(id), "", &body).await? {
                Ok(saved) => {
                    return Ok(redirect_with_warnings(
                        &user,
                        PAGE_PATH,
                        &saved.value,
                        &page_of(id),
                    ));
                }
                Err(refusal) => {
                    (status, errors) = (refusal.status, refusal.field_errors(&field_names()))
                }
            },
            Err(more) => errors = more,
        }
    }
    Ok(form(&user, status, None, &fields, &errors))
}

/// `POST /console/models/remove`
pub(crate) async fn remove(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let client = AdminClient::new(&state, &user);
    let id = fields.get_single("id", MAX_ID_BYTES)?;
    match client.change(Method::DELETE, &api_path(id), fields.get(ETAG_FIELD), &Value::Null).await?
    {
        Ok(_) => Ok(redirect_to("/console/models?told=removed")),
        Err(refusal) => {
            let model = load(&client, id).await?;
            let fields = model_fields(&state, &model.value);
            Ok(form(&user, refusal.status, Some(&model), &fields, &refusal.field_errors(&[])))
        }
    }
}

fn form(
    user: &SignedInUser,
    status: StatusCode,
    model: Option<&ApiReply>,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Response {
    let id = fields.get("id");
    let nothing = json!({});
    let facts = model.map_or(&nothing, |model| &model.value);
    let from = text(facts, "source");
    let fixed = matches!(from, "file" | "environment");
    let title = if model.is_some() { id } else { "Add a model" };
    let action = if model.is_some() { format!("{PAGE_PATH}/edit") } else { PAGE_PATH.to_owned() };
    let body = html! {
        p.crumbs { a href=(PAGE_PATH) { "Models & prices" } @if model.is_none() { " / new" } }
        div.title.close {
            @if model.is_some() { h1.id { bdi { (id) } } (source_badge(facts)) } @else { h1 { (title) } }
        }
        (error_summary(errors))
        @if let Some(why) = facts.get("trouble").and_then(Value::as_str) {
            p.objection role="alert" { (why) }
        }
        @if fixed { (read_only_facts(facts, fields)) } @else {
            form.card.broad method="post" action=(action) {
                @match model {
                    Some(model) => { (etag_field(model)) input type="hidden" name="id" value=(id); },
                    None => (FormInput {
                        name: "id",
                        label: "Id",
                        value: id,
                        required: true,
                        autofocus: true,
                        help: Some("What callers ask for."),
                        ..FormInput::default()
                    }.render(errors)),
                }
                (text_area(
                    ("lanes", "Lanes"),
                    fields.get("lanes"),
                    "provider/model, one a line, in the order in which they are tried; a number \
                     behind one is its weight.",
                    errors,
                ))
                (select(("kind", "Kind"), fields.get("kind"), &KIND_CHOICES, errors))
                (price_form::render(fields, errors))
                div.actions {
                    button.button type="submit" { @if model.is_some() { "Save" } @else { "Add the model" } }
                    a.button.quiet href=(PAGE_PATH) { "Cancel" }
                }
            }
            @if let (Some(model), "stored") = (model, from) { (removal_form(model, id)) }
        }
    };
    page(status, &Layout::signed_in(title, &user.account).with_nav(PAGE_PATH), &body)
}

fn removal_form(model: &ApiReply, id: &str) -> Markup {
    html! {
        section.card.broad {
            details {
                summary { "Remove these settings" }
                form method="post" action={ (PAGE_PATH) "/remove" } {
                    (etag_field(model))
                    input type="hidden" name="id" value=(id);
                    p.help { "A model of the directory is again as the directory has it; any other \
                        is gone. Calls that run go on." }
                    button.button.harm type="submit" { "Remove it" }
                }
            }
        }
    }
}

/// Facts of a model that cannot be changed here.
fn read_only_facts(facts: &Value, fields: &FormFields) -> Markup {
    html! {
        section.card.broad {
            dl.facts {
                div { dt { "Kind" } dd { (text(facts, "model_type")) } }
                div { dt { "Lanes" } dd { @for lane in lane_names(facts) { div { bdi.id { (lane) } } } } }
                @for (name, label) in price_form::PRICE_FIELDS {
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
