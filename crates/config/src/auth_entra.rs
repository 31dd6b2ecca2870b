//! `auth = { entra = … }`: an application of Microsoft Entra ID, or the identity of this machine.

use toml::Value;
use upstream::{Credential, EntraApplication, EntraAuth, EntraAuthError, HostIdentity};

use crate::auth::{
    AuthContext, nonempty_text, reject_unknown_fields, resolve_reference, system_now,
};
use crate::error::FieldError;
use crate::raw::SecretRef;
use crate::units::nearest_word;

const PATH: &str = "auth.entra";
/// Words of `from`.
const ORIGINS: [&str; 3] = ["default", "managed-identity", "workload-identity"];
const FIELDS: [&str; 8] = [
    "from",
    "tenant",
    "client_id",
    "client_secret",
    "certificate",
    "token_file",
    "authority",
    "scope",
];

/// Texts of the table.
struct EntraFields<'a> {
    tenant: Option<&'a str>,
    client_id: Option<&'a str>,
    token_file: Option<&'a str>,
    authority: Option<&'a str>,
    scope: Option<&'a str>,
}

pub(super) fn parse_entra(
    value: &Value,
    context: &AuthContext<'_>,
) -> Result<Credential, FieldError> {
    let empty = toml::Table::new();
    let (table, word) = match value {
        Value::Table(table) => (table, None),
        // Another word may be a secret in the wrong place.
        Value::String(word) if ORIGINS.contains(&word.as_str()) => (&empty, Some(word.as_str())),
        _ => {
            let why = "must be a table of tenant, client_id and client_secret, or one of the words \
                       \"default\", \"managed-identity\" and \"workload-identity\"";
            return Err(FieldError::new(PATH, why));
        }
    };
    reject_unknown_fields(PATH, table, &FIELDS)?;
    let text = |field: &str| {
        table.get(field).map(|value| nonempty_text(&format!("{PATH}.{field}"), value)).transpose()
    };
    let secret = |field: &str| {
        let path = format!("{PATH}.{field}");
        table.get(field).map(|value| resolve_reference(&path, value, context.env)).transpose()
    };
    let fields = EntraFields {
        tenant: text("tenant")?,
        client_id: text("client_id")?,
        token_file: text("token_file")?,
        authority: text("authority")?,
        scope: text("scope")?,
    };
    if context.host.is_none()
        && fields.authority.is_some_and(|authority| !EntraAuth::is_known_authority(authority))
    {
        let why = "is not a sign-in service of Microsoft; others are for the configuration file";
        return Err(FieldError::new(format_args!("{PATH}.authority"), why));
    }
    let origin = word.or(text("from")?);
    let (client_secret, certificate) = (secret("client_secret")?, secret("certificate")?);
    let built = match (origin, client_secret, certificate) {
        (None, Some(secret), None) => {
            EntraAuth::from_secret(&fields.application(None)?, &secret, system_now())
        }
        (None, None, Some(pem)) => {
            EntraAuth::from_certificate(&fields.application(None)?, &pem, system_now())
        }
        (None, None, None) => {
            let why = "is missing; write client_secret or certificate as a reference, or `from`";
            return Err(FieldError::new(format_args!("{PATH}.client_secret"), why));
        }
        (Some(origin), None, None) => {
            let host = context.require_host(PATH)?;
            match origin {
                "managed-identity" => fields.managed_identity(host),
                "workload-identity" => fields.workload_identity(host)?,
                "default" => fields.default_chain(host)?,
                word => {
                    let near = nearest_word(word, ORIGINS);
                    let near =
                        near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
                    let words = ORIGINS.map(|origin| format!("\"{origin}\"")).join(", ");
                    let why = format!("must be one of {words}{near}");
                    return Err(FieldError::new(format_args!("{PATH}.from"), why));
                }
            }
        }
        (_, Some(_), _) | (_, _, Some(_)) => {
            let why = "write only one of client_secret, certificate and `from`";
            return Err(FieldError::new(PATH, why));
        }
    };
    built
        .map(Credential::entra)
        .map_err(|EntraAuthError { field, reason }| FieldError::new(field, reason).below(PATH))
}

impl<'a> EntraFields<'a> {
    /// Returns the application of the table, completed from the environment of the machine.
    fn application(
        &self,
        host: Option<&'a HostIdentity>,
    ) -> Result<EntraApplication<'a>, FieldError> {
        let variable = |name| host.and_then(|host| host.variable(name));
        let needed = |field: &str, value: Option<&'a str>, name: &str| {
            value.ok_or_else(|| {
                let or = host.map_or_else(String::new, |_| format!(", or export {name}=…"));
                let why = format!("is missing; write it{or}");
                FieldError::new(format_args!("{PATH}.{field}"), why)
            })
        };
        let tenant = self.tenant.or_else(|| variable("AZURE_TENANT_ID"));
        let client_id = self.client_id.or_else(|| variable("AZURE_CLIENT_ID"));
        Ok(EntraApplication {
            tenant: needed("tenant", tenant, "AZURE_TENANT_ID")?,
            client_id: needed("client_id", client_id, "AZURE_CLIENT_ID")?,
            authority: self.authority.or_else(|| variable("AZURE_AUTHORITY_HOST")),
            scope: self.scope,
        })
    }

    fn managed_identity(&self, host: &HostIdentity) -> Result<EntraAuth, EntraAuthError> {
        let client_id = self.client_id.or_else(|| host.variable("AZURE_CLIENT_ID"));
        EntraAuth::from_managed_identity(client_id, self.scope, host, system_now())
    }

    fn workload_identity(
        &self,
        host: &'a HostIdentity,
    ) -> Result<Result<EntraAuth, EntraAuthError>, FieldError> {
        const VARIABLE: &str = "AZURE_FEDERATED_TOKEN_FILE";
        let file = self.token_file.or_else(|| host.variable(VARIABLE)).ok_or_else(|| {
            let why = format!("is missing; write the path of the file, or export {VARIABLE}=…");
            FieldError::new(format_args!("{PATH}.token_file"), why)
        })?;
        let application = self.application(Some(host))?;
        Ok(EntraAuth::from_token_file(&application, file, host, system_now()))
    }

    /// Takes the first that the environment names: an application with its secret or certificate, the
    /// workload identity, the managed identity. That is the order of Microsoft's own libraries:
    /// <https://learn.microsoft.com/dotnet/azure/sdk/authentication/credential-chains>.
    fn default_chain(
        &self,
        host: &'a HostIdentity,
    ) -> Result<Result<EntraAuth, EntraAuthError>, FieldError> {
        if let Some(secret) = host.variable("AZURE_CLIENT_SECRET") {
            let application = self.application(Some(host))?;
            return Ok(EntraAuth::from_secret(&application, secret, system_now()));
        }
        if let Some(file) = host.variable("AZURE_CLIENT_CERTIFICATE_PATH") {
            let pem = SecretRef::File { file: file.into() }.resolve(&|_| None);
            let pem = pem.map_err(|why| FieldError::new(PATH, why))?;
            let application = self.application(Some(host))?;
            return Ok(EntraAuth::from_certificate(&application, &pem, system_now()));
        }
        match self.token_file.or_else(|| host.variable("AZURE_FEDERATED_TOKEN_FILE")) {
            Some(_) => self.workload_identity(host),
            None => Ok(self.managed_identity(host)),
        }
    }
}
