//! Microsoft Entra ID: client secret, certificate, federated token, managed identities.

use aws_lc_rs::digest;
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeys, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use upstream::{Credential, EntraApplication, EntraAuth};

use crate::identity::aws::bedrock;
use crate::identity::stub::{Stub, StubRequest, TestClock, TokenFile, call, host, provider};

const TENANT: &str = "11111111-2222-3333-4444-555555555555";
const CLIENT: &str = "99999999-8888-7777-6666-555555555555";
const SCOPE: &str = "https://cognitiveservices.azure.com/.default";

fn application(authority: &str) -> EntraApplication<'_> {
    EntraApplication { tenant: TENANT, client_id: CLIENT, authority: Some(authority), scope: None }
}

/// The sign-in service, which checks what all grants have in common.
async fn sign_in() -> Stub {
    Stub::start(|request| {
        let fields = request.fields();
        assert_eq!(request.target, format!("/{TENANT}/oauth2/v2.0/token"));
        assert_eq!(request.header("content-type"), "application/x-www-form-urlencoded");
        assert_eq!(fields["grant_type"], "client_credentials");
        assert_eq!((fields["client_id"].as_str(), fields["scope"].as_str()), (CLIENT, SCOPE));
        let answer = json!({ "token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599,
                             "access_token": "entra-token" });
        (200, answer.to_string())
    })
    .await
}

#[tokio::test]
async fn a_client_secret_earns_one_token_until_it_ends() {
    let (clock, entra, served) = (TestClock::new(), sign_in().await, bedrock().await);
    let auth =
        EntraAuth::from_secret(&application(&entra.url), "hush~hush.Q", clock.function()).unwrap();
    let provider = provider(&served, Credential::entra(auth));
    for _ in 0..3 {
        call(&provider).await.unwrap();
    }
    assert_eq!((served.last().header("authorization"), entra.count()), ("Bearer entra-token", 1));
    assert_eq!(entra.last().fields()["client_secret"], "hush~hush.Q");
    clock.advance(3_599);
    call(&provider).await.unwrap();
    assert_eq!(entra.count(), 2);
    let refused = json!({ "error": "invalid_client",
        "error_description": "AADSTS7000215: Invalid client secret hush~hush.Q provided." });
    entra.answer_with(move |_| (401, refused.to_string()));
    clock.advance(3_599);
    let error = call(&provider).await.unwrap_err();
    let note = error.log_note().unwrap();
    assert!(note.contains("no Entra ID access token") && note.contains("AADSTS7000215"), "{note}");
    assert!(!note.contains("hush"), "{note}");
    assert_eq!(error.message(), "the model is not available at the moment");
}

#[tokio::test]
async fn a_certificate_signs_an_assertion() {
    let (clock, entra, served) = (TestClock::new(), sign_in().await, bedrock().await);
    let key = RsaKeys::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pem = |kind: &str, der: &[u8]| {
        format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(der))
    };
    let own = rcgen::KeyPair::try_from(der.as_ref().to_vec()).unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["x".to_owned()]).unwrap().self_signed(&own).unwrap();
    let both = pem("PRIVATE KEY", der.as_ref()) + &pem("CERTIFICATE", certificate.der());
    let auth =
        EntraAuth::from_certificate(&application(&entra.url), &both, clock.function()).unwrap();
    call(&provider(&served, Credential::entra(auth))).await.unwrap();
    let fields = entra.last().fields();
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    assert_eq!(fields["client_assertion_type"], kind);
    let (signed, signature) = fields["client_assertion"].rsplit_once('.').unwrap();
    UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, key.public_key().as_ref())
        .verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap())
        .unwrap();
    let (head, claims) = signed.split_once('.').unwrap();
    let part = |text: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    let (head, claims) = (part(head), part(claims));
    let thumbprint = digest::digest(&digest::SHA256, certificate.der());
    assert_eq!(head["x5t#S256"], URL_SAFE_NO_PAD.encode(thumbprint.as_ref()));
    assert_eq!((&head["alg"], &head["typ"]), (&json!("PS256"), &json!("JWT")));
    assert_eq!(claims["aud"], format!("{}/{TENANT}/oauth2/v2.0/token", entra.url));
    assert_eq!((&claims["iss"], &claims["sub"]), (&json!(CLIENT), &json!(CLIENT)));
    assert_eq!(claims["nbf"], clock.now());
    assert_eq!(claims["exp"], clock.now() + 300);
    assert!(claims["jti"].as_str().unwrap().len() > 16);

    let wrong = |pem: &str| {
        EntraAuth::from_certificate(&application(&entra.url), pem, clock.function())
            .unwrap_err()
            .to_string()
    };
    assert!(wrong("hush").contains("RSA key"));
    assert!(wrong(&pem("PRIVATE KEY", der.as_ref())).contains("holds no certificate"));
}

#[tokio::test]
async fn a_federated_token_is_read_for_every_exchange() {
    let (clock, entra, served) = (TestClock::new(), sign_in().await, bedrock().await);
    let file = TokenFile::new("kubernetes-1\n");
    let auth = EntraAuth::from_token_file(
        &application(&entra.url),
        file.path(),
        &host(&[]),
        clock.function(),
    );
    let provider = provider(&served, Credential::entra(auth.unwrap()));
    call(&provider).await.unwrap();
    assert_eq!(entra.last().fields()["client_assertion"], "kubernetes-1");
    assert!(!entra.last().fields().contains_key("client_secret"));
    file.write("kubernetes-2");
    clock.advance(3_599);
    call(&provider).await.unwrap();
    assert_eq!(entra.last().fields()["client_assertion"], "kubernetes-2");
}

#[tokio::test]
async fn managed_identities_of_machines_and_of_app_service_are_asked_in_their_own_ways() {
    let clock = TestClock::new();
    let served = bedrock().await;
    let moment = clock.now() + 7_200;
    let answer = move |_: &StubRequest| {
        // Both write numbers as texts, and App Service has no `expires_in`.
        (
            200,
            json!({ "access_token": "machine", "expires_on": moment.to_string(),
                      "resource": "x", "token_type": "Bearer" })
            .to_string(),
        )
    };
    let (machine, app) = (Stub::start(answer).await, Stub::start(answer).await);
    let endpoint = format!("{}/msi/token", app.url);
    let on_machine = host(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &machine.url)]);
    let on_app = host(&[("IDENTITY_ENDPOINT", &endpoint), ("IDENTITY_HEADER", "local-secret")]);
    for (host, stub, version) in
        [(&on_machine, &machine, "2018-02-01"), (&on_app, &app, "2019-08-01")]
    {
        for client in [None, Some(CLIENT)] {
            let auth = EntraAuth::from_managed_identity(client, None, host, clock.function());
            let provider = provider(&served, Credential::entra(auth.unwrap()));
            call(&provider).await.unwrap();
            assert_eq!(served.last().header("authorization"), "Bearer machine");
            let fields = stub.last().fields();
            assert_eq!(fields["api-version"], version);
            assert_eq!(fields["resource"], "https://cognitiveservices.azure.com");
            assert_eq!(fields.get("client_id").map(String::as_str), client);
        }
    }
    let asked = machine.last();
    assert!(asked.target.starts_with("/metadata/identity/oauth2/token?"), "{}", asked.target);
    assert_eq!((asked.method.as_str(), asked.header("metadata")), ("GET", "true"));
    let asked = app.last();
    assert!(asked.target.starts_with("/msi/token?"), "{}", asked.target);
    assert_eq!(asked.header("x-identity-header"), "local-secret");
    assert_eq!(asked.header("metadata"), "");
}

#[tokio::test]
async fn a_tenant_cannot_lead_to_another_address() {
    let clock = TestClock::new();
    for (tenant, client_id, field) in [
        ("a/../b", CLIENT, "tenant"),
        ("..", CLIENT, "tenant"),
        ("x@evil.example", CLIENT, "tenant"),
        ("", CLIENT, "tenant"),
        (TENANT, "a&b", "client_id"),
    ] {
        let application = EntraApplication { tenant, client_id, authority: None, scope: None };
        let error =
            EntraAuth::from_secret(&application, "hush-hush", clock.function()).unwrap_err();
        assert_eq!(error.field, field, "{tenant} {client_id}");
        assert!(!error.to_string().contains("hush"));
    }
    assert!(EntraAuth::is_known_authority("https://login.microsoftonline.us/"));
    for wrong in
        ["https://login.microsoftonline.com.evil.example", "http://login.microsoftonline.com"]
    {
        assert!(!EntraAuth::is_known_authority(wrong), "{wrong}");
    }
}
