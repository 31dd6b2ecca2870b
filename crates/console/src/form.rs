//! Reading of submitted forms, and rendering of fields with their messages.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use http::request::Parts;
use maud::{Markup, html};

use crate::page_error::PageError;

pub(crate) const MAX_FORM_BYTES: usize = 16 * 1_024;
pub(crate) const INVALID_FORM: &str = "The form is invalid.";

/// Fields of a form. Unknown fields are ignored; of two fields with one name the first counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Fields with the given values, for a form that has not been submitted.
    pub(crate) fn prefilled(fields: Vec<(&str, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Value of a field; empty if it was not sent.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns true if the field was sent, which is how browsers report a checked box.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// All values sent under a name.
    pub(crate) fn get_all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Trimmed value of a field. Rejects values above the limit.
    pub(crate) fn get_trimmed(&self, name: &str, longest: usize) -> Result<&str, PageError> {
        let value = self.get(name).trim();
        if value.len() > longest {
            return Err(PageError::BadRequest("The text of a field is too long."));
        }
        Ok(value)
    }
}

impl FormFields {
    /// Trimmed value of a field that may be sent only once. Two values could be read differently by
    /// two readers.
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
            Err(_) => Err(PageError::BadRequest(INVALID_FORM)),
        }
    }
}

/// Query parameters, read like a form.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryFields(pub(crate) FormFields);

impl<S: Send + Sync> FromRequestParts<S> for QueryFields {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PageError> {
        match Query::<Vec<(String, String)>>::from_request_parts(parts, state).await {
            Ok(Query(fields)) => Ok(Self(FormFields(fields))),
            Err(_) => Err(PageError::BadRequest("The address contains invalid parameters.")),
        }
    }
}

/// Error messages by field.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldErrors(BTreeMap<String, String>);

impl FieldErrors {
    /// Adds a message to a field, or to the whole form under an empty name. The first message for a
    /// field is kept.
    pub(crate) fn add(&mut self, field: &str, why: impl Into<String>) {
        self.0.entry(field.to_owned()).or_insert_with(|| why.into());
    }

    /// Adds a message for a field under its name in the JSON API.
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

/// A labelled input.
pub(crate) struct FormInput<'a> {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) value: &'a str,
    pub(crate) help: Option<&'a str>,
    /// Id of the list of values to choose from.
    pub(crate) list: Option<&'static str>,
    pub(crate) autocomplete: &'static str,
    pub(crate) input_mode: Option<&'static str>,
    pub(crate) required: bool,
    /// Marks the label as optional if the field is not required.
    pub(crate) mark_optional: bool,
    pub(crate) autofocus: bool,
    /// Lets the script show the strength of the password.
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
            list: None,
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
    /// Renders the input with its help and its error message.
    pub(crate) fn render(&self, errors: &FieldErrors) -> Markup {
        let Self {
            name,
            label,
            kind,
            value,
            help,
            list,
            autocomplete,
            input_mode,
            required,
            mark_optional,
            autofocus,
            show_strength,
        } = self;
        let wrong = errors.get(name);
        html! {
            div.field.wrong[wrong.is_some()] {
                label for=(name) {
                    (label)
                    @if *mark_optional && !required { span.optional { " optional" } }
                }
                input id=(name) name=(name) type=(kind) value=(value) autocomplete=(autocomplete)
                    autocapitalize="none" spellcheck="false" inputmode=[input_mode] list=[list]
                    required[*required] autofocus[*autofocus] data-strength[*show_strength]
                    aria-invalid=[wrong.map(|_| "true")]
                    aria-describedby=[note_ids(name, wrong, *help)];
                (field_notes(name, wrong, *help))
            }
        }
    }
}

/// Value of `aria-describedby`: the ids of the notes below a field.
pub(crate) fn note_ids(name: &str, wrong: Option<&str>, help: Option<&str>) -> Option<String> {
    let ids: Vec<String> = [wrong.map(|_| "wrong"), help.map(|_| "help")]
        .into_iter()
        .flatten()
        .map(|note| format!("{name}-{note}"))
        .collect();
    (!ids.is_empty()).then(|| ids.join(" "))
}

/// Renders the error message and the help of a field.
pub(crate) fn field_notes(name: &str, wrong: Option<&str>, help: Option<&str>) -> Markup {
    html! {
        @if let Some(wrong) = wrong { p.objection id={ (name) "-wrong" } { (wrong) } }
        @if let Some(help) = help { p.help id={ (name) "-help" } { (help) } }
    }
}
