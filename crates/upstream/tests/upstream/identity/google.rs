//! Google's federated workloads: tokens of files, addresses and AWS, exchanged and impersonated.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use upstream::{Credential, GoogleAuth, GoogleAuthError, HostIdentity, Provider};

use crate::identity::aws::{bedrock, instance};
use crate::identity::signature::verify;
use crate::identity::stub::{Stub, StubRequest, TestClock, TokenFile, call, host, provider};

const AUDIENCE: &str =
    "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q";
const JWT_TYPE: &str = "urn:ietf:params:oauth:token-type:jwt";

fn account(sts: &Stub, source: &Value) -> Value {
    json!({ "type": "external_account", "audience": AUDIENCE, "subject_token_type": JWT_TYPE,
            "token_url": format!("{}/v1/token", sts.url), "credential_source": source })
}

fn federated(
    served: &Stub,
    account: &Value,
    host: &HostIdentity,
    clock: &TestClock,
) -> Result<Provider, GoogleAuthError> {
    let auth = GoogleAuth::from_account(&account.to_string(), Some(host), clock.function())?;
    Ok(provider(served, Credential::google(auth)))
}

/// Google's STS, which answers with a token named after the subject's.
async fn token_exchange() -> Stub {
    Stub::start(|request| {
        let fields = request.fields();
        let grant = "urn:ietf:params:oauth:grant-type:token-exchange";
        assert_eq!((request.target.as_str(), fields["grant_type"].as_str()), ("/v1/token", grant));
        assert_eq!(fields["audience"], AUDIENCE);
        assert_eq!(fields["scope"], "https://www.googleapis.com/auth/cloud-platform");
        let kind = "urn:ietf:params:oauth:token-type:access_token";
        assert_eq!(fields["requested_token_type"], kind);
        let token = format!("google-for-{}", fields["subject_token"]);
        (200, json!({ "access_token": token, "expires_in": 3600 }).to_string())
    })
    .await
}

#[tokio::test]
async fn a_file_is_read_for_every_exchange() {
    let (clock, sts, served) = (TestClock::new(), token_exchange().await, bedrock().await);
    let file = TokenFile::new("pod-1\n");
    let account = account(&sts, &json!({ "file": file.path() }));
    let provider = federated(&served, &account, &host(&[]), &clock).unwrap();
    call(&provider).await.unwrap();
    call(&provider).await.unwrap();
    assert_eq!(
        (served.last().header("authorization"), sts.count()),
        ("Bearer google-for-pod-1", 1)
    );
    assert_eq!(sts.last().fields()["subject_token_type"], JWT_TYPE);
    file.write("pod-2");
    clock.advance(3_600);
    call(&provider).await.unwrap();
    assert_eq!(served.last().header("authorization"), "Bearer google-for-pod-2");
    assert_eq!(sts.count(), 2);
}

#[tokio::test]
async fn an_address_is_asked_with_its_headers_and_a_service_account_is_impersonated() {
    let (clock, sts, served) = (TestClock::new(), token_exchange().await, bedrock().await);
    let platform = Stub::start(|_| (200, json!({ "token": "vm", "other": 1 }).to_string())).await;
    let own = clock.clone();
    let iam = Stub::start(move |request| {
        assert_eq!(request.header("authorization"), "Bearer google-for-vm");
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(asked["lifetime"], "1800s");
        assert_eq!(asked["scope"], json!(["https://www.googleapis.com/auth/cloud-platform"]));
        let answer = json!({ "accessToken": "impersonated", "expireTime": own.text_in(1_800) });
        (200, answer.to_string())
    })
    .await;
    let format = json!({ "type": "json", "subject_token_field_name": "token" });
    let source = json!({ "url": format!("{}/identity?x=1", platform.url), "format": format,
                         "headers": { "Metadata": "True" } });
    let mut account = account(&sts, &source);
    account["service_account_impersonation_url"] =
        json!(format!("{}/v1/projects/-/serviceAccounts/a@b.c:generateAccessToken", iam.url));
    account["service_account_impersonation"] = json!({ "token_lifetime_seconds": 1800 });
    account["client_id"] = json!("our-client");
    account["client_secret"] = json!("our-secret");
    let provider = federated(&served, &account, &host(&[]), &clock).unwrap();
    call(&provider).await.unwrap();
    assert_eq!(served.last().header("authorization"), "Bearer impersonated");
    let asked = platform.last();
    assert_eq!((asked.target.as_str(), asked.header("metadata")), ("/identity?x=1", "True"));
    assert_eq!(sts.last().header("authorization"), "Basic b3VyLWNsaWVudDpvdXItc2VjcmV0");
    assert!(iam.last().target.ends_with("a@b.c:generateAccessToken"), "{}", iam.last().target);
    clock.advance(1_700);
    call(&provider).await.unwrap();
    crate::identity::stub::until("the renewal", || iam.count() == 2).await;
}

#[tokio::test]
async fn a_workload_on_aws_sends_a_request_that_aws_would_accept() {
    let clock = TestClock::new();
    let sts = Stub::start(|request| {
        let fields = request.fields();
        (
            200,
            json!({ "access_token": fields["subject_token"].len().to_string(),
                      "expires_in": 3600 })
            .to_string(),
        )
    })
    .await;
    let served = bedrock().await;
    let known = [
        ("AWS_ACCESS_KEY_ID", "AKIDOURS"),
        ("AWS_SECRET_ACCESS_KEY", "our-secret"),
        ("AWS_SESSION_TOKEN", "our-session"),
        ("AWS_REGION", "eu-central-1"),
    ];
    let on_machine = {
        let keys = instance(&clock, 3_600);
        Stub::start(move |request| match request.target.as_str() {
            "/latest/meta-data/placement/region" => (200, "eu-north-1".to_owned()),
            _ => keys(request),
        })
        .await
    };
    let found = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", on_machine.url.as_str())];
    let url = "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15";
    let source = json!({ "environment_id": "aws1", "regional_cred_verification_url": url });
    for (variables, region, secret, access) in [
        (&known[..], "eu-central-1", "our-secret", "AKIDOURS"),
        (&found[..], "eu-north-1", "instance/secret+2", "ASIAINSTANCE2"),
    ] {
        let mut account = account(&sts, &source);
        account["subject_token_type"] = json!("urn:ietf:params:aws:token-type:aws4_request");
        let provider = federated(&served, &account, &host(variables), &clock).unwrap();
        call(&provider).await.unwrap();
        let subject = sts.last().fields()["subject_token"].clone();
        let text = percent_encoding::percent_decode_str(&subject).decode_utf8().unwrap();
        let sent: Value = serde_json::from_str(&text).unwrap();
        let address = format!("https://sts.{region}.amazonaws.com");
        assert_eq!(sent["url"], format!("{address}?Action=GetCallerIdentity&Version=2011-06-15"));
        assert_eq!(sent["method"], "POST");
        let headers = sent["headers"].as_array().unwrap().iter().map(|pair| {
            let text = |name: &str| pair[name].as_str().unwrap().to_owned();
            (text("key").to_lowercase(), text("value"))
        });
        let request = StubRequest {
            method: "POST".to_owned(),
            target: "/?Action=GetCallerIdentity&Version=2011-06-15".to_owned(),
            headers: headers.collect(),
            body: Vec::new(),
        };
        assert_eq!(request.header("x-goog-cloud-target-resource"), AUDIENCE);
        assert_eq!(request.header("host"), format!("sts.{region}.amazonaws.com"));
        let (own, scope) = verify(&request, secret);
        assert_eq!((own.as_str(), scope), (access, format!("{region}/sts/aws4_request")));
    }
}

#[tokio::test]
async fn refusals_of_the_exchange_are_told_without_the_token() {
    let (clock, served) = (TestClock::new(), bedrock().await);
    let file = TokenFile::new("token-of-the-workload");
    let sts = Stub::start(|request| {
        let why = format!("bad {}", request.fields()["subject_token"]);
        (400, json!({ "error": "invalid_grant", "error_description": why }).to_string())
    })
    .await;
    let account = account(&sts, &json!({ "file": file.path() }));
    let provider = federated(&served, &account, &host(&[]), &clock).unwrap();
    let error = call(&provider).await.unwrap_err();
    let note = error.log_note().unwrap();
    assert!(note.contains("no Google access token") && note.contains("invalid_grant"), "{note}");
    assert!(!note.contains("token-of-the-workload"), "{note}");
    assert_eq!(served.count(), 0);
}

#[tokio::test]
async fn the_secret_of_the_client_is_hidden_in_every_form_in_which_it_is_sent() {
    const SECRET: &str = "google-client-secret-987654";
    let (clock, served) = (TestClock::new(), bedrock().await);
    let file = TokenFile::new("token/of the=workload");
    let sts = Stub::start(|request| {
        let form = String::from_utf8(request.body.clone()).unwrap();
        let why = format!("you sent {} and {form}", request.header("authorization"));
        (401, json!({ "error": "invalid_client", "error_description": why }).to_string())
    })
    .await;
    for id in ["c", "ci", "cid"] {
        let mut account = account(&sts, &json!({ "file": file.path() }));
        account["client_id"] = json!(id);
        account["client_secret"] = json!(SECRET);
        let provider = federated(&served, &account, &host(&[]), &clock).unwrap();
        let error = call(&provider).await.unwrap_err();
        let trouble = provider.credential_trouble(0).unwrap();
        for text in [error.log_note().unwrap(), &trouble] {
            assert!(text.contains("invalid_client you sent Basic [hidden]"), "{text}");
            let basic = STANDARD.encode(format!("{id}:{SECRET}"));
            for at in 0..basic.len() - 8 {
                assert!(!text.contains(basic.get(at..at + 8).unwrap()), "{text}");
            }
            assert!(!text.contains(SECRET) && !text.contains("workload"), "{text}");
        }
    }
}

#[tokio::test]
async fn an_account_is_checked_before_it_is_used_and_needs_the_machine() {
    let (clock, sts, served) = (TestClock::new(), token_exchange().await, bedrock().await);
    let good = account(&sts, &json!({ "file": "/x" }));
    let without = GoogleAuth::from_account(&good.to_string(), None, clock.function());
    assert_eq!(without.err(), Some(GoogleAuthError::NeedsHost));
    let machine = host(&[("AWS_EC2_METADATA_DISABLED", "true")]);
    for (source, noted) in [
        (json!({ "executable": { "command": "/bin/x" } }), "no `file`, `url` or `environment_id`"),
        (json!({ "file": "/x", "url": "http://x" }), "a `file` and a `url`"),
        (json!({ "url": "ftp://x" }), "`url` that is not a URL"),
        (json!({ "file": "/x", "format": { "type": "json" } }), "subject_token_field_name"),
        (json!({ "file": "/x", "format": { "type": "xml" } }), "neither `text` nor `json`"),
        (json!({ "environment_id": "aws2" }), "aws1"),
        (json!({ "environment_id": "aws1" }), "regional_cred_verification_url"),
        (
            json!({ "environment_id": "aws1", "regional_cred_verification_url": "https://x" }),
            "no AWS keys",
        ),
        (json!("x"), "credential_source"),
    ] {
        let account = account(&sts, &source);
        let error = federated(&served, &account, &machine, &clock).unwrap_err().to_string();
        assert!(error.contains(noted), "{source}: {error}");
    }
}
