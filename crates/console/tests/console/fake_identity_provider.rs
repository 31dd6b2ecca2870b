//! In-process identity provider with a discovery document and a key. It answers a code with any
//! token a test wants.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use console::{HostError, IdentityProvider};
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::AccountRole;

pub(crate) const ISSUER: &str = "https://id.example";
pub(crate) const OTHER: &str = "https://other.example";

pub(crate) struct FakeIdentityProvider {
    pair: EcdsaKeyPair,
    /// Claims of the next token.
    pub(crate) claims: Mutex<Value>,
    /// Header of the token; the signature uses the provider's key or this text.
    pub(crate) header: Mutex<Value>,
    pub(crate) signature: Mutex<Option<String>>,
    /// Requests to the token endpoint.
    pub(crate) redeemed: Mutex<Vec<String>>,
    pub(crate) admits: Mutex<Option<AccountRole>>,
    /// Role and teams by groups.
    pub(crate) groups: Mutex<Option<config::GroupMapping>>,
}

impl FakeIdentityProvider {
    pub(crate) fn new() -> Self {
        Self {
            pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            claims: Mutex::default(),
            header: Mutex::new(json!({ "alg": "ES256", "kid": "one" })),
            signature: Mutex::default(),
            redeemed: Mutex::default(),
            admits: Mutex::new(Some(AccountRole::Member)),
            groups: Mutex::default(),
        }
    }

    pub(crate) fn known(&self) -> Vec<IdentityProvider> {
        let one = |name: &str, issuer: &str| IdentityProvider {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            client_id: "portunus".to_owned(),
            client_secret: "shared-with-corp".to_owned(),
            default_role: *self.admits.lock(),
            groups: self.groups.lock().clone(),
        };
        vec![one("corp", ISSUER), one("other", OTHER)]
    }

    pub(crate) fn answer(
        &self,
        request: &Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, HostError> {
        let uri = request.uri().to_string();
        let issuer = if uri.starts_with(ISSUER) { ISSUER } else { OTHER };
        let body = match uri.strip_prefix(issuer).unwrap() {
            "/.well-known/openid-configuration" => json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "jwks_uri": format!("{issuer}/keys"),
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256", "HS256", "none"],
                "authorization_response_iss_parameter_supported": issuer == ISSUER,
            }),
            "/keys" => {
                let point = self.pair.public_key().as_ref();
                let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
                json!({ "keys": [{
                    "kty": "EC", "crv": "P-256", "use": "sig", "kid": "one", "alg": "ES256",
                    "x": part(1..33), "y": part(33..65),
                }] })
            }
            "/token" => {
                let sent = String::from_utf8(request.body().clone()).unwrap();
                self.redeemed.lock().push(sent);
                json!({
                    "access_token": "access", "token_type": "Bearer", "id_token": self.token(),
                })
            }
            other => return Err(HostError(format!("nothing at {other}"))),
        };
        let response = Response::builder().header("content-type", "application/json");
        response.body(body.to_string().into_bytes()).map_err(|e| HostError(e.to_string()))
    }

    fn token(&self) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let front = format!("{}.{}", part(&self.header.lock()), part(&self.claims.lock()));
        let signature = match &*self.signature.lock() {
            Some(text) => text.clone(),
            None => {
                let signed = self.pair.sign(&SystemRandom::new(), front.as_bytes()).unwrap();
                URL_SAFE_NO_PAD.encode(signed)
            }
        };
        format!("{front}.{signature}")
    }
}
