//! Parses every form of `auth` of a provider.
//!
//! An error names the field and never repeats its value, which may be a secret in the wrong place.

use ledger::{Clock as _, SystemClock};
use std::path::PathBuf;
use std::sync::Arc;
use toml::Value;
use upstream::{ClockFn, Credential, GoogleAuth, SigV4Signer};

use crate::error::FieldError;
use crate::raw::SecretRef;
use crate::units::nearest_word;

/// AWS service of a provider for which the directory names none.
const DEFAULT_AWS_SERVICE: &str = "bedrock";
/// Host of the metadata server on Google Cloud machines:
/// <https://cloud.google.com/compute/docs/metadata/overview>.
const METADATA_HOST: &str = "metadata.google.internal";
const AUTH_FORMS: &str = "write \"none\", { bearer = … }, { header = \"…\", value = … }, { google = … } or \
                   { sigv4 = … }, where … is a reference such as { env = \"NAME\" }";
const REFERENCE_FORMS: &str = "must be a reference and not the secret itself: { env = \"NAME\" }, \
                         { file = \"path\" } or, for tests, { text = \"…\" }";

/// Facts about the provider that the parser of its credential needs.
pub(super) struct AuthContext<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// Region of the provider, if it is known already.
    pub(super) region: Option<&'a str>,
    /// AWS service of the provider according to the directory.
    pub(super) service: Option<&'a str>,
}

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
        "google" => parse_google(value("google"), context.env),
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
pub(super) fn google_credential(value: &str) -> Result<Credential, FieldError> {
    if value.trim_start().starts_with('{') {
        return google_account(value);
    }
    let path = PathBuf::from(value);
    google_account(
        &SecretRef::File { file: path }
            .resolve(&|_| None)
            .map_err(|why| FieldError::new("", why))?,
    )
}

/// Reads AWS keys from their default environment variables.
pub(super) fn sigv4_from_env(context: &AuthContext<'_>) -> Result<Credential, FieldError> {
    let named = |name: &str| {
        let set = (context.env)(name).filter(|value| !value.trim().is_empty());
        set.map(|value| value.trim().to_owned())
    };
    let needed = |name: &str| {
        named(name).ok_or_else(|| FieldError::new("auth", format_args!("export {name}=… as well")))
    };
    let (access, secret) = (needed("AWS_ACCESS_KEY_ID")?, needed("AWS_SECRET_ACCESS_KEY")?);
    let session = named("AWS_SESSION_TOKEN");
    let region =
        context.region.ok_or_else(|| FieldError::new("auth", "export AWS_REGION=… as well"))?;
    let service = context.service.unwrap_or(DEFAULT_AWS_SERVICE);
    SigV4Signer::new(region, service, &access, &secret, session.as_deref(), system_now())
        .map(Credential::sigv4)
        .map_err(|why| FieldError::new("auth", why))
}

/// Returns the region beside the keys. The address of the provider uses it too.
pub(super) fn sigv4_region(auth: Option<&Value>) -> Option<&str> {
    auth?.get("sigv4")?.get("region")?.as_str()
}

fn parse_google(
    value: &Value,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Credential, FieldError> {
    const PATH: &str = "auth.google";
    const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    let with_path = |error: FieldError| error.below(PATH);
    match value {
        Value::String(word) if word == "adc" => {
            if let Some(file) = env(VARIABLE).filter(|file| !file.trim().is_empty()) {
                return google_credential(file.trim()).map_err(with_path);
            }
            let default_file = env("HOME").map(|home| {
                PathBuf::from(home).join(".config/gcloud/application_default_credentials.json")
            });
            if let Some(file) = default_file.filter(|file| file.exists()) {
                return google_credential(&file.display().to_string()).map_err(with_path);
            }
            let host = env("GCE_METADATA_HOST").unwrap_or_else(|| METADATA_HOST.to_owned());
            let machine = GoogleAuth::from_metadata_server(&host, system_now())
                .map_err(|why| FieldError::new(PATH, why));
            machine.map(Credential::google)
        }
        Value::String(_) => Err(FieldError::new(
            PATH,
            format_args!("write \"adc\" or a reference; it {REFERENCE_FORMS}"),
        )),
        // As in Google's own libraries, the variable usually holds the path of the file:
        // <https://cloud.google.com/docs/authentication/application-default-credentials>.
        Value::Table(table) if table.contains_key("env") => {
            google_credential(&resolve_reference(PATH, value, env)?).map_err(with_path)
        }
        _ => google_account(&resolve_reference(PATH, value, env)?).map_err(with_path),
    }
}

fn google_account(json: &str) -> Result<Credential, FieldError> {
    GoogleAuth::from_json(json, system_now())
        .map(Credential::google)
        .map_err(|why| FieldError::new("", why))
}

fn parse_sigv4(value: &Value, context: &AuthContext<'_>) -> Result<Credential, FieldError> {
    const PATH: &str = "auth.sigv4";
    let Some(table) = value.as_table() else {
        return Err(FieldError::new(PATH, "must be a table of region, access_key and secret_key"));
    };
    reject_unknown_fields(
        PATH,
        table,
        &["region", "service", "access_key", "secret_key", "session_token"],
    )?;
    let word = |field: &str| {
        table.get(field).map(|value| nonempty_text(&format!("{PATH}.{field}"), value)).transpose()
    };
    let secret_of = |field: &str| {
        let path = format!("{PATH}.{field}");
        table.get(field).map(|value| resolve_reference(&path, value, context.env)).transpose()
    };
    let missing = |field: &str, how: &str| {
        FieldError::new(format_args!("{PATH}.{field}"), format_args!("is missing; write {how}"))
    };
    let region = word("region")?.or(context.region);
    let region = region.ok_or_else(|| missing("region", "for instance \"us-east-1\""))?;
    let service = word("service")?.or(context.service).unwrap_or(DEFAULT_AWS_SERVICE);
    let access = secret_of("access_key")?;
    let access = access.ok_or_else(|| missing("access_key", "{ env = \"AWS_ACCESS_KEY_ID\" }"))?;
    let key = secret_of("secret_key")?;
    let key = key.ok_or_else(|| missing("secret_key", "{ env = \"AWS_SECRET_ACCESS_KEY\" }"))?;
    let session = secret_of("session_token")?;
    SigV4Signer::new(region, service, &access, &key, session.as_deref(), system_now())
        .map(Credential::sigv4)
        .map_err(|error| FieldError::new(error.field, error.reason).below(PATH))
}

/// Returns an error for a field that is not in `known`.
fn reject_unknown_fields(
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

fn nonempty_text<'a>(path: &str, value: &'a Value) -> Result<&'a str, FieldError> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.ok_or_else(|| FieldError::new(path, "must be a text that is not empty"))
}

/// Resolves a reference to a secret.
fn resolve_reference(
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

fn system_now() -> ClockFn {
    Arc::new(|| SystemClock.now())
}
