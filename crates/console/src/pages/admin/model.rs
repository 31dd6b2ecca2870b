//! Form of one model: lanes and prices.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::models::{PAGE_PATH, kind_word, page_of};
use super::providers::source_badge;
use super::{price_form, read_version, redirect_with_warnings, select, text_area, version_field};
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use admin::{EntrySource, ModelView, ReadVersion};

const MAX_ID_BYTES: usize = 512;
const KIND_CHOICES: [(&str, &str); 4] = [
    ("", "As the directory has it, or chat"),
    ("chat", "Chat"),
    ("image", "Images"),
    ("embedding", "Embeddings"),
];

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
    let id = query.get_trimmed("id", MAX_ID_BYTES)?;
    let model = state.host.admin().model(&user.actor(), id)?;
    let fields = model_fields(&state, &model);
    Ok(form(&user, StatusCode::OK, Some(&model), &fields, &FieldErrors::default()))
}

/// Form fields of a model: its stored settings, or its current values.
fn model_fields(state: &ConsoleState, model: &ModelView) -> FormFields {
    let id = model.id();
    let stored = |name: &str| model.settings.as_ref().and_then(|settings| settings.get(name));
    let price = stored("price").cloned().unwrap_or_else(|| current_prices(state, id));
    let lanes: Vec<String> = match stored("lanes").and_then(Value::as_array) {
        Some(lanes) => lanes.iter().map(lane_line).collect(),
        None => model.lanes().to_vec(),
    };
    let kind = stored("kind").and_then(Value::as_str).unwrap_or_default();
    let mut fields = price_form::price_fields(&price);
    fields.push(("id", id.to_owned()));
    fields.push(("kind", kind.to_owned()));
    fields.push(("lanes", lanes.join("\n")));
    FormFields::prefilled(fields)
}

/// Name of a lane in the settings of a model, where a lane is a text or a table.
fn lane_name(lane: &Value) -> &str {
    lane.get("lane").unwrap_or(lane).as_str().unwrap_or_default()
}

/// A lane as one line: name, and weight if it has one.
fn lane_line(lane: &Value) -> String {
    match lane.get("weight").and_then(Value::as_u64) {
        Some(weight) if weight != 1 => format!("{} {weight}", lane_name(lane)),
        _ => lane_name(lane).to_owned(),
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
        let known = before.iter().find(|lane| lane_name(lane) == name).and_then(Value::as_object);
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
) -> Result<Map<String, Value>, FieldErrors> {
    let mut settings = before;
    let own = settings.get("lanes").and_then(Value::as_array).map(Vec::as_slice);
    let lanes = parse_lanes(fields, own.unwrap_or_default())?;
    settings.insert("lanes".to_owned(), Value::Array(lanes));
    let price = price_form::parse(fields)?.map(Value::Object);
    let follows = settings.get("price").is_none() && price == Some(current_prices(state, id));
    match price.filter(|_| !follows) {
        Some(price) => drop(settings.insert("price".to_owned(), price)),
        None => drop(settings.remove("price")),
    }
    match fields.get("kind") {
        "" => drop(settings.remove("kind")),
        kind => drop(settings.insert("kind".to_owned(), Value::from(kind))),
    }
    Ok(settings)
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
    let (admin, actor) = (state.host.admin(), user.actor());
    let id = fields.get_single("id", MAX_ID_BYTES)?;
    let model = admin.model(&actor, id)?;
    let before = model.settings.clone().unwrap_or_default();
    let (status, errors) = match settings_body(&state, id, before, &fields) {
        Ok(settings) => match admin.put_model(&actor, id, read_version(&fields), settings).await {
            Ok(saved) => {
                let next = "/console/models?told=saved";
                return Ok(redirect_with_warnings(&user, PAGE_PATH, &saved.warnings, next));
            }
            Err(error) => {
                let refusal = FormRefusal::try_from(error)?;
                (refusal.status, refusal.field_errors(&field_names()))
            }
        },
        Err(errors) => (StatusCode::BAD_REQUEST, errors),
    };
    Ok(form(&user, status, Some(&model), &fields, &errors))
}

/// `GET /console/models/new`
pub(crate) async fn new_form(user: SignedInUser) -> Result<Response, PageError> {
    // Checks the rights before showing the form.
    user.actor().require_admin()?;
    Ok(form(&user, StatusCode::OK, None, &FormFields::default(), &FieldErrors::default()))
}

/// `POST /console/models`
pub(crate) async fn add(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (admin, actor) = (state.host.admin(), user.actor());
    let id = fields.get_single("id", MAX_ID_BYTES)?;
    let models = admin.models(&actor)?;
    let mut errors = FieldErrors::default();
    if id.is_empty() {
        errors.add("id", "What callers ask for, please.");
    } else if models.iter().any(|one| one.id() == id) {
        errors.add("id", "There is a model of this id already.");
    }
    let mut status = StatusCode::BAD_REQUEST;
    if errors.is_empty() {
        match settings_body(&state, id, Map::new(), &fields) {
            Ok(settings) => {
                match admin.put_model(&actor, id, ReadVersion::default(), settings).await {
                    Ok(saved) => {
                        let next = page_of(id);
                        return Ok(redirect_with_warnings(
                            &user,
                            PAGE_PATH,
                            &saved.warnings,
                            &next,
                        ));
                    }
                    Err(error) => {
                        let refusal = FormRefusal::try_from(error)?;
                        (status, errors) = (refusal.status, refusal.field_errors(&field_names()));
                    }
                }
            }
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
    let (admin, actor) = (state.host.admin(), user.actor());
    let id = fields.get_single("id", MAX_ID_BYTES)?;
    let Err(error) = admin.delete_model(&actor, id, read_version(&fields)).await else {
        return Ok(redirect_to("/console/models?told=removed"));
    };
    let refusal = FormRefusal::try_from(error)?;
    let model = admin.model(&actor, id)?;
    let fields = model_fields(&state, &model);
    Ok(form(&user, refusal.status, Some(&model), &fields, &refusal.field_errors(&[])))
}

fn form(
    user: &SignedInUser,
    status: StatusCode,
    model: Option<&ModelView>,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Response {
    let id = fields.get("id");
    let fixed = model.filter(|model| match model.source {
        EntrySource::File | EntrySource::Environment => true,
        EntrySource::Stored | EntrySource::BuiltIn => false,
    });
    let title = if model.is_some() { id } else { "Add a model" };
    let action = if model.is_some() { format!("{PAGE_PATH}/edit") } else { PAGE_PATH.to_owned() };
    let body = html! {
        p.crumbs { a href=(PAGE_PATH) { "Models & prices" } @if model.is_none() { " / new" } }
        div.title.close {
            @if let Some(model) = model { h1.id { bdi { (id) } } (source_badge(model.source)) }
            @else { h1 { (title) } }
        }
        (error_summary(errors))
        @if let Some(why) = model.and_then(|model| model.trouble.as_ref()) {
            p.objection role="alert" { (why) }
        }
        @if let Some(model) = fixed { (read_only_facts(model, fields)) } @else {
            form.card.broad method="post" action=(action) {
                @match model {
                    Some(model) => {
                        (version_field(&model.version()))
                        input type="hidden" name="id" value=(id);
                    },
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
            @if let Some(model) = model.filter(|model| model.source == EntrySource::Stored) {
                (removal_form(model, id))
            }
        }
    };
    page(status, &Layout::signed_in(title, &user.account).with_nav(PAGE_PATH), &body)
}

fn removal_form(model: &ModelView, id: &str) -> Markup {
    html! {
        section.card.broad {
            details {
                summary { "Remove these settings" }
                form method="post" action={ (PAGE_PATH) "/remove" } {
                    (version_field(&model.version()))
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
fn read_only_facts(model: &ModelView, fields: &FormFields) -> Markup {
    html! {
        section.card.broad {
            dl.facts {
                div { dt { "Kind" } dd { (kind_word(model)) } }
                div { dt { "Lanes" } dd { @for lane in model.lanes() { div { bdi.id { (lane) } } } } }
                @for (name, label) in price_form::PRICE_FIELDS {
                    @if !fields.get(name).is_empty() {
                        div { dt { (label) } dd.num { "$" (fields.get(name)) } }
                    }
                }
            }
            p.muted { "To change it, edit " code { "[models.\"" (model.id()) "\"]" } " in the \
                configuration file; it is read again by itself." }
        }
    }
}
