//! Passkeys (WebAuthn): what a device signs, and whether it did.
//!
//! Written here because the crates for it bring OpenSSL, a licence we do not take or thirty crates
//! of a second crypto stack, and because little is left once no attestation is asked for: the
//! public key comes from the browser as it is, and a signature is verified over plain bytes.

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use store::{FactorKind, LinkPurpose};

use crate::address;
use crate::desk::Desk;
use crate::form::Fields;
use crate::links::{self, LIFE, Note};
use crate::trouble::Trouble;
use admin::random;

/// What a challenge is to be used for: to make a passkey, or to show one.
pub(crate) const CREATE: &str = "webauthn.create";
pub(crate) const GET: &str = "webauthn.get";

/// The algorithms asked for: ES256, EdDSA, RS256, by their COSE numbers.
pub(crate) const ALGORITHMS: [i64; 3] = [-7, -8, -257];

const PRESENT: u8 = 0x01;
const VERIFIED: u8 = 0x04;
const ATTESTED: u8 = 0x40;

/// The largest credential id the standard allows.
const LONGEST_ID: usize = 1_023;

/// The host a passkey belongs to.
pub(crate) fn place(desk: &Desk) -> String {
    let url = desk.url();
    let authority = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.to_ascii_lowercase()
}

/// Something to sign, good once and for one kind of deed.
pub(crate) async fn challenge(
    desk: &Desk,
    account_id: Option<&str>,
    deed: &str,
) -> Result<String, Trouble> {
    let note = Note { next: Some(deed.to_owned()), ..Note::default() };
    let word = links::make(desk, LinkPurpose::Challenge, account_id, &note, LIFE.step).await?;
    Ok(URL_SAFE_NO_PAD.encode(word))
}

/// What a browser sends of a passkey, each part in base64url.
pub(crate) struct Shown<'a> {
    id: &'a str,
    client: &'a str,
    authenticator: &'a str,
    signature: &'a str,
    key: &'a str,
    algorithm: &'a str,
}

impl<'a> Shown<'a> {
    pub(crate) fn read(fields: &'a Fields) -> Self {
        Self {
            id: fields.get("id"),
            client: fields.get("client"),
            authenticator: fields.get("authenticator"),
            signature: fields.get("signature"),
            key: fields.get("key"),
            algorithm: fields.get("algorithm"),
        }
    }
}

/// What the browser says it was asked to have signed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Client {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
}

/// What the device says of itself.
struct Authenticator {
    place: Vec<u8>,
    flags: u8,
    count: u32,
    rest: Vec<u8>,
}

impl Authenticator {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (place, rest) = bytes.split_at_checked(32)?;
        let (flags, rest) = rest.split_first()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        Some(Self {
            place: place.to_vec(),
            flags: *flags,
            count: u32::from_be_bytes(*count),
            rest: rest.to_vec(),
        })
    }

    /// The id of the passkey that was just made.
    fn new_id(&self) -> Option<&[u8]> {
        if self.flags & ATTESTED == 0 {
            return None;
        }
        let (_, rest) = self.rest.split_at_checked(16)?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// The account a challenge was made for, if the browser's answer is to a challenge of ours that is
/// good, for that deed and from our own page. The challenge is used up, whatever comes after.
async fn answered(
    desk: &Desk,
    client: &[u8],
    deed: &str,
) -> Result<Option<Option<String>>, Trouble> {
    let Ok(client) = serde_json::from_slice::<Client>(client) else { return Ok(None) };
    let word = decoded(&client.challenge).and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(word) = word else { return Ok(None) };
    let link = desk.store.take_link(&random::digest(&word), LinkPurpose::Challenge).await?;
    let Some(link) = link.filter(|link| links::alive(desk, link)) else { return Ok(None) };
    let ours = client.kind == deed
        && links::note(&link).next.as_deref() == Some(deed)
        && address::origin(&desk.url()) == Some(client.origin)
        && !client.cross_origin;
    Ok(ours.then_some(link.account_id))
}

/// Whether the device was here, at our place, with somebody in front of it.
fn present(desk: &Desk, authenticator: &Authenticator, verified: bool) -> bool {
    let place = digest::digest(&digest::SHA256, place(desk).as_bytes());
    let wanted = if verified { PRESENT | VERIFIED } else { PRESENT };
    authenticator.place == place.as_ref() && authenticator.flags & wanted == wanted
}

/// The account whose passkey this is, if it signed a challenge made for that account, or for nobody
/// in particular.
pub(crate) async fn signed(
    desk: &Desk,
    shown: &Shown<'_>,
    account: Option<&str>,
    verified: bool,
) -> Result<Option<String>, Trouble> {
    let parts = (decoded(shown.client), decoded(shown.authenticator), decoded(shown.signature));
    let (Some(client), Some(bytes), Some(signature)) = parts else { return Ok(None) };
    let Some(made_for) = answered(desk, &client, GET).await? else { return Ok(None) };
    let Some(authenticator) = Authenticator::read(&bytes) else { return Ok(None) };
    if made_for.as_deref() != account || !present(desk, &authenticator, verified) {
        return Ok(None);
    }
    let found = desk.store.factor(shown.id).await?;
    let Some(factor) = found.filter(|factor| factor.kind == FactorKind::Passkey) else {
        return Ok(None);
    };
    let mut message = bytes;
    message.extend_from_slice(digest::digest(&digest::SHA256, &client).as_ref());
    if !verifies(&factor.secret, &message, &signature) {
        return Ok(None);
    }
    // A count that does not grow is the mark of a copied device.
    let fresh = desk.store.use_factor(&factor.id, authenticator.count.into(), desk.now()).await?;
    Ok(fresh.then_some(factor.account_id))
}

/// A passkey that was just made for an account: its id, and its key as the store keeps it.
pub(crate) async fn made(
    desk: &Desk,
    shown: &Shown<'_>,
    account: &str,
) -> Result<Option<(String, Vec<u8>)>, Trouble> {
    let parts = (decoded(shown.client), decoded(shown.authenticator), decoded(shown.key));
    let (Some(client), Some(bytes), Some(key)) = parts else { return Ok(None) };
    let Some(made_for) = answered(desk, &client, CREATE).await? else { return Ok(None) };
    let Some(authenticator) = Authenticator::read(&bytes) else { return Ok(None) };
    let id = decoded(shown.id).filter(|id| (1..=LONGEST_ID).contains(&id.len()));
    let fits = made_for.as_deref() == Some(account)
        && present(desk, &authenticator, false)
        && id.is_some()
        && authenticator.new_id() == id.as_deref();
    let algorithm = shown.algorithm.parse::<i64>().ok();
    let known = ALGORITHMS.iter().position(|known| Some(*known) == algorithm);
    let (true, Some(id), Some(tag)) = (fits, id, known.and_then(|n| u8::try_from(n).ok())) else {
        return Ok(None);
    };
    let mut secret = vec![tag];
    secret.extend_from_slice(&key);
    Ok(Some((URL_SAFE_NO_PAD.encode(id), secret)))
}

/// Whether a key of ours (its algorithm's place in the list, then the key) signed a message.
fn verifies(secret: &[u8], message: &[u8], signature: &[u8]) -> bool {
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
    fn keys_are_taken_as_browsers_hand_them_out() {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let mut secret = vec![0];
        secret.extend_from_slice(der.as_ref());
        let signature = pair.sign(&random, b"door").unwrap();
        assert!(verifies(&secret, b"door", signature.as_ref()));
        assert!(!verifies(&secret, b"floor", signature.as_ref()));

        let pair = Ed25519KeyPair::generate().unwrap();
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let mut other = vec![1];
        other.extend_from_slice(der.as_ref());
        let signature = pair.sign(b"door");
        assert!(verifies(&other, b"door", signature.as_ref()));
        assert!(!verifies(&secret, b"door", signature.as_ref()));
        for broken in [&[][..], &[0], &[9, 1, 2], &[2, 0, 0]] {
            assert!(!verifies(broken, b"door", signature.as_ref()));
        }
    }

    #[test]
    fn torn_authenticator_data_is_no_answer() {
        for length in 0..37 {
            assert!(Authenticator::read(&vec![0; length]).is_none());
        }
        let mut bytes = vec![7; 32];
        bytes.extend([PRESENT | ATTESTED, 0, 0, 0, 5]);
        bytes.extend([0; 16]);
        bytes.extend([0, 3, 1, 2, 3, 99]);
        let read = Authenticator::read(&bytes).unwrap();
        assert_eq!((read.count, read.new_id()), (5, Some(&[1, 2, 3][..])));
        bytes.truncate(56);
        assert_eq!(Authenticator::read(&bytes).unwrap().new_id(), None);
    }
}
