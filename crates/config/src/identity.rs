//! Mail and OpenID Connect providers of the configuration.

use lettre::message::Mailbox;
use lettre::{AsyncSmtpTransport, Tokio1Executor};
use std::collections::BTreeMap;
use store::AccountRole;

use crate::error::FieldError;
use crate::identity_groups::{self, GroupMapping};
use crate::mail::{Mailer, SMTP_TIMEOUT};
use crate::raw::{RawIdentity, RawMail};

/// An OpenID Connect provider.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityProvider {
    /// Name in the configuration and in sign-in URLs.
    pub name: String,
    /// URL of the provider, which is also the `iss` claim of its tokens:
    /// <https://openid.net/specs/openid-connect-core-1_0.html#IDToken>.
    pub issuer: String,
    /// Client id of this gateway.
    pub client_id: String,
    /// Client secret of this gateway.
    pub client_secret: String,
    /// Role of new users; `None` admits only users who have an account.
    pub default_role: Option<AccountRole>,
    /// Role and teams by groups of the provider; `None` gives both by hand.
    pub groups: Option<GroupMapping>,
}

/// Omits the secret.
impl std::fmt::Debug for IdentityProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdentityProvider")
            .field("name", &self.name)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// Checks `[mail]`. The URL may hold a password, so no error repeats it.
pub(super) fn mailer(raw: RawMail) -> Result<Mailer, FieldError> {
    let RawMail { url, from } = raw;
    let smtp = AsyncSmtpTransport::<Tokio1Executor>::from_url(&url).map_err(|e| {
        let why = if e.is_tls() {
            "mail over TLS needs the root certificates of the machine, and it has none: install its \
             package of them (often `ca-certificates`)"
        } else {
            "not an address; write for instance \"smtp://127.0.0.1:25\" or \
             \"smtps://user:password@mail.example.com\""
        };
        FieldError::new("mail.url", why)
    })?;
    let from: Mailbox = from.parse().map_err(|_| {
        FieldError::new(
            "mail.from",
            format_args!("`{from}` is not a sender; write \"Portunus <no-reply@example.com>\""),
        )
    })?;
    Ok(Mailer { smtp: smtp.timeout(Some(SMTP_TIMEOUT)).build(), from })
}

/// Checks `[identity]`.
pub(super) fn identity_providers(
    raw: BTreeMap<String, RawIdentity>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<IdentityProvider>, FieldError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let providers: Vec<IdentityProvider> = raw
        .into_iter()
        .map(|(name, raw)| {
            let field_error = |field: &str, why: &str| {
                FieldError::new(format_args!("identity.{name}.{field}"), why)
            };
            if name.is_empty() || !name.chars().all(plain) || name == "remove" {
                return Err(FieldError::new(
                    format_args!("identity.{name}"),
                    "a name may have lower-case letters, digits and dashes",
                ));
            }
            let RawIdentity { issuer, client_id, client_secret, admits, groups } = raw;
            let uri: http::Uri =
                issuer.parse().map_err(|_| field_error("issuer", "is not an address"))?;
            let is_web = matches!(uri.scheme_str(), Some("https" | "http"));
            if !is_web || uri.host().is_none() || uri.query().is_some() {
                return Err(field_error("issuer", "must be an https address without a query"));
            }
            if client_id.is_empty() {
                return Err(field_error("client_id", "must not be empty"));
            }
            let client_secret = client_secret
                .resolve(env)
                .map_err(|why| field_error("client_secret", &why.to_string()))?;
            let role = |word: String| match AccountRole::by_word(&word) {
                Some(role @ (AccountRole::Admin | AccountRole::Member | AccountRole::Viewer)) => {
                    Ok(role)
                }
                Some(AccountRole::Owner) | None => {
                    Err(field_error("admits", "write \"member\", \"viewer\" or \"admin\""))
                }
            };
            let admits = admits.map(role).transpose()?;
            let groups = groups.map(identity_groups::check).transpose();
            let groups = groups.map_err(|why| why.below(format_args!("identity.{name}")))?;
            Ok(IdentityProvider {
                name: name.clone(),
                issuer,
                client_id,
                client_secret,
                default_role: admits,
                groups,
            })
        })
        .collect::<Result<_, FieldError>>()?;
    check_issuers(&providers)?;
    Ok(providers)
}

/// Refuses two sections with one issuer. People are known by the issuer and their id there, so that the SCIM token
/// of one section could change the people of the other.
fn check_issuers(providers: &[IdentityProvider]) -> Result<(), FieldError> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for IdentityProvider { name, issuer, .. } in providers {
        if let Some(other) = names.insert(issuer, name) {
            let why = format_args!(
                "is that of `identity.{other}` too; a provider has one section, with one `client_id`"
            );
            return Err(FieldError::new(format_args!("identity.{name}.issuer"), why));
        }
    }
    Ok(())
}
