//! Forms: reading what was sent, and showing fields with their messages beside them.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use http::request::Parts;
use maud::{Markup, html};

use crate::page_error::PageError;

/// The largest form, in bytes.
pub(crate) const MAX_FORM_BYTES: usize = 16 * 1_024;

/// The fields of a form. Unknown ones are ignored; of two with one name the first counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// The fields of a form that nobody sent yet.
    pub(crate) fn prefilled(fields: Vec<(&str, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// What was sent under that name; empty when nothing was.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Whether a box was ticked.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// Everything that was sent under that name.
    pub(crate) fn get_all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect()
    }

    /// What was sent under that name, trimmed, unless it is longer than any honest value.
    pub(crate) fn get_trimmed(&self, name: &str, longest: usize) -> Result<&str, PageError> {
        let value = self.get(name).trim();
        if value.len() > longest {
            return Err(PageError::BadRequest("A field holds far more text than it can take."));
        }
        Ok(value)
    }
}

impl FormFields {
    /// The one value sent under that name, trimmed: two could be read differently by two readers.
    pub(crate) fn get_single(&self, name: &str, longest: usize) -> Result<&str, PageError> {
        if self.0.iter().filter(|(own, _)| own == name).count() > 1 {
            return Err(PageError::BadRequest("A field was sent twice."));
        }
        self.get_trimmed(name, longest)
    }
}

impl<S: Send + Sync> FromRequest<S> for FormFields {
    type Rejection = PageError;

    async fn from_request(request: Request, state: &S) -> Result<Self, PageError> {
        match Form::<Vec<(String, String)>>::from_request(request, state).await {
            Ok(Form(fields)) => Ok(Self(fields)),
            Err(_) => {
                Err(PageError::BadRequest("The form could not be read, or it is far too long."))
            }
        }
    }
}

/// The parameters behind the question mark, read like a form.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryFields(pub(crate) FormFields);

impl<S: Send + Sync> FromRequestParts<S> for QueryFields {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageError> {
        match Query::<Vec<(String, String)>>::from_request_parts(parts, state).await {
            Ok(Query(fields)) => Ok(Self(FormFields(fields))),
            Err(_) => {
                Err(PageError::BadRequest("The address holds parameters that cannot be read."))
            }
        }
    }
}

/// What is wrong with which field.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldErrors(BTreeMap<String, String>);

impl FieldErrors {
    /// Objects to a field, or to the whole under an empty name; the first objection stands.
    pub(crate) fn add(&mut self, field: &str, why: impl Into<String>) {
        self.0.entry(field.to_owned()).or_insert_with(|| why.into());
    }

    /// Adds an objection of administration, whose fields are named as in the JSON API.
    pub(crate) fn add_api_field(&mut self, field: &str, why: impl Into<String>) {
        let name = match field {
            "cap_usd" => "cap",
            "expires_in" => "expires",
            "budget.most_usd" | "budget.per" => "budget",
            "limits.rpm" => "rpm",
            "limits.tpm" => "tpm",
            "limits.concurrency" => "concurrency",
            other => other,
        };
        self.add(name, why);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }
}

/// One labelled input.
pub(crate) struct FormInput<'a> {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) value: &'a str,
    pub(crate) help: Option<&'a str>,
    pub(crate) autocomplete: &'static str,
    pub(crate) input_mode: Option<&'static str>,
    pub(crate) required: bool,
    /// Whether to say that it may stay empty, where it may.
    pub(crate) mark_optional: bool,
    pub(crate) autofocus: bool,
    /// Whether the script says how good a password this would be.
    pub(crate) show_strength: bool,
}

impl Default for FormInput<'_> {
    fn default() -> Self {
        Self {
            name: "",
            label: "",
            kind: "text",
            value: "",
            help: None,
            autocomplete: "off",
            input_mode: None,
            required: false,
            mark_optional: true,
            autofocus: false,
            show_strength: false,
        }
    }
}

impl FormInput<'_> {
    /// The field with its help and, if there is one, its objection.
    pub(crate) fn render(&self, wrongs: &FieldErrors) -> Markup {
        let Self {
            name,
            label,
            kind,
            value,
            help,
            autocomplete: complete,
            input_mode: mode,
            required,
            mark_optional: optional,
            autofocus: focus,
            show_strength: strength,
        } = self;
        let wrong = wrongs.get(name);
        html! {
            div.field.wrong[wrong.is_some()] {
                label for=(name) {
                    (label)
                    @if *optional && !required { span.optional { " optional" } }
                }
                input id=(name) name=(name) type=(kind) value=(value) autocomplete=(complete)
                    autocapitalize="none" spellcheck="false" inputmode=[mode]
                    required[*required] autofocus[*focus] data-strength[*strength]
                    aria-invalid=[wrong.map(|_| "true")]
                    aria-describedby=[note_ids(name, wrong, *help)];
                (field_notes(name, wrong, *help))
            }
        }
    }
}

/// The ids of the notes below a field.
pub(crate) fn note_ids(name: &str, wrong: Option<&str>, help: Option<&str>) -> Option<String> {
    let ids: Vec<String> = [wrong.map(|_| "wrong"), help.map(|_| "help")]
        .into_iter()
        .flatten()
        .map(|note| format!("{name}-{note}"))
        .collect();
    (!ids.is_empty()).then(|| ids.join(" "))
}

/// The objection to a field and its help.
pub(crate) fn field_notes(name: &str, wrong: Option<&str>, help: Option<&str>) -> Markup {
    html! {
        @if let Some(wrong) = wrong { p.objection id={ (name) "-wrong" } { (wrong) } }
        @if let Some(help) = help { p.help id={ (name) "-help" } { (help) } }
    }
}
