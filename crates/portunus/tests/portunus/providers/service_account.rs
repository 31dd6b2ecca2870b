//! A Google service account made for one test: no key file is in the repository.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

pub(crate) struct Account {
    key: KeyPair,
    pub(crate) pem: String,
}

impl Account {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            STANDARD.encode(der.as_ref())
        );
        Self { key, pem }
    }

    /// The key file that Google would issue for it.
    pub(crate) fn json(&self, token_uri: &str) -> String {
        let account = json!({
            "type": "service_account",
            "project_id": "our-project",
            "private_key_id": "key-7",
            "private_key": self.pem,
            "client_email": "gateway@our-project.iam.gserviceaccount.com",
            "token_uri": token_uri,
        });
        account.to_string()
    }

    /// The head and the claims of an assertion, once its signature is found good.
    pub(crate) fn verify(&self, assertion: &str) -> (Value, Value) {
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        let key =
            UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.key.public_key().as_ref());
        key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let (head, claims) = signed.split_once('.').unwrap();
        let part = |text| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
        (part(head), part(claims))
    }
}
