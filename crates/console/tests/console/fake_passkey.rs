//! A simulated authenticator.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::gateway::{ConsoleGateway, PageReply};

pub(crate) struct FakePasskey {
    pair: EcdsaKeyPair,
    id: Vec<u8>,
    pub(crate) count: u32,
    /// Origin reported by the browser, and the user-verified flag.
    pub(crate) origin: &'static str,
    pub(crate) place: &'static str,
    pub(crate) flags: u8,
}

pub(crate) type PasskeyAnswer = Vec<(&'static str, String)>;

impl FakePasskey {
    pub(crate) fn new(id: u8) -> Self {
        Self {
            pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap(),
            id: vec![id; 16],
            count: 0,
            origin: "http://gw.example:8080",
            place: "gw.example",
            flags: 0x05,
        }
    }

    pub(crate) fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.id)
    }

    fn client(&self, kind: &str, begun: &PageReply) -> Vec<u8> {
        let begun: Value = serde_json::from_str(&begun.body).expect(&begun.body);
        let client =
            json!({ "type": kind, "challenge": begun["challenge"], "origin": self.origin });
        client.to_string().into_bytes()
    }

    fn authenticator(&self, flags: u8) -> Vec<u8> {
        let mut bytes = digest(&SHA256, self.place.as_bytes()).as_ref().to_vec();
        bytes.push(flags);
        bytes.extend(self.count.to_be_bytes());
        bytes
    }

    /// Registration response as the form sends it.
    pub(crate) fn make(&self, begun: &PageReply) -> PasskeyAnswer {
        let mut bytes = self.authenticator(self.flags | 0x40);
        bytes.extend([0; 16]);
        bytes.extend([0, 16]);
        bytes.extend(&self.id);
        let key: PublicKeyX509Der<'_> = self.pair.public_key().as_der().unwrap();
        vec![
            ("id", self.id()),
            ("client", URL_SAFE_NO_PAD.encode(self.client("webauthn.create", begun))),
            ("authenticator", URL_SAFE_NO_PAD.encode(bytes)),
            ("key", URL_SAFE_NO_PAD.encode(key.as_ref())),
            ("algorithm", "-7".to_owned()),
            ("name", "phone".to_owned()),
        ]
    }

    /// Assertion response as the form sends it.
    pub(crate) fn sign(&mut self, begun: &PageReply) -> PasskeyAnswer {
        self.count += 1;
        let client = self.client("webauthn.get", begun);
        let bytes = self.authenticator(self.flags);
        let message = [bytes.as_slice(), digest(&SHA256, &client).as_ref()].concat();
        let signature = self.pair.sign(&SystemRandom::new(), &message).unwrap();
        vec![
            ("id", self.id()),
            ("client", URL_SAFE_NO_PAD.encode(client)),
            ("authenticator", URL_SAFE_NO_PAD.encode(bytes)),
            ("signature", URL_SAFE_NO_PAD.encode(signature)),
        ]
    }
}

/// Sends a form from our own page.
pub(crate) async fn send(
    gateway: &ConsoleGateway,
    path: &str,
    answer: &PasskeyAnswer,
    cookie: &str,
) -> PageReply {
    let fields: Vec<(&str, &str)> = answer.iter().map(|(n, v)| (*n, v.as_str())).collect();
    gateway.post(path, &fields).cookie(cookie).send().await
}
