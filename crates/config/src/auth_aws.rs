//! `auth = { sigv4 = … }`: given keys, or keys of a role that are fetched and renewed.

use toml::Value;
use upstream::{AwsCredentials, AwsIdentityError, AwsRole, Credential, SigV4Error, SigV4Signer};

use crate::auth::{
    AuthContext, nonempty_text, reject_unknown_fields, resolve_reference, system_now,
};
use crate::error::FieldError;
use crate::units::nearest_word;

/// AWS service of a provider for which the directory names none.
const DEFAULT_AWS_SERVICE: &str = "bedrock";
const PATH: &str = "auth.sigv4";
/// Words of `from`.
const ORIGINS: [&str; 4] = ["default", "instance", "container", "web-identity"];

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
    AwsCredentials::from_keys(&access, &secret, session.as_deref())
        .and_then(|keys| SigV4Signer::new(region, service, keys, system_now()))
        .map(Credential::sigv4)
        .map_err(|why| FieldError::new("auth", why))
}

/// Returns the region beside the keys. The address of the provider uses it too.
pub(super) fn sigv4_region(auth: Option<&Value>) -> Option<&str> {
    auth?.get("sigv4")?.get("region")?.as_str()
}

pub(super) fn parse_sigv4(
    value: &Value,
    context: &AuthContext<'_>,
) -> Result<Credential, FieldError> {
    let empty = toml::Table::new();
    let (table, word) = match value {
        Value::Table(table) => (table, None),
        Value::String(word) => (&empty, Some(word.as_str())),
        _ => return Err(missing_keys()),
    };
    reject_unknown_fields(
        PATH,
        table,
        &[
            "region",
            "service",
            "access_key",
            "secret_key",
            "session_token",
            "from",
            "role",
            "external_id",
            "session_name",
        ],
    )?;
    let text = |field: &str| {
        table.get(field).map(|value| nonempty_text(&format!("{PATH}.{field}"), value)).transpose()
    };
    let origin = match (word, text("from")?) {
        (Some(word), _) | (None, Some(word)) => Some(word),
        (None, None) => None,
    };
    if let Some(origin) = origin {
        // A word that is no origin may be a secret in the wrong place.
        let known = ORIGINS.contains(&origin);
        if !known && word.is_some() {
            return Err(missing_keys());
        }
        if !known {
            return Err(unknown_origin(origin));
        }
    }
    let region = text("region")?.or(context.region).ok_or_else(|| {
        missing("region", "for instance \"us-east-1\", as `region` of `sigv4` or of `fill`")
    })?;
    let service = text("service")?.or(context.service).unwrap_or(DEFAULT_AWS_SERVICE);
    let given = ["access_key", "secret_key", "session_token"].map(|field| {
        let path = format!("{PATH}.{field}");
        table.get(field).map(|value| resolve_reference(&path, value, context.env)).transpose()
    });
    let [access, secret, session] = given;
    let (access, secret, session) = (access?, secret?, session?);
    let mut credentials = match origin {
        Some(origin) => {
            if access.is_some() || secret.is_some() || session.is_some() {
                let why = "stands beside keys; write `from` or the keys";
                return Err(FieldError::new(format_args!("{PATH}.from"), why));
            }
            fetched_keys(origin, region, context)?
        }
        None => {
            let access =
                access.ok_or_else(|| missing("access_key", "{ env = \"AWS_ACCESS_KEY_ID\" }"))?;
            let secret = secret
                .ok_or_else(|| missing("secret_key", "{ env = \"AWS_SECRET_ACCESS_KEY\" }"))?;
            AwsCredentials::from_keys(&access, &secret, session.as_deref())
                .map_err(|wrong| key_error(&wrong))?
        }
    };
    let (external_id, session_name) = (text("external_id")?, text("session_name")?);
    if let Some(arn) = text("role")? {
        let sts_endpoint = context.host.and_then(|host| host.variable("AWS_ENDPOINT_URL_STS"));
        let role = AwsRole { arn, external_id, session_name, region, sts_endpoint };
        credentials =
            credentials.assume_role(&role, system_now()).map_err(|e| identity_error(&e))?;
    } else if external_id.is_some() || session_name.is_some() {
        let why = "is missing; `external_id` and `session_name` belong to a role";
        return Err(FieldError::new(format_args!("{PATH}.role"), why));
    }
    SigV4Signer::new(region, service, credentials, system_now())
        .map(Credential::sigv4)
        .map_err(|wrong| key_error(&wrong))
}

/// Returns the keys of a role of this machine.
fn fetched_keys(
    origin: &str,
    region: &str,
    context: &AuthContext<'_>,
) -> Result<AwsCredentials, FieldError> {
    let host = context.require_host(PATH)?;
    let now = system_now();
    let found = match origin {
        "instance" => AwsCredentials::from_instance(host, now),
        "container" => AwsCredentials::from_container(host, now),
        "web-identity" => AwsCredentials::from_web_identity(host, region, now),
        _ => AwsCredentials::from_default_chain(host, region, now),
    };
    found.map_err(|e| identity_error(&e))
}

fn missing_keys() -> FieldError {
    let why = "must be a table of region, access_key and secret_key, or one of the words \"default\", \
               \"instance\", \"container\" and \"web-identity\"";
    FieldError::new(PATH, why)
}

fn unknown_origin(word: &str) -> FieldError {
    let near = nearest_word(word, ORIGINS);
    let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    let words = ORIGINS.map(|origin| format!("\"{origin}\"")).join(", ");
    FieldError::new(format_args!("{PATH}.from"), format_args!("must be one of {words}{near}"))
}

fn missing(field: &str, how: &str) -> FieldError {
    FieldError::new(format_args!("{PATH}.{field}"), format_args!("is missing; write {how}"))
}

fn key_error(wrong: &SigV4Error) -> FieldError {
    FieldError::new(wrong.field, wrong.reason).below(PATH)
}

fn identity_error(error: &AwsIdentityError) -> FieldError {
    match error {
        AwsIdentityError::Invalid(
            field @ ("region" | "role" | "external_id" | "session_name"),
            why,
        ) => FieldError::new(field, why).below(PATH),
        AwsIdentityError::Invalid(..)
        | AwsIdentityError::Unset(_)
        | AwsIdentityError::Keys(_)
        | AwsIdentityError::EmptyChain => FieldError::new(PATH, error),
    }
}
