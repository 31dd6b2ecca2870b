//! Answers to the challenges of an authority. They are in the store, so that every node can give them.

use aws_lc_rs::digest::{SHA256, digest};
use config::{AcmeChallenge, AcmeSettings};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use std::sync::Arc;
use store::Store;
use tokio::sync::Semaphore;
use transport::server::{ChallengeCertificates, ChallengeFuture};

use crate::app::App;

/// Questions at a time for the store. Anybody may ask, so they must not take all its connections.
const MAX_QUESTIONS: usize = 4;
/// Longest token that is looked up. They have 43 letters or so.
const MAX_TOKEN_BYTES: usize = 256;

/// Answers to challenges, by any node.
pub(crate) struct ChallengeStore {
    app: Arc<App>,
    places: Semaphore,
}

impl ChallengeStore {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app, places: Semaphore::new(MAX_QUESTIONS) }
    }

    fn settings(&self, challenge: AcmeChallenge) -> Option<Arc<AcmeSettings>> {
        let config = self.app.config();
        let settings = config.tls.as_ref()?.acme()?;
        (settings.challenge == challenge).then(|| Arc::clone(settings))
    }

    async fn look_up(&self, challenge: AcmeChallenge, name: &str) -> Option<String> {
        let _place = self.places.acquire().await.ok()?;
        match find(&self.app.store, challenge, name).await {
            Ok(found) => found,
            Err(e) => {
                tracing::warn!("the answer to a challenge cannot be looked up: {e}");
                None
            }
        }
    }

    /// Returns the answer to a challenge over HTTP.
    pub(crate) async fn http_answer(&self, token: &str) -> Option<String> {
        let challenge = AcmeChallenge::Http01;
        self.settings(challenge)?;
        if !is_token(token) {
            return None;
        }
        self.look_up(challenge, token).await
    }

    async fn tls_answer(&self, name: &str) -> Option<Arc<ServerConfig>> {
        let challenge = AcmeChallenge::TlsAlpn01;
        let settings = self.settings(challenge)?;
        let name = name.to_ascii_lowercase();
        if !settings.domains.contains(&name) {
            return None;
        }
        let answer = self.look_up(challenge, &name).await?;
        match challenge_config(&name, &answer) {
            Ok(config) => Some(Arc::new(config)),
            Err(e) => {
                tracing::error!("the answer to the challenge for {name} cannot be made: {e}");
                None
            }
        }
    }
}

impl ChallengeCertificates for ChallengeStore {
    fn answer<'a>(&'a self, name: &'a str) -> ChallengeFuture<'a> {
        Box::pin(self.tls_answer(name))
    }
}

async fn find(
    store: &Store,
    challenge: AcmeChallenge,
    name: &str,
) -> Result<Option<String>, store::StoreError> {
    store.challenge_answer(challenge.word(), name).await
}

/// Returns true for a text that can be a token (RFC 8555, section 8.3: base64url without padding).
pub(super) fn is_token(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_TOKEN_BYTES).contains(&text.len()) && text.bytes().all(is_letter)
}

/// Makes the certificate that answers a challenge within TLS (RFC 8737, section 3).
fn challenge_config(name: &str, answer: &str) -> anyhow::Result<ServerConfig> {
    let hash = digest(&SHA256, answer.as_bytes());
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(AcmeSettings::challenge_config(certificate.der().clone(), key.serialize_der())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_looked_up() {
        assert!(is_token("LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0"));
        for text in ["", "..", "../../etc/passwd", "a/b", "a%2fb", "a b", "ä", "a\0", "a=", "a."] {
            assert!(!is_token(text), "{text:?}");
        }
        assert!(!is_token(&"a".repeat(MAX_TOKEN_BYTES + 1)));
    }

    #[test]
    fn an_answer_within_tls_is_made() {
        let config = challenge_config("a.example.com", "token.thumbprint").unwrap();
        assert_eq!(config.alpn_protocols, [b"acme-tls/1".to_vec()]);
    }
}
