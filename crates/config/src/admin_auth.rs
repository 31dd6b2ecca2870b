//! Credentials as administrators send them: the fields of the file, with the secret itself where
//! the file has a reference.
//!
//! A reference is refused, because it would read the environment and the files of this machine. An
//! error names the field and never repeats its value.

use catalog::AuthScheme;
use serde_json::{Map, Value};

use crate::auth::HOST_IDENTITY_REFUSED;
use crate::default_auth;
use crate::error::FieldError;
use crate::raw::RawAuth;

/// Longest accepted secret. The JSON of a Google service account is the longest known one.
const MAX_SECRET_BYTES: usize = 8 << 10;
/// Longest accepted certificate with its chain and its key.
const MAX_CERTIFICATE_BYTES: usize = 32 << 10;
const SECRET_EXPECTED: &str = "must be the secret itself, as a text";

fn field_error(field: &str, why: impl Into<String>) -> FieldError {
    FieldError { field: field.to_owned(), reason: why.into() }
}

/// Builds the credential of a provider's default kind from one secret.
pub fn auth_from_secret(
    name: &str,
    like: Option<&str>,
    value: &Value,
) -> Result<RawAuth, FieldError> {
    let mut table = toml::Table::new();
    match default_auth(name, like) {
        None | Some(AuthScheme::Bearer | AuthScheme::None) => {
            table.insert("bearer".to_owned(), secret_reference("value", value)?);
        }
        Some(AuthScheme::Header(header)) => {
            table.insert("header".to_owned(), header.as_str().into());
            table.insert("value".to_owned(), secret_reference("value", value)?);
        }
        Some(AuthScheme::Google) => {
            table.insert("google".to_owned(), google_account("value", value)?);
        }
        Some(AuthScheme::SigV4(_)) => {
            let why = "this provider takes several: send \"auth\": {\"sigv4\": {\"access_key\": …, \
                       \"secret_key\": …}}";
            return Err(field_error("value", why));
        }
    }
    Ok(RawAuth(table.into()))
}

/// Builds a credential from the `auth` object of an API request.
pub fn auth_from_json(auth: &Value) -> Result<RawAuth, FieldError> {
    let Value::Object(fields) = auth else {
        return Err(field_error(
            "auth",
            "must be an object with bearer, header, google, sigv4 or entra",
        ));
    };
    let mut table = toml::Table::new();
    for (name, value) in fields {
        let field = format!("auth.{name}");
        let read = match (name.as_str(), value) {
            ("bearer" | "value", value) => secret_reference(&field, value)?,
            ("google", value) => google_account(&field, value)?,
            ("sigv4" | "entra", Value::Object(parts)) => method_fields(&field, parts)?,
            // A word would be an identity of this machine.
            ("sigv4" | "entra", Value::String(_)) => {
                return Err(field_error(&field, HOST_IDENTITY_REFUSED));
            }
            (_, value) => text_value(&field, value)?,
        };
        table.insert(name.clone(), read);
    }
    Ok(RawAuth(table.into()))
}

/// Reads the fields of a method with several.
fn method_fields(field: &str, parts: &Map<String, Value>) -> Result<toml::Value, FieldError> {
    let mut table = toml::Table::new();
    for (name, value) in parts {
        let field = format!("{field}.{name}");
        let read = match name.as_str() {
            "access_key" | "secret_key" | "session_token" | "client_secret" => {
                secret_reference(&field, value)?
            }
            "certificate" => certificate_reference(&field, value)?,
            "from" | "token_file" => return Err(field_error(&field, HOST_IDENTITY_REFUSED)),
            _ => text_value(&field, value)?,
        };
        table.insert(name.clone(), read);
    }
    Ok(table.into())
}

/// Checks a certificate with its key in PEM, which has several lines.
fn certificate_reference(field: &str, value: &Value) -> Result<toml::Value, FieldError> {
    let text = value.as_str().ok_or_else(|| field_error(field, SECRET_EXPECTED))?;
    if text.len() > MAX_CERTIFICATE_BYTES || !text.contains("-----BEGIN ") {
        let why = format!("must be PEM of at most {MAX_CERTIFICATE_BYTES} bytes");
        return Err(field_error(field, why));
    }
    Ok(text_reference(text))
}

fn text_value(field: &str, value: &Value) -> Result<toml::Value, FieldError> {
    let text = value.as_str().ok_or_else(|| field_error(field, "must be a text"))?;
    Ok(text.into())
}

fn text_reference(text: &str) -> toml::Value {
    toml::Table::from_iter([("text".to_owned(), text.into())]).into()
}

/// Checks a secret that goes into a header or a signature.
fn secret_reference(field: &str, value: &Value) -> Result<toml::Value, FieldError> {
    let text = value.as_str().ok_or_else(|| field_error(field, SECRET_EXPECTED))?;
    if text.is_empty()
        || text.len() > MAX_SECRET_BYTES
        || !text.bytes().all(|b| b.is_ascii_graphic())
    {
        let why =
            format!("must have 1 to {MAX_SECRET_BYTES} visible ASCII characters, without spaces");
        return Err(field_error(field, why));
    }
    Ok(text_reference(text))
}

/// Checks the JSON of a Google account, given as an object or as text.
fn google_account(field: &str, value: &Value) -> Result<toml::Value, FieldError> {
    let text = match value {
        Value::Object(_) => value.to_string(),
        Value::String(text) if text.trim_start().starts_with('{') => text.clone(),
        _ => return Err(field_error(field, "must be the JSON of an account")),
    };
    if text.len() > MAX_SECRET_BYTES {
        return Err(field_error(field, format!("must have at most {MAX_SECRET_BYTES} bytes")));
    }
    // The account names the host that tokens are requested from. A stored account may only name
    // Google; another host would receive the signed assertion.
    let read: Value = serde_json::from_str(&text).unwrap_or_default();
    if read.get("type").is_some_and(|kind| kind == "external_account") {
        return Err(field_error(field, HOST_IDENTITY_REFUSED));
    }
    let elsewhere = read.get("token_uri").is_some_and(|uri| {
        let uri = uri.as_str().and_then(|uri| uri.parse::<http::Uri>().ok());
        !uri.is_some_and(|uri| {
            uri.scheme_str() == Some("https")
                && uri.authority().is_some_and(|at| at.as_str().ends_with(".googleapis.com"))
        })
    });
    if elsewhere {
        let why = "must be at googleapis.com; others are for the configuration file";
        return Err(field_error(&format!("{field}.token_uri"), why));
    }
    Ok(text_reference(&text))
}
