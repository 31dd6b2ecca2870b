//! Forms: reading what was sent, and showing fields with their messages beside them.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use http::request::Parts;
use maud::{Markup, html};

use crate::trouble::Trouble;

/// The largest form, in bytes.
pub(crate) const LARGEST: usize = 16 * 1_024;

/// The fields of a form. Unknown ones are ignored; of two with one name the first counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The fields of a form that nobody sent yet.
    pub(crate) fn of(fields: Vec<(&str, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// What was sent under that name; empty when nothing was.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Whether a box was ticked.
    pub(crate) fn ticked(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// Everything that was sent under that name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect()
    }

    /// What was sent under that name, trimmed, unless it is longer than any honest value.
    pub(crate) fn short(&self, name: &str, longest: usize) -> Result<&str, Trouble> {
        let value = self.get(name).trim();
        if value.len() > longest {
            return Err(Trouble::Bad("A field holds far more text than it can take."));
        }
        Ok(value)
    }
}

impl Fields {
    /// The one value sent under that name, trimmed: two could be read differently by two readers.
    pub(crate) fn one(&self, name: &str, longest: usize) -> Result<&str, Trouble> {
        if self.0.iter().filter(|(own, _)| own == name).count() > 1 {
            return Err(Trouble::Bad("A field was sent twice."));
        }
        self.short(name, longest)
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Trouble;

    async fn from_request(request: Request, state: &S) -> Result<Self, Trouble> {
        match Form::<Vec<(String, String)>>::from_request(request, state).await {
            Ok(Form(fields)) => Ok(Self(fields)),
            Err(_) => Err(Trouble::Bad("The form could not be read, or it is far too long.")),
        }
    }
}

/// The parameters behind the question mark, read like a form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(pub(crate) Fields);

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Trouble> {
        match Query::<Vec<(String, String)>>::from_request_parts(parts, state).await {
            Ok(Query(fields)) => Ok(Self(Fields(fields))),
            Err(_) => Err(Trouble::Bad("The address holds parameters that cannot be read.")),
        }
    }
}

/// What is wrong with which field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wrongs(BTreeMap<String, String>);

impl Wrongs {
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

    pub(crate) fn of(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }
}

/// One labelled input.
pub(crate) struct Input<'a> {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) value: &'a str,
    pub(crate) help: Option<&'a str>,
    pub(crate) complete: &'static str,
    pub(crate) mode: Option<&'static str>,
    pub(crate) required: bool,
    /// Whether to say that it may stay empty, where it may.
    pub(crate) optional: bool,
    pub(crate) focus: bool,
    /// Whether the script says how good a password this would be.
    pub(crate) strength: bool,
}

impl Default for Input<'_> {
    fn default() -> Self {
        Self {
            name: "",
            label: "",
            kind: "text",
            value: "",
            help: None,
            complete: "off",
            mode: None,
            required: false,
            optional: true,
            focus: false,
            strength: false,
        }
    }
}

impl Input<'_> {
    /// The field with its help and, if there is one, its objection.
    pub(crate) fn show(&self, wrongs: &Wrongs) -> Markup {
        let Self {
            name,
            label,
            kind,
            value,
            help,
            complete,
            mode,
            required,
            optional,
            focus,
            strength,
        } = self;
        let wrong = wrongs.of(name);
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
                    aria-describedby=[described(name, wrong, *help)];
                (notes(name, wrong, *help))
            }
        }
    }
}

/// The ids of the notes below a field.
pub(crate) fn described(name: &str, wrong: Option<&str>, help: Option<&str>) -> Option<String> {
    let ids: Vec<String> = [wrong.map(|_| "wrong"), help.map(|_| "help")]
        .into_iter()
        .flatten()
        .map(|note| format!("{name}-{note}"))
        .collect();
    (!ids.is_empty()).then(|| ids.join(" "))
}

/// The objection to a field and its help.
pub(crate) fn notes(name: &str, wrong: Option<&str>, help: Option<&str>) -> Markup {
    html! {
        @if let Some(wrong) = wrong { p.objection id={ (name) "-wrong" } { (wrong) } }
        @if let Some(help) = help { p.help id={ (name) "-help" } { (help) } }
    }
}
