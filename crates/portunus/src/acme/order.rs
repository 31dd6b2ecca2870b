//! One order of a certificate, from the account to the chain.

use canon::Micros;
use config::{AcmeChallenge, AcmeSettings, CertificateValidity};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, ExternalAccountKey,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use jiff::Timestamp;
use ledger::Clock;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use std::time::Duration;
use store::{AcmeAccount, ChallengeAnswer, IssuedCertificate, Store, StoreError};

use super::authority::AuthorityClient;
use super::challenges::is_token;
use super::schedule::begins_later;

/// Time that an authority may take to check the names, and to issue.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for which an answer to a challenge is given at most.
const ANSWER_TIME: Micros = Micros::from_secs(600);
/// Types of problems (RFC 8555, section 6.7).
const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Failure of an order.
#[derive(Debug)]
pub(super) struct CertificateOrderError {
    pub(super) reason: String,
    /// True if the authority said that it was asked too often.
    pub(super) is_rate_limited: bool,
    /// True if the cause is on this node: its vault, its way to the database.
    pub(super) is_local: bool,
    is_unknown_account: bool,
}

impl CertificateOrderError {
    pub(super) fn other(reason: impl Into<String>) -> Self {
        let (is_rate_limited, is_local, is_unknown_account) = (false, false, false);
        Self { reason: reason.into(), is_rate_limited, is_local, is_unknown_account }
    }

    fn local(reason: impl Into<String>) -> Self {
        Self { is_local: true, ..Self::other(reason) }
    }
}

impl From<Error> for CertificateOrderError {
    fn from(error: Error) -> Self {
        let problem_type = match &error {
            Error::Api(problem) => problem.r#type.clone().unwrap_or_default(),
            _ => String::new(),
        };
        let reason = match &error {
            Error::Api(problem) => told(problem),
            Error::Json(why) => format!("the answer of the authority cannot be understood: {why}"),
            other => other.to_string(),
        };
        Self {
            reason,
            is_rate_limited: problem_type == RATE_LIMITED,
            is_local: false,
            is_unknown_account: problem_type == UNKNOWN_ACCOUNT,
        }
    }
}

impl From<StoreError> for CertificateOrderError {
    fn from(error: StoreError) -> Self {
        Self::local(format!("the database: {error}"))
    }
}

impl From<rcgen::Error> for CertificateOrderError {
    fn from(error: rcgen::Error) -> Self {
        Self::local(format!("the request for a certificate cannot be made: {error}"))
    }
}

/// Returns what the authority says of a problem.
fn told(problem: &Problem) -> String {
    let detail = problem.detail.as_deref().unwrap_or("an error without a sentence");
    let parts = problem.subproblems.iter().filter_map(|part| part.detail.as_deref());
    let parts: Vec<&str> = std::iter::once(detail).chain(parts).collect();
    format!("the authority says: {}", parts.join("; "))
}

/// Orders a certificate.
pub(super) async fn place(
    store: &Store,
    settings: &AcmeSettings,
    clock: &dyn Clock,
) -> Result<IssuedCertificate, CertificateOrderError> {
    let mut answers = Vec::new();
    let placed = place_with(store, settings, clock, &mut answers).await;
    for ChallengeAnswer { kind, name, .. } in answers {
        if let Err(e) = store.drop_challenge(kind, &name).await {
            tracing::warn!("the answer to a challenge cannot be removed: {e}");
        }
    }
    if let Err(CertificateOrderError { is_unknown_account: true, .. }) = &placed {
        store.drop_acme_account(&settings.account_id()).await?;
    }
    placed
}

async fn place_with(
    store: &Store,
    settings: &AcmeSettings,
    clock: &dyn Clock,
    answers: &mut Vec<ChallengeAnswer>,
) -> Result<IssuedCertificate, CertificateOrderError> {
    let account = open_account(store, settings).await?;
    let names: Vec<Identifier> = settings.domains.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    authorize(store, settings, &mut order, answers).await?;
    let retries = RetryPolicy::new().backoff(1.5).timeout(STEP_TIMEOUT);
    match order.poll_ready(&retries).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) => {
            let why = "the authority refused the order without a reason";
            return Err(refusal(&mut order, settings, CertificateOrderError::other(why)).await);
        }
        Err(error @ Error::Api(_)) => return Err(refusal(&mut order, settings, error.into()).await),
        Err(other) => return Err(other.into()),
    }
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(settings.domains.clone())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&retries).await?;
    let key = key.serialize_pem();
    let (_, validity) = config::certified_key(&chain, &key, &settings.domains).map_err(|why| {
        CertificateOrderError::other(format!("the authority issued a wrong one: {why}"))
    })?;
    check_validity(validity, clock.now())?;
    Ok(IssuedCertificate { chain, key, begins: validity.begins, ends: validity.ends })
}

/// Refuses a certificate that is not valid. One that has expired would be ordered again and again, and one of the
/// future would keep others from being ordered until then.
fn check_validity(validity: CertificateValidity, now: Micros) -> Result<(), CertificateOrderError> {
    if validity.ends <= now {
        return Err(CertificateOrderError::other("the authority issued one that has expired"));
    }
    if begins_later(validity, now) {
        let begins = Timestamp::from_microsecond(validity.begins.get()).unwrap_or_default();
        let why = format!("the authority issued one that is not valid before {begins}");
        return Err(CertificateOrderError::other(why));
    }
    Ok(())
}

/// Opens the account of the store, or creates one.
async fn open_account(
    store: &Store,
    settings: &AcmeSettings,
) -> Result<Account, CertificateOrderError> {
    let id = settings.account_id();
    let contacts: Vec<&str> = settings.contacts.iter().map(String::as_str).collect();
    let builder = || Account::builder_with_http(Box::new(AuthorityClient::new(settings)));
    let broken = |_| CertificateOrderError::other("the stored account cannot be read");
    if let Some(kept) = store.acme_account(&id).await? {
        let credentials: AccountCredentials = serde_json::from_str(&kept.secret).map_err(broken)?;
        let account = builder().from_credentials(credentials).await?;
        if kept.contacts != contacts.join(" ") {
            account.update_contacts(&contacts).await?;
            let contacts = contacts.join(" ");
            store.put_acme_account(&id, &AcmeAccount { contacts, ..kept }).await?;
        }
        return Ok(account);
    }
    let bound = settings.account_key.as_ref();
    let bound = bound.map(|key| ExternalAccountKey::new(key.id.clone(), &key.secret));
    let new = NewAccount {
        contact: &contacts,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let (account, credentials) =
        builder().create(&new, settings.directory.clone(), bound.as_ref()).await?;
    let secret = serde_json::to_string(&credentials).map_err(broken)?;
    let kept = AcmeAccount { contacts: contacts.join(" "), secret };
    store.put_acme_account(&id, &kept).await?;
    Ok(account)
}

/// Stores the answers to all challenges and then tells the authority.
async fn authorize(
    store: &Store,
    settings: &AcmeSettings,
    order: &mut Order,
    answers: &mut Vec<ChallengeAnswer>,
) -> Result<(), CertificateOrderError> {
    let kind = match settings.challenge {
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    };
    check_count(order, settings)?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let name = match authorization.identifier().identifier {
            Identifier::Dns(name) => name.to_ascii_lowercase(),
            _ => String::new(),
        };
        // The gateway vouches only for its own names.
        if !settings.domains.contains(&name) {
            let why = format!("the authority asks for `{name}`, which was not ordered");
            return Err(CertificateOrderError::other(why));
        }
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => {
                let why = format!("the authority does not check {name}: {other:?}");
                return Err(CertificateOrderError::other(why));
            }
        }
        let word = settings.challenge.word();
        let Some(mut challenge) = authorization.challenge(kind.clone()) else {
            let why = format!("the authority offers no challenge {word} for {name}");
            return Err(CertificateOrderError::other(why));
        };
        if !is_token(&challenge.token) {
            return Err(CertificateOrderError::other("the authority sent a token that is none"));
        }
        let answer = ChallengeAnswer {
            kind: word,
            name: match settings.challenge {
                AcmeChallenge::Http01 => challenge.token.clone(),
                AcmeChallenge::TlsAlpn01 => name,
            },
            answer: challenge.key_authorization().as_str().to_owned(),
        };
        store.put_challenge(&answer, ANSWER_TIME).await?;
        answers.push(answer);
        challenge.set_ready().await?;
    }
    Ok(())
}

/// Refuses an order with more authorizations than names. Each one is a request.
fn check_count(order: &mut Order, settings: &AcmeSettings) -> Result<(), CertificateOrderError> {
    let (count, names) = (order.state().authorizations.len(), settings.domains.len());
    if count > names {
        let why = format!("the authority wants {count} authorizations for {names} names");
        return Err(CertificateOrderError::other(why));
    }
    Ok(())
}

/// Returns the reason why the authority refused an order, from the challenges that failed if any did.
async fn refusal(
    order: &mut Order,
    settings: &AcmeSettings,
    whole: CertificateOrderError,
) -> CertificateOrderError {
    // The authority may have changed the order since.
    if check_count(order, settings).is_err() {
        return whole;
    }
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        // Without the last state the reason is only less exact.
        let _ = authorization.refresh().await;
        let name = authorization.identifier().to_string();
        let problems = authorization.challenges.iter().filter_map(|one| one.error.as_ref());
        reasons.extend(problems.map(|problem| format!("{name}: {}", told(problem))));
    }
    if reasons.is_empty() {
        return whole;
    }
    CertificateOrderError { reason: reasons.join("; "), ..whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_own_vault_and_database_are_local() {
        let sealing = StoreError::Sealing("another key".to_owned());
        assert!(CertificateOrderError::from(sealing).is_local);
        assert!(!CertificateOrderError::from(Error::Str("no answer")).is_local);
    }

    #[test]
    fn an_issued_certificate_that_is_not_valid_is_a_failure() {
        let day = Micros::from_days;
        let checked = |begins, ends| {
            let validity = CertificateValidity { begins, ends };
            check_validity(validity, day(100)).map_err(|failure| failure.reason)
        };
        assert_eq!(checked(day(99), day(190)), Ok(()));
        assert_eq!(checked(day(100) + Micros::from_secs(60), day(190)), Ok(()));
        assert!(checked(day(10), day(100)).unwrap_err().contains("expired"));
        let why = checked(day(101), day(190)).unwrap_err();
        assert!(why.contains("not valid before 1970-04-12T00:00:00Z"), "{why}");
    }
}
