//! Passkeys: verification of WebAuthn responses (<https://www.w3.org/TR/webauthn-3/>).
//!
//! Own code, because the available crates bring OpenSSL, a licence we do not accept, or thirty
//! crates of a second crypto stack. Little code is left without attestation: the browser delivers
//! the public key, and a signature is verified over plain bytes.

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use store::{FactorKind, LinkPurpose};

use crate::form::FormFields;
use crate::links::{self, LINK_LIFETIMES, LinkData};
use crate::page_error::PageError;
use crate::state::ConsoleState;
use crate::throttle::ClientNetwork;
use crate::urls;
use admin::{VerifiedPasskey, random};

/// Ceremony of a challenge: registration or assertion (`type` of the client data).
pub(crate) const CREATE_CEREMONY: &str = "webauthn.create";
pub(crate) const GET_CEREMONY: &str = "webauthn.get";

/// Accepted algorithms ES256, EdDSA and RS256 by their COSE numbers (RFC 9053, RFC 8812).
pub(crate) const ALGORITHMS: [i64; 3] = [-7, -8, -257];

const USER_PRESENT_FLAG: u8 = 0x01;
const USER_VERIFIED_FLAG: u8 = 0x04;
const ATTESTED_DATA_FLAG: u8 = 0x40;

/// Limit of the standard: <https://www.w3.org/TR/webauthn-3/#credential-id>.
const MAX_CREDENTIAL_ID_BYTES: usize = 1_023;

/// Open challenges of one network without an account.
const MAX_OPEN_CHALLENGES: u32 = 50;

/// Relying party id: the host of the public URL.
pub(crate) fn relying_party_id(state: &ConsoleState) -> String {
    let url = state.base_url();
    let authority = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.to_ascii_lowercase()
}

/// Creates a challenge, valid once and for one ceremony.
pub(crate) async fn challenge(
    state: &ConsoleState,
    account_id: Option<&str>,
    ceremony: &str,
) -> Result<String, PageError> {
    let note = LinkData { next: Some(ceremony.to_owned()), ..LinkData::default() };
    let token = links::create(
        state,
        LinkPurpose::Challenge,
        account_id,
        &note,
        LINK_LIFETIMES.sign_in_step,
    )
    .await?;
    Ok(URL_SAFE_NO_PAD.encode(token))
}

/// Creates a challenge for any passkey. Each network has a bounded number of open ones; the oldest
/// give way.
pub(crate) async fn network_challenge(
    state: &ConsoleState,
    network: ClientNetwork,
) -> Result<String, PageError> {
    let network = random::hex(&random::digest(&format!("{network:?}")));
    let next = Some(GET_CEREMONY.to_owned());
    let note = LinkData { next, network: Some(network), ..LinkData::default() };
    let life = LINK_LIFETIMES.sign_in_step;
    let token = links::create(state, LinkPurpose::Challenge, None, &note, life).await?;
    state.store.trim_challenges(&note.to_text(), MAX_OPEN_CHALLENGES).await?;
    Ok(URL_SAFE_NO_PAD.encode(token))
}

/// Response of a passkey as the browser sends it, each part in base64url.
pub(crate) struct PasskeyResponse<'a> {
    id: &'a str,
    client_data: &'a str,
    authenticator_data: &'a str,
    signature: &'a str,
    public_key: &'a str,
    algorithm: &'a str,
}

impl<'a> PasskeyResponse<'a> {
    pub(crate) fn read(fields: &'a FormFields) -> Self {
        Self {
            id: fields.get("id"),
            client_data: fields.get("client"),
            authenticator_data: fields.get("authenticator"),
            signature: fields.get("signature"),
            public_key: fields.get("key"),
            algorithm: fields.get("algorithm"),
        }
    }
}

/// Client data: the browser's record of the request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
}

/// Authenticator data (<https://www.w3.org/TR/webauthn-3/#sctn-authenticator-data>).
struct AuthenticatorData {
    rp_id_hash: Vec<u8>,
    flags: u8,
    sign_count: u32,
    rest: Vec<u8>,
}

impl AuthenticatorData {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (rp_id_hash, rest) = bytes.split_at_checked(32)?;
        let (flags, rest) = rest.split_first()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        Some(Self {
            rp_id_hash: rp_id_hash.to_vec(),
            flags: *flags,
            sign_count: u32::from_be_bytes(*count),
            rest: rest.to_vec(),
        })
    }

    /// Credential id of a new passkey.
    fn credential_id(&self) -> Option<&[u8]> {
        if self.flags & ATTESTED_DATA_FLAG == 0 {
            return None;
        }
        let (_, rest) = self.rest.split_at_checked(16)?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }
}

fn decode_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// Uses up the challenge and returns the account it was created for. Returns `None` unless the
/// challenge is ours, valid, for this ceremony and answered from our own origin.
async fn take_challenge(
    state: &ConsoleState,
    client: &[u8],
    ceremony: &str,
) -> Result<Option<Option<String>>, PageError> {
    let Ok(client) = serde_json::from_slice::<ClientData>(client) else { return Ok(None) };
    let token = decode_base64url(&client.challenge).and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(token) = token else { return Ok(None) };
    let link = state.store.take_link(&random::digest(&token), LinkPurpose::Challenge).await?;
    let Some(link) = link.filter(|link| links::is_valid(state, link)) else { return Ok(None) };
    let ours = client.kind == ceremony
        && links::link_data(&link).next.as_deref() == Some(ceremony)
        && urls::origin(&state.base_url()) == Some(client.origin)
        && !client.cross_origin;
    Ok(ours.then_some(link.account_id))
}

/// Returns true if the response is for this relying party and the required user flags are set.
fn user_was_present(
    state: &ConsoleState,
    authenticator: &AuthenticatorData,
    verified: bool,
) -> bool {
    let rp_id_hash = digest::digest(&digest::SHA256, relying_party_id(state).as_bytes());
    let wanted = if verified { USER_PRESENT_FLAG | USER_VERIFIED_FLAG } else { USER_PRESENT_FLAG };
    authenticator.rp_id_hash == rp_id_hash.as_ref() && authenticator.flags & wanted == wanted
}

/// Verifies an assertion and returns the account of the passkey. The challenge must have been
/// created for this account, or for none.
pub(crate) async fn verify_assertion(
    state: &ConsoleState,
    shown: &PasskeyResponse<'_>,
    account: Option<&str>,
    verified: bool,
) -> Result<Option<String>, PageError> {
    let parts = (
        decode_base64url(shown.client_data),
        decode_base64url(shown.authenticator_data),
        decode_base64url(shown.signature),
    );
    let (Some(client), Some(bytes), Some(signature)) = parts else { return Ok(None) };
    let Some(made_for) = take_challenge(state, &client, GET_CEREMONY).await? else {
        return Ok(None);
    };
    let Some(authenticator) = AuthenticatorData::read(&bytes) else { return Ok(None) };
    if made_for.as_deref() != account || !user_was_present(state, &authenticator, verified) {
        return Ok(None);
    }
    let found = state.store.factor(shown.id).await?;
    let Some(factor) = found.filter(|factor| factor.kind == FactorKind::Passkey) else {
        return Ok(None);
    };
    let mut message = bytes;
    message.extend_from_slice(digest::digest(&digest::SHA256, &client).as_ref());
    if !verify_signature(&factor.secret, &message, &signature) {
        return Ok(None);
    }
    // A signature counter that does not grow indicates a cloned authenticator.
    let fresh =
        state.store.use_factor(&factor.id, authenticator.sign_count.into(), state.now()).await?;
    Ok(fresh.then_some(factor.account_id))
}

/// Verifies a registration. Returns the credential id and the key to store.
pub(crate) async fn verify_registration(
    state: &ConsoleState,
    shown: &PasskeyResponse<'_>,
    account: &str,
) -> Result<Option<VerifiedPasskey>, PageError> {
    let parts = (
        decode_base64url(shown.client_data),
        decode_base64url(shown.authenticator_data),
        decode_base64url(shown.public_key),
    );
    let (Some(client), Some(bytes), Some(key)) = parts else { return Ok(None) };
    let Some(made_for) = take_challenge(state, &client, CREATE_CEREMONY).await? else {
        return Ok(None);
    };
    let Some(authenticator) = AuthenticatorData::read(&bytes) else { return Ok(None) };
    let id =
        decode_base64url(shown.id).filter(|id| (1..=MAX_CREDENTIAL_ID_BYTES).contains(&id.len()));
    let fits = made_for.as_deref() == Some(account)
        && user_was_present(state, &authenticator, false)
        && id.is_some()
        && authenticator.credential_id() == id.as_deref();
    let algorithm = shown.algorithm.parse::<i64>().ok();
    let known = ALGORITHMS.iter().position(|known| Some(*known) == algorithm);
    let (true, Some(id), Some(tag)) = (fits, id, known.and_then(|n| u8::try_from(n).ok())) else {
        return Ok(None);
    };
    let mut secret = vec![tag];
    secret.extend_from_slice(&key);
    Ok(Some(VerifiedPasskey { id: URL_SAFE_NO_PAD.encode(id), key: secret }))
}

/// Verifies a signature. The stored key is the index of its algorithm followed by the public key.
fn verify_signature(secret: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Some((tag, key)) = secret.split_first() else { return false };
    let algorithm: &'static dyn VerificationAlgorithm =
        match ALGORITHMS.get(usize::from(*tag)).copied() {
            Some(-7) => &ECDSA_P256_SHA256_ASN1,
            Some(-8) => &ED25519,
            Some(-257) => &RSA_PKCS1_2048_8192_SHA256,
            Some(_) | None => return false,
        };
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    };

    #[test]
    fn signatures_of_browser_keys_verify() {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let mut secret = vec![0];
        secret.extend_from_slice(der.as_ref());
        let signature = pair.sign(&random, b"door").unwrap();
        assert!(verify_signature(&secret, b"door", signature.as_ref()));
        assert!(!verify_signature(&secret, b"floor", signature.as_ref()));

        let pair = Ed25519KeyPair::generate().unwrap();
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let mut other = vec![1];
        other.extend_from_slice(der.as_ref());
        let signature = pair.sign(b"door");
        assert!(verify_signature(&other, b"door", signature.as_ref()));
        assert!(!verify_signature(&secret, b"door", signature.as_ref()));
        for broken in [&[][..], &[0], &[9, 1, 2], &[2, 0, 0]] {
            assert!(!verify_signature(broken, b"door", signature.as_ref()));
        }
    }

    #[test]
    fn truncated_authenticator_data_is_rejected() {
        for length in 0..37 {
            assert!(AuthenticatorData::read(&vec![0; length]).is_none());
        }
        let mut bytes = vec![7; 32];
        bytes.extend([USER_PRESENT_FLAG | ATTESTED_DATA_FLAG, 0, 0, 0, 5]);
        bytes.extend([0; 16]);
        bytes.extend([0, 3, 1, 2, 3, 99]);
        let read = AuthenticatorData::read(&bytes).unwrap();
        assert_eq!((read.sign_count, read.credential_id()), (5, Some(&[1, 2, 3][..])));
        bytes.truncate(56);
        assert_eq!(AuthenticatorData::read(&bytes).unwrap().credential_id(), None);
    }
}
