//! Parses every form of `auth` of a provider.
//!
//! An error names the field and never repeats its value, which may be a secret in the wrong place.

use ledger::{Clock as _, SystemClock};
use std::path::PathBuf;
use std::sync::Arc;
use toml::Value;
use upstream::{ClockFn, Credential, GoogleAuth, HostIdentity};

use crate::auth_aws::parse_sigv4;
use crate::auth_entra::parse_entra;
use crate::error::FieldError;
use crate::raw::SecretRef;
use crate::units::nearest_word;

/// Host of the metadata server on Google Cloud machines:
/// <https://cloud.google.com/compute/docs/metadata/overview>.
const METADATA_HOST: &str = "metadata.google.internal";
const AUTH_FORMS: &str = "write \"none\", { bearer = … }, { header = \"…\", value = … }, { google = … }, \
                   { sigv4 = … } or { entra = … }, where … is a reference such as { env = \"NAME\" }";
const REFERENCE_FORMS: &str = "must be a reference and not the secret itself: { env = \"NAME\" }, \
                         { file = \"path\" } or, for tests, { text = \"…\" }";

/// Facts about the provider that the parser of its credential needs.
pub(super) struct AuthContext<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// Region of the provider, if it is known already.
    pub(super) region: Option<&'a str>,
    /// AWS service of the provider according to the directory.
    pub(super) service: Option<&'a str>,
    /// Permission to use the identity of this machine. Credentials that administrators stored have
    /// none.
    pub(super) host: Option<&'a HostIdentity>,
}

impl<'a> AuthContext<'a> {
    /// Returns the permission to use the identity of this machine, or an error for this field.
    pub(super) fn require_host(&self, field: &str) -> Result<&'a HostIdentity, FieldError> {
        self.host.ok_or_else(|| FieldError::new(field, HOST_IDENTITY_REFUSED))
    }
}

/// Reason why a stored credential cannot use the identity of this machine.
pub(super) const HOST_IDENTITY_REFUSED: &str =
    "uses the identity of this machine, which only the configuration file may do";

/// Parses the credential in the configuration. An error begins with the field below the provider.
pub(super) fn parse_auth(
    auth: &Value,
    context: &AuthContext<'_>,
) -> Result<Credential, FieldError> {
    let table = match auth {
        Value::String(word) if word == "none" => return Ok(Credential::none()),
        Value::Table(table) => table,
        _ => {
            return Err(FieldError::new("auth", format_args!("has an unknown form; {AUTH_FORMS}")));
        }
    };
    let kinds = [
        ("bearer", &["bearer"][..]),
        ("header", &["header", "value"]),
        ("google", &["google"]),
        ("sigv4", &["sigv4"]),
        ("entra", &["entra"]),
    ];
    let found: Vec<_> = kinds.iter().filter(|(kind, _)| table.contains_key(*kind)).collect();
    let [(kind, fields)] = found[..] else {
        let none =
            if found.is_empty() { "names no known kind" } else { "names more than one kind" };
        return Err(FieldError::new("auth", format_args!("{none}; {AUTH_FORMS}")));
    };
    reject_unknown_fields("auth", table, fields)?;
    let value = |field: &str| table.get(field).unwrap_or(&Value::Boolean(false));
    match *kind {
        "bearer" => {
            let secret = resolve_reference("auth.bearer", value("bearer"), context.env)?;
            Credential::bearer(&secret).ok_or_else(|| invalid_header_secret("auth.bearer"))
        }
        "header" => {
            let name = nonempty_text("auth.header", value("header"))?;
            if Credential::header(name, "x").is_none() {
                return Err(FieldError::new("auth.header", "is not the name of a header"));
            }
            if !table.contains_key("value") {
                return Err(FieldError::new("auth.value", "is missing; write { env = \"NAME\" }"));
            }
            let secret = resolve_reference("auth.value", value("value"), context.env)?;
            Credential::header(name, &secret).ok_or_else(|| invalid_header_secret("auth.value"))
        }
        "google" => parse_google(value("google"), context),
        "entra" => parse_entra(value("entra"), context),
        _ => parse_sigv4(value("sigv4"), context),
    }
}

/// Builds a bearer or header credential from the value of an environment variable.
pub(super) fn header_credential(
    name: Option<&str>,
    secret: &str,
) -> Result<Credential, FieldError> {
    let credential = match name {
        None => Credential::bearer(secret),
        Some(name) => Credential::header(name, secret),
    };
    credential.ok_or_else(|| invalid_header_secret("auth"))
}

/// Reads a Google account from the value of its environment variable: a path, or the JSON itself.
pub(super) fn google_credential(
    value: &str,
    context: &AuthContext<'_>,
) -> Result<Credential, FieldError> {
    if value.trim_start().starts_with('{') {
        return google_account(value, context);
    }
    let file = SecretRef::File { file: PathBuf::from(value) };
    let account = file.resolve(&|_| None).map_err(|why| FieldError::new("", why))?;
    google_account(&account, context)
}

fn parse_google(value: &Value, context: &AuthContext<'_>) -> Result<Credential, FieldError> {
    const PATH: &str = "auth.google";
    const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    let env = context.env;
    let with_path = |error: FieldError| error.below(PATH);
    match value {
        Value::String(word) if word == "adc" => {
            context.require_host(PATH)?;
            if let Some(file) = env(VARIABLE).filter(|file| !file.trim().is_empty()) {
                return google_credential(file.trim(), context).map_err(with_path);
            }
            let default_file = env("HOME").map(|home| {
                PathBuf::from(home).join(".config/gcloud/application_default_credentials.json")
            });
            if let Some(file) = default_file.filter(|file| file.exists()) {
                let file = file.display().to_string();
                return google_credential(&file, context).map_err(with_path);
            }
            google_metadata(context)
        }
        Value::String(word) if word == "metadata" => google_metadata(context),
        Value::String(_) => Err(FieldError::new(
            PATH,
            format_args!("write \"adc\", \"metadata\" or a reference; it {REFERENCE_FORMS}"),
        )),
        // As in Google's own libraries, the variable usually holds the path of the file:
        // <https://cloud.google.com/docs/authentication/application-default-credentials>.
        Value::Table(table) if table.contains_key("env") => {
            google_credential(&resolve_reference(PATH, value, env)?, context).map_err(with_path)
        }
        _ => google_account(&resolve_reference(PATH, value, env)?, context).map_err(with_path),
    }
}

/// Uses the account of this machine, from its metadata server.
fn google_metadata(context: &AuthContext<'_>) -> Result<Credential, FieldError> {
    const PATH: &str = "auth.google";
    let host = context.require_host(PATH)?;
    let address = (context.env)("GCE_METADATA_HOST").unwrap_or_else(|| METADATA_HOST.to_owned());
    let machine = GoogleAuth::from_metadata_server(&address, host, system_now());
    machine.map(Credential::google).map_err(|why| FieldError::new(PATH, why))
}

fn google_account(json: &str, context: &AuthContext<'_>) -> Result<Credential, FieldError> {
    GoogleAuth::from_account(json, context.host, system_now())
        .map(Credential::google)
        .map_err(|why| FieldError::new("", why))
}

/// Returns an error for a field that is not in `known`.
pub(super) fn reject_unknown_fields(
    path: &str,
    table: &toml::Table,
    known: &[&str],
) -> Result<(), FieldError> {
    let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) else {
        return Ok(());
    };
    let near = nearest_word(unknown, known.iter().copied());
    let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Err(FieldError::new(path, format_args!("unknown field `{unknown}`{near}")))
}

/// Returns a text that is not empty.
pub(super) fn nonempty_text<'a>(path: &str, value: &'a Value) -> Result<&'a str, FieldError> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.ok_or_else(|| FieldError::new(path, "must be a text that is not empty"))
}

/// Resolves a reference to a secret.
pub(super) fn resolve_reference(
    path: &str,
    value: &Value,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<String, FieldError> {
    let table = value.as_table().filter(|table| table.len() == 1);
    let Some((key, Value::String(word))) = table.and_then(|table| table.iter().next()) else {
        return Err(FieldError::new(path, REFERENCE_FORMS));
    };
    let secret = match key.as_str() {
        "env" => SecretRef::Env { env: word.clone() },
        "file" => SecretRef::File { file: PathBuf::from(word) },
        "text" => SecretRef::Text { text: word.clone() },
        _ => return Err(FieldError::new(path, REFERENCE_FORMS)),
    };
    secret.resolve(env).map_err(|why| FieldError::new(path, why))
}

fn invalid_header_secret(path: &str) -> FieldError {
    FieldError::new(path, "the secret holds characters that are not valid in a header")
}

/// Returns the clock of credentials.
pub(super) fn system_now() -> ClockFn {
    Arc::new(|| SystemClock.now())
}
