//! AWS roles: instance, container, web identity, assumed roles and the default chain.

use serde_json::json;
use upstream::{AwsCredentials, AwsIdentityError, AwsRole, Credential, SigV4Signer};

use crate::identity::signature::verify;
use crate::identity::stub::{Stub, StubRequest, TestClock, TokenFile, call, host, provider, until};

const REGION: &str = "eu-west-1";
const ARN: &str = "arn:aws:iam::123456789012:role/models";

pub(crate) fn signed(credentials: AwsCredentials, clock: &TestClock) -> Credential {
    Credential::sigv4(SigV4Signer::new(REGION, "bedrock", credentials, clock.function()).unwrap())
}

/// A provider that answers everything.
pub(crate) async fn bedrock() -> Stub {
    Stub::start(|_| (200, "{}".to_owned())).await
}

/// The metadata service of an instance with the role `our role`. The keys carry the number of the
/// session that read them.
pub(crate) fn instance(
    clock: &TestClock,
    lifetime: i64,
) -> impl Fn(&StubRequest) -> (u16, String) + Send + Sync + use<> {
    let (clock, sessions) = (clock.clone(), std::sync::atomic::AtomicU32::new(0));
    move |request| {
        use std::sync::atomic::Ordering;
        let list = "/latest/meta-data/iam/security-credentials/";
        if request.method == "PUT" && request.target == "/latest/api/token" {
            let ttl: u32 = request.header("x-aws-ec2-metadata-token-ttl-seconds").parse().unwrap();
            assert!((1..=21_600).contains(&ttl));
            let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            return (200, format!("session-{number}"));
        }
        let number = sessions.load(Ordering::SeqCst);
        if request.method != "GET"
            || request.header("x-aws-ec2-metadata-token") != format!("session-{number}")
        {
            return (401, "Unauthorized".to_owned());
        }
        let keys = json!({
            "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": clock.text_in(-60),
            "AccessKeyId": format!("ASIAINSTANCE{number}"),
            "SecretAccessKey": format!("instance/secret+{number}"),
            "Token": format!("instance/token=={number}"), "Expiration": clock.text_in(lifetime),
        });
        match request.target.strip_prefix(list) {
            Some("") => (200, "our role".to_owned()),
            Some("our%20role") => (200, keys.to_string()),
            _ => (404, "Not Found".to_owned()),
        }
    }
}

#[tokio::test]
async fn the_role_of_an_instance_signs_and_is_renewed_before_it_ends() {
    let clock = TestClock::new();
    let (imds, served) = (Stub::start(instance(&clock, 3_600)).await, bedrock().await);
    let host = host(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url)]);
    let credentials = AwsCredentials::from_instance(&host, clock.function()).unwrap();
    let provider = provider(&served, signed(credentials, &clock));
    for _ in 0..3 {
        assert_eq!(call(&provider).await.unwrap(), 200);
    }
    assert_eq!(imds.count(), 3, "one session, one role, one set of keys");
    for request in served.requests() {
        let (access, scope) = verify(&request, "instance/secret+1");
        assert_eq!(
            (access.as_str(), scope.as_str()),
            ("ASIAINSTANCE1", "eu-west-1/bedrock/aws4_request")
        );
        assert_eq!(request.header("x-amz-security-token"), "instance/token==1");
    }
    // Less than five minutes are left: calls go on with the old keys while others are fetched.
    clock.advance(3_600 - 200);
    assert_eq!(call(&provider).await.unwrap(), 200);
    verify(&served.last(), "instance/secret+1");
    until("the keys were renewed", || imds.count() == 6).await;
    until("the renewed keys are used", || {
        provider.credential_trouble(0).is_none() && imds.count() == 6
    })
    .await;
    let mut used = String::new();
    for _ in 0..200 {
        call(&provider).await.unwrap();
        used = served.last().header("x-amz-security-token").to_owned();
        if used == "instance/token==2" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(used, "instance/token==2");
    verify(&served.last(), "instance/secret+2");
    assert_eq!(imds.count(), 6);
}

#[tokio::test]
async fn an_instance_without_a_role_or_with_a_failed_one_is_told() {
    let clock = TestClock::new();
    let served = bedrock().await;
    let session = |request: &StubRequest| request.method == "PUT";
    let cases: Vec<(Stub, &str)> = vec![
        (
            Stub::start(move |request| match session(request) {
                true => (200, "s".to_owned()),
                false => (404, "<html>".to_owned()),
            })
            .await,
            "has no role",
        ),
        (Stub::start(|_| (403, "disabled".to_owned())).await, "IMDSv2"),
        (
            Stub::start(move |request| match (session(request), request.target.ends_with('/')) {
                (true, _) => (200, "s".to_owned()),
                (false, true) => (200, "role".to_owned()),
                (false, false) => (
                    200,
                    json!({ "Code": "AssumeRoleUnauthorizedAccess", "Message": "no" }).to_string(),
                ),
            })
            .await,
            "AssumeRoleUnauthorizedAccess",
        ),
        (Stub::start(instance(&clock, -5)).await, "expired"),
    ];
    for (imds, noted) in cases {
        let host = host(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url)]);
        let credentials = AwsCredentials::from_instance(&host, clock.function()).unwrap();
        let provider = provider(&served, signed(credentials, &clock));
        let error = call(&provider).await.unwrap_err();
        assert_eq!(error.message(), "the model is not available at the moment");
        let note = error.log_note().unwrap();
        assert!(note.contains("no AWS credentials: ") && note.contains(noted), "{note}");
        assert!(provider.credential_trouble(0).unwrap().contains(noted));
    }
    assert_eq!(served.count(), 0, "nothing leaves without a signature");
}

#[tokio::test]
async fn the_role_of_a_container_has_a_token_file_that_rotates() {
    let clock = TestClock::new();
    let file = TokenFile::new("pod-token-1\n");
    let own = clock.clone();
    let agent = Stub::start(move |request| {
        let number = request.header("authorization").trim_start_matches("pod-token-").to_owned();
        let keys = json!({ "AccessKeyId": "ASIAPOD", "SecretAccessKey": format!("pod-secret-{number}"),
            "Token": format!("pod-session-{number}"), "Expiration": own.text_in(900) });
        (200, keys.to_string())
    })
    .await;
    let served = bedrock().await;
    let full = format!("{}/v1/credentials", agent.url);
    let host = host(&[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &full),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.path()),
    ]);
    let credentials = AwsCredentials::from_container(&host, clock.function()).unwrap();
    let provider = provider(&served, signed(credentials, &clock));
    call(&provider).await.unwrap();
    verify(&served.last(), "pod-secret-1");
    assert_eq!(agent.last().target, "/v1/credentials");
    file.write("pod-token-2");
    clock.advance(901);
    call(&provider).await.unwrap();
    verify(&served.last(), "pod-secret-2");
    assert_eq!(agent.count(), 2);
    // A file that is gone leaves the keys in use as long as they are valid.
    std::fs::remove_file(&file.0).unwrap();
    clock.advance(900 - 60);
    call(&provider).await.unwrap();
    until("the renewal failed", || provider.credential_trouble(0).is_some()).await;
    call(&provider).await.unwrap();
    verify(&served.last(), "pod-secret-2");
    let trouble = provider.credential_trouble(0).unwrap();
    assert!(trouble.contains("token file") && trouble.contains("until it expires"), "{trouble}");
    clock.advance(120);
    assert!(call(&provider).await.is_err());
}

/// The answer of STS with keys of this name.
fn sts_answer(action: &str, name: &str, end: &str) -> String {
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>\
         <AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/x/y</Arn></AssumedRoleUser><Credentials>\
         <SessionToken>{name}&amp;session</SessionToken>\n<SecretAccessKey>{name}-secret\
         </SecretAccessKey><Expiration>{end}</Expiration><AccessKeyId>ASIA{name}</AccessKeyId>\
         </Credentials></{action}Result></{action}Response>"
    )
}

const STS_ERROR: &str = "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>\
    <Type>Sender</Type><Code>AccessDenied</Code><Message>not with jwt-of-the-pod-1</Message></Error>\
    <RequestId>1</RequestId></ErrorResponse>";

#[tokio::test]
async fn a_web_identity_is_exchanged_without_a_signature() {
    let clock = TestClock::new();
    let file = TokenFile::new("jwt-of-the-pod-1");
    let own = clock.clone();
    let answer = move |request: &StubRequest| {
        let fields = request.fields();
        assert_eq!(fields["Action"], "AssumeRoleWithWebIdentity");
        assert_eq!((fields["Version"].as_str(), fields["RoleArn"].as_str()), ("2011-06-15", ARN));
        assert_eq!(fields["RoleSessionName"], "our-session");
        let name = fields["WebIdentityToken"].trim_start_matches("jwt-of-the-").to_uppercase();
        (200, sts_answer("AssumeRoleWithWebIdentity", &name.replace('-', ""), &own.text_in(3_600)))
    };
    let (sts, served) = (Stub::start(answer).await, bedrock().await);
    let host = host(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.path()),
        ("AWS_ROLE_ARN", ARN),
        ("AWS_ROLE_SESSION_NAME", "our-session"),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ]);
    let credentials = AwsCredentials::from_web_identity(&host, REGION, clock.function()).unwrap();
    let provider = provider(&served, signed(credentials, &clock));
    call(&provider).await.unwrap();
    assert_eq!(sts.last().header("authorization"), "", "the token is the proof");
    let (access, _) = verify(&served.last(), "POD1-secret");
    assert_eq!(access, "ASIAPOD1");
    assert_eq!(served.last().header("x-amz-security-token"), "POD1&session");
    file.write("jwt-of-the-pod-2");
    clock.advance(3_600);
    call(&provider).await.unwrap();
    verify(&served.last(), "POD2-secret");

    // A refusal is told in the words of STS, without our token.
    file.write("jwt-of-the-pod-1");
    sts.answer_with(|_| (403, STS_ERROR.to_owned()));
    clock.advance(3_600);
    let error = call(&provider).await.unwrap_err();
    let note = error.log_note().unwrap();
    assert!(note.contains("AccessDenied not with [hidden]") && !note.contains("jwt-of"), "{note}");
    assert!(!error.message().contains("AccessDenied"));
}

#[tokio::test]
async fn a_role_is_assumed_with_an_external_id_and_a_signature() {
    for session in [None, Some("our-session-token")] {
        let clock = TestClock::new();
        let own = clock.clone();
        let answer = move |request: &StubRequest| {
            let (access, scope) = verify(request, "our-secret");
            assert_eq!(
                (access.as_str(), scope.as_str()),
                ("AKIDOURS", "eu-west-1/sts/aws4_request")
            );
            assert_eq!(request.header("x-amz-security-token"), session.unwrap_or_default());
            let fields = request.fields();
            assert_eq!(
                (fields["Action"].as_str(), fields["RoleArn"].as_str()),
                ("AssumeRole", ARN)
            );
            assert_eq!(fields["ExternalId"], "their:id/7");
            assert_eq!(fields["RoleSessionName"], "portunus");
            (200, sts_answer("AssumeRole", "ROLE", &own.text_in(3_600)))
        };
        let (sts, served) = (Stub::start(answer).await, bedrock().await);
        let role = AwsRole {
            arn: ARN,
            external_id: Some("their:id/7"),
            session_name: None,
            region: REGION,
            sts_endpoint: Some(&sts.url),
        };
        let credentials = AwsCredentials::from_keys("AKIDOURS", "our-secret", session).unwrap();
        let credentials = credentials.assume_role(&role, clock.function()).unwrap();
        let provider = provider(&served, signed(credentials, &clock));
        call(&provider).await.unwrap();
        let (access, scope) = verify(&served.last(), "ROLE-secret");
        assert_eq!(
            (access.as_str(), scope.as_str()),
            ("ASIAROLE", "eu-west-1/bedrock/aws4_request")
        );
        assert_eq!(sts.count(), 1);
    }
}

#[tokio::test]
async fn a_role_is_assumed_with_the_role_of_the_instance() {
    let clock = TestClock::new();
    let imds = Stub::start(instance(&clock, 7_200)).await;
    let own = clock.clone();
    let sts = Stub::start(move |request| {
        assert_eq!(verify(request, "instance/secret+1").0, "ASIAINSTANCE1");
        (200, sts_answer("AssumeRole", "CHAINED", &own.text_in(3_600)))
    })
    .await;
    let served = bedrock().await;
    let host = host(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url)]);
    let role = AwsRole {
        arn: ARN,
        external_id: None,
        session_name: Some("gateway"),
        region: REGION,
        sts_endpoint: Some(&sts.url),
    };
    let credentials = AwsCredentials::from_instance(&host, clock.function()).unwrap();
    let credentials = credentials.assume_role(&role, clock.function()).unwrap();
    let provider = provider(&served, signed(credentials, &clock));
    call(&provider).await.unwrap();
    clock.advance(3_600);
    call(&provider).await.unwrap();
    verify(&served.last(), "CHAINED-secret");
    assert_eq!((imds.count(), sts.count()), (3, 2), "the keys of the instance are still valid");
}

#[tokio::test]
async fn the_default_chain_takes_the_first_that_the_environment_names() {
    let clock = TestClock::new();
    let imds = Stub::start(instance(&clock, 3_600)).await;
    let own = clock.clone();
    let sts = Stub::start(move |_| {
        (200, sts_answer("AssumeRoleWithWebIdentity", "WEB", &own.text_in(3_600)))
    })
    .await;
    let own = clock.clone();
    let agent = Stub::start(move |_| {
        let keys = json!({ "AccessKeyId": "ASIACONTAINER", "SecretAccessKey": "s", "Token": "t",
                           "Expiration": own.text_in(3_600) });
        (200, keys.to_string())
    })
    .await;
    let file = TokenFile::new("jwt");
    let all: Vec<(&str, &str)> = vec![
        ("AWS_ACCESS_KEY_ID", "AKIDENV"),
        ("AWS_SECRET_ACCESS_KEY", "env-secret"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.path()),
        ("AWS_ROLE_ARN", ARN),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent.url),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ];
    let expected = ["AKIDENV", "ASIAWEB", "ASIACONTAINER", "ASIAINSTANCE1"];
    for (dropped, access) in [0, 2, 4, 5].into_iter().zip(expected) {
        let served = bedrock().await;
        let host = host(&all[dropped..]);
        let chosen = AwsCredentials::from_default_chain(&host, REGION, clock.function()).unwrap();
        call(&provider(&served, signed(chosen, &clock))).await.unwrap();
        let authorization = served.last().header("authorization").to_owned();
        assert!(authorization.contains(&format!("Credential={access}/")), "{authorization}");
    }
    // One key alone is none, as in AWS' own libraries.
    let half = host(&[("AWS_ACCESS_KEY_ID", "AKIDENV"), ("AWS_EC2_METADATA_DISABLED", "TRUE")]);
    let error = AwsCredentials::from_default_chain(&half, REGION, clock.function()).unwrap_err();
    assert_eq!(error, AwsIdentityError::EmptyChain);
    let relative = host(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "v2/credentials")]);
    assert!(AwsCredentials::from_default_chain(&relative, REGION, clock.function()).is_err());
}
