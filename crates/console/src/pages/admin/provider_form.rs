//! Form of a provider's settings, for providers of the directory and any compatible server.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::provider::credential_draft;
use super::providers::{PAGE_PATH, page_of};
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::refusal::FormRefusal;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use admin::{DirectoryProvider, ProviderDraft, ReadVersion};
use config::SHARED_OBJECTS;

/// Request formats and their labels.
const FORMAT_CHOICES: [(&str, &str); 5] = [
    ("chat", "Chat completions"),
    ("responses", "Responses"),
    ("messages", "Messages"),
    ("native", "Native (generateContent)"),
    ("images", "Images"),
];
const TIMEOUT_FIELDS: [(&str, &str); 4] = [
    ("timeouts.connect", "Connecting"),
    ("timeouts.first_byte", "First byte"),
    ("timeouts.gap", "Silence"),
    ("timeouts.total", "In all"),
];
/// Fields of the form, named as in the API.
pub(super) const FORM_FIELDS: [&str; 10] = [
    "speaks",
    "base",
    "fill",
    "max_in_flight",
    "objects",
    "timeouts.connect",
    "timeouts.first_byte",
    "timeouts.gap",
    "timeouts.total",
    "like",
];
const MAX_ID_BYTES: usize = 64;
/// Help text of the credential field.
pub(super) const CREDENTIAL_HELP: &str = "Stored sealed, and not shown again. Where a provider takes more \
    than one word, as JSON: {\"sigv4\": {\"access_key\": \"…\", \"secret_key\": \"…\"}} or \
    {\"entra\": {\"tenant\": \"…\", \"client_id\": \"…\", \"client_secret\": \"…\"}}";

/// Merges the form into the stored settings. Settings unknown to the form are kept.
pub(super) fn settings_body(
    mut settings: Map<String, Value>,
    fields: &FormFields,
) -> Result<Map<String, Value>, FieldErrors> {
    let mut errors = FieldErrors::default();
    let mut put = |name: &str, value: Option<Value>| match value {
        Some(value) => drop(settings.insert(name.to_owned(), value)),
        None => drop(settings.remove(name)),
    };
    let value_of = |name: &str| Some(fields.get(name).trim()).filter(|text| !text.is_empty());
    let speaks = fields.get_all("speaks");
    put("speaks", (!speaks.is_empty()).then(|| json!(speaks)));
    put("base", value_of("base").map(Value::from));
    put("like", value_of("like").map(Value::from));
    let most = value_of("max_in_flight").map(|text| text.parse::<u32>().map(Value::from));
    if most.as_ref().is_some_and(Result::is_err) {
        errors.add("max_in_flight", "A whole number above zero, or nothing.");
    }
    put("max_in_flight", most.and_then(Result::ok));
    put("objects", value_of("objects").map(Value::from));
    let mut times = Map::new();
    for (name, _) in TIMEOUT_FIELDS {
        if let Some((_, short)) = name.split_once('.')
            && let Some(text) = value_of(name)
        {
            times.insert(short.to_owned(), Value::from(text));
        }
    }
    put("timeouts", (!times.is_empty()).then_some(Value::Object(times)));
    let mut fill = Map::new();
    for line in fields.get("fill").lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_once('=') {
            Some((word, value)) => {
                fill.insert(word.trim().to_owned(), Value::from(value.trim()));
            }
            None => errors.add("fill", format!("`{line}`: write word = value, one a line.")),
        }
    }
    put("fill", (!fill.is_empty()).then_some(Value::Object(fill)));
    if errors.is_empty() { Ok(settings) } else { Err(errors) }
}

pub(super) fn settings_fields(settings: &Map<String, Value>) -> FormFields {
    let one = |name: &'static str| {
        let value = match name.split_once('.') {
            Some((table, field)) => settings.get(table).and_then(|table| table.get(field)),
            None => settings.get(name),
        };
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        (name, text)
    };
    let names = ["base", "like", "max_in_flight", "objects"]
        .into_iter()
        .chain(TIMEOUT_FIELDS.map(|(name, _)| name));
    let mut fields: Vec<(&str, String)> = names.map(one).collect();
    let speaks = match settings.get("speaks") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    fields.extend(speaks.into_iter().map(|format| ("speaks", format.to_owned())));
    let fill = settings.get("fill").and_then(Value::as_object).into_iter().flatten();
    let fill: Vec<String> = fill
        .map(|(word, value)| format!("{word} = {}", value.as_str().unwrap_or_default()))
        .collect();
    fields.push(("fill", fill.join("\n")));
    FormFields::prefilled(fields)
}

/// Renders the fields. `words` are the placeholders of the address in the directory.
pub(super) fn render_fields(
    words: &[&str],
    needs_address: bool,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    let like = fields.get("like");
    let further = FORM_FIELDS.iter().skip(3).any(|name| errors.get(name).is_some());
    html! {
        @if !like.is_empty() {
            input type="hidden" name="like" value=(like);
            p.muted { "Like " strong { (like) } " of the directory: what you leave empty is as there." }
        }
        (FormInput {
            name: "base",
            label: "Address",
            kind: "url",
            value: fields.get("base"),
            help: Some("What comes before /v1/… or /v1beta/…, for example https://api.example.com"),
            required: needs_address,
            ..FormInput::default()
        }.render(errors))
        fieldset.plain {
            legend { "Formats it speaks" @if !like.is_empty() { span.optional { " optional" } } }
            div.ticks {
                @for (word, title) in FORMAT_CHOICES {
                    label.tick {
                        input type="checkbox" name="speaks" value=(word)
                            checked[fields.get_all("speaks").contains(&word)];
                        span { (title) }
                    }
                }
            }
            @if let Some(why) = errors.get("speaks") { p.objection { (why) } }
        }
        @if !words.is_empty() || !fields.get("fill").is_empty() || errors.get("fill").is_some() {
            @let help = format!("One a line: {}.", words.iter().map(|w| format!("{w} = …"))
                .collect::<Vec<_>>().join(", "));
            (super::text_area(("fill", "Values for its address"), fields.get("fill"), &help, errors))
        }
        details open[further] {
            summary { "Limits, times and objects" }
            div.further {
                (FormInput {
                    name: "max_in_flight",
                    label: "Calls at once, at most",
                    value: fields.get("max_in_flight"),
                    input_mode: Some("numeric"),
                    ..FormInput::default()
                }.render(errors))
                div.row {
                    @for (name, label) in TIMEOUT_FIELDS {
                        (FormInput {
                            name, label, value: fields.get(name), mark_optional: false, ..FormInput::default()
                        }.render(errors))
                    }
                }
                p.help { "How long to wait at most, for example 5s or 2min; nothing is as for all." }
                label.tick {
                    input type="checkbox" name="objects" value=(SHARED_OBJECTS)
                        checked[fields.get("objects") == SHARED_OBJECTS];
                    span { "Callers may name every file, container and cache of this account by its id" }
                }
                @if let Some(why) = errors.get("objects") { p.objection { (why) } }
            }
        }
    }
}

/// `GET /console/providers/new`: choice of a provider, then its form.
pub(crate) async fn new_form(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let directory = state.host.admin().provider_directory(&user.actor())?;
    let like = query.get_trimmed("like", MAX_ID_BYTES)?;
    if !query.contains("like") {
        return Ok(choice_page(&user, &directory));
    }
    let known = directory_entry(&directory, like)?;
    let fields = FormFields::prefilled(vec![("like", like.to_owned()), ("id", like.to_owned())]);
    Ok(form_page(&user, StatusCode::OK, known, &fields, &FieldErrors::default()))
}

/// `POST /console/providers`
pub(crate) async fn add(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (admin, actor) = (state.host.admin(), user.actor());
    let directory = admin.provider_directory(&actor)?;
    let known = directory_entry(&directory, fields.get_trimmed("like", MAX_ID_BYTES)?)?;
    let id = fields.get_trimmed("id", MAX_ID_BYTES)?;
    let mut errors = FieldErrors::default();
    if id.is_empty() {
        errors.add("id", "What it is to be called, please.");
    } else if admin.providers(&actor)?.iter().any(|one| one.provider.id == id) {
        errors.add("id", "There is a provider of this name already.");
    }
    let mut settings = settings_body(Map::new(), &fields);
    if let Ok(settings) = &mut settings
        && known.is_some_and(|known| known.id == id)
    {
        // A directory entry under its own name needs no `like`.
        settings.remove("like");
    }
    let has_credential = !fields.get("value").trim().is_empty();
    let credentials = has_credential.then(|| vec![credential_draft(&fields)]);
    let mut status = StatusCode::BAD_REQUEST;
    match settings {
        Ok(settings) if errors.is_empty() => {
            let draft = ProviderDraft { settings, credentials };
            match admin.put_provider(&actor, id, ReadVersion::default(), draft).await {
                Ok(_) => return Ok(redirect_to(&format!("{}?told=added", page_of(id)))),
                Err(error) => {
                    let refusal = FormRefusal::try_from(error)?;
                    let names: Vec<&str> = FORM_FIELDS.into_iter().chain(["id", "value"]).collect();
                    (status, errors) = (refusal.status, refusal.field_errors(&names));
                }
            }
        }
        Ok(_) => {}
        Err(more) if errors.is_empty() => errors = more,
        Err(_) => {}
    }
    Ok(form_page(&user, status, known, &fields, &errors))
}

/// Directory entry, or `None` for any other compatible server.
fn directory_entry<'a>(
    directory: &'a [DirectoryProvider],
    like: &str,
) -> Result<Option<&'a DirectoryProvider>, PageError> {
    if like.is_empty() {
        return Ok(None);
    }
    let found = directory.iter().find(|one| one.id == like);
    found.map(Some).ok_or(PageError::NotFound)
}

fn choice_page(user: &SignedInUser, directory: &[DirectoryProvider]) -> Response {
    let body = html! {
        section.card.broad {
            p.crumbs { a href=(PAGE_PATH) { "Providers" } " / new" }
            h1 { "Add a provider" }
            form method="get" action={ (PAGE_PATH) "/new" } {
                div.field {
                    label for="like" { "Which one" }
                    select #like name="like" {
                        @for one in directory {
                            option value=(one.id) {
                                @if one.name.is_empty() { (one.id) } @else { (one.name) }
                            }
                        }
                        option value="" { "Any compatible server" }
                    }
                    p.help { "Of those in the directory, the address, the formats and the prices of \
                        models are known." }
                }
                div.actions {
                    button.button type="submit" { "Go on" }
                    a.button.quiet href=(PAGE_PATH) { "Cancel" }
                }
            }
        }
    };
    page(
        StatusCode::OK,
        &Layout::signed_in("Add a provider", &user.account).with_nav(PAGE_PATH),
        &body,
    )
}

fn form_page(
    user: &SignedInUser,
    status: StatusCode,
    known: Option<&DirectoryProvider>,
    entered: &FormFields,
    errors: &FieldErrors,
) -> Response {
    let what = match known.map(|known| known.name) {
        None | Some("") => "Add a provider".to_owned(),
        Some(name) => format!("Add {name}"),
    };
    let words = known.map(|known| known.fill.as_slice()).unwrap_or_default();
    let body = html! {
        section.card.broad {
            p.crumbs { a href=(PAGE_PATH) { "Providers" } " / new" }
            h1 { (what) }
            (error_summary(errors))
            form method="post" action=(PAGE_PATH) {
                (FormInput {
                    name: "id",
                    label: "Name",
                    value: entered.get("id"),
                    required: true,
                    help: Some("What it is called in lanes: name/model."),
                    ..FormInput::default()
                }.render(errors))
                (render_fields(words, known.is_none(), entered, errors))
                fieldset {
                    legend { "First credential" span.optional { " optional" } }
                    (FormInput {
                        name: "value",
                        label: "API key of the provider",
                        kind: "password",
                        help: Some(CREDENTIAL_HELP),
                        mark_optional: false,
                        ..FormInput::default()
                    }.render(errors))
                }
                div.actions {
                    button.button type="submit" { "Add the provider" }
                    a.button.quiet href={ (PAGE_PATH) "/new" } { "Back" }
                }
            }
        }
    };
    page(status, &Layout::signed_in(&what, &user.account).with_nav(PAGE_PATH), &body)
}
