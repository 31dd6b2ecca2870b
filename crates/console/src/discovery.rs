//! Cache of the identity providers' discovery documents
//! (<https://openid.net/specs/openid-connect-discovery-1_0.html>).

use canon::Micros;
use openidconnect::core::{
    CoreAuthDisplay, CoreClaimName, CoreClaimType, CoreClientAuthMethod, CoreGrantType,
    CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm,
    CoreResponseMode, CoreResponseType, CoreSubjectIdentifierType,
};
use openidconnect::{AdditionalProviderMetadata, ProviderMetadata};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Lifetime of a cached discovery document, and the shortest time between two fetches.
const DISCOVERY_TTL: Micros = Micros::from_secs(300);

/// Discovery fields the crate does not read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ExtraMetadata {
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

impl AdditionalProviderMetadata for ExtraMetadata {}

/// A provider's discovery document with its keys.
pub(crate) type DiscoveryDocument = ProviderMetadata<
    ExtraMetadata,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// Discovery documents by issuer, with the time they were fetched.
#[derive(Default)]
pub(crate) struct DiscoveryCache(Mutex<HashMap<String, (Micros, DiscoveryDocument)>>);

impl DiscoveryCache {
    /// Returns the document of an issuer unless it is older than [`DISCOVERY_TTL`].
    pub(crate) fn get(&self, issuer: &str, now: Micros) -> Option<DiscoveryDocument> {
        let found = self.0.lock().get(issuer).cloned();
        let fresh = found.filter(|(fetched_at, _)| now - *fetched_at < DISCOVERY_TTL);
        fresh.map(|(_, document)| document)
    }

    /// Stores the document of an issuer.
    pub(crate) fn insert(&self, issuer: &str, now: Micros, document: DiscoveryDocument) {
        self.0.lock().insert(issuer.to_owned(), (now, document));
    }
}
