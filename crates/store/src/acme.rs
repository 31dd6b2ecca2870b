//! Certificates of the listener that an authority issued (ACME), shared by all nodes: the account, the
//! certificates with the state of their orders, and answers to challenges.
//!
//! One node orders at a time. It holds the row of the certificate for a while, and renews that. Every
//! attempt moves the next one into the future before it begins, so that nodes which crash in the middle do
//! not ask the authority again and again.

use canon::Micros;

use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::vault::{SealedSecret, Vault};
use crate::{Store, StoreError};

row! {
    struct AccountRow {
        contacts: String,
        sealed: Vec<u8>,
        sealed_by: String,
    }
}

row! {
    struct CertificateRow {
        id: String,
        version: i64,
        chain: Option<String>,
        sealed: Option<Vec<u8>>,
        sealed_by: Option<String>,
        begins: Option<Micros>,
        ends: Option<Micros>,
        is_held: i64,
        failures: u32,
        next_attempt: Micros,
        last_error: Option<String>,
    }
}

/// Account at an authority.
#[derive(Clone, PartialEq, Eq)]
pub struct AcmeAccount {
    /// Contacts that the authority knows.
    pub contacts: String,
    /// The account with its key, as JSON.
    pub secret: String,
}

/// A certificate of the listener, and the state of its orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeCertificate {
    /// Directory and domains.
    pub id: String,
    /// Number of certificates that were issued.
    pub version: i64,
    /// The certificate, if one was issued.
    pub issued: Option<SealedCertificate>,
    /// True if a node orders one now.
    pub is_held: bool,
    /// Number of orders in a row that failed.
    pub failures: u32,
    /// Time before which no order begins.
    pub next_attempt: Micros,
    /// Reason why the last order failed.
    pub last_error: Option<String>,
}

/// A certificate whose key is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedCertificate {
    /// The chain in PEM.
    pub chain: String,
    /// The private key.
    pub key: SealedSecret,
    /// Begin of its validity.
    pub begins: Micros,
    /// End of its validity.
    pub ends: Micros,
}

/// A certificate as an authority issued it.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The chain in PEM.
    pub chain: String,
    /// The private key in PEM.
    pub key: String,
    /// Begin of its validity.
    pub begins: Micros,
    /// End of its validity.
    pub ends: Micros,
}

/// Answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChallengeAnswer {
    /// Kind of the challenge.
    pub kind: &'static str,
    /// Token of a challenge over HTTP, domain of one within TLS.
    pub name: String,
    /// The answer.
    pub answer: String,
}

/// Returns the label of the key of an account.
pub(crate) fn account_label(id: &str) -> String {
    format!("acme_accounts\0{id}")
}

/// Returns the label of the key of a certificate.
pub(crate) fn certificate_label(id: &str) -> String {
    format!("acme_certificates\0{id}")
}

impl From<CertificateRow> for AcmeCertificate {
    fn from(row: CertificateRow) -> Self {
        let CertificateRow { id, version, chain, sealed, sealed_by, begins, ends, .. } = row;
        let issued = match (chain, sealed, sealed_by, begins, ends) {
            (Some(chain), Some(bytes), Some(by), Some(begins), Some(ends)) => {
                Some(SealedCertificate { chain, key: SealedSecret { by, bytes }, begins, ends })
            }
            _ => None,
        };
        Self {
            id,
            version,
            issued,
            is_held: row.is_held != 0,
            failures: row.failures,
            next_attempt: row.next_attempt,
            last_error: row.last_error,
        }
    }
}

const GET_ACCOUNT: &str = "SELECT contacts, sealed, sealed_by FROM acme_accounts WHERE id = $1";
const PUT_ACCOUNT: &str = "INSERT INTO acme_accounts (id, contacts, sealed, sealed_by) \
    VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE SET contacts = excluded.contacts, \
    sealed = excluded.sealed, sealed_by = excluded.sealed_by";
const DROP_ACCOUNT: &str = "DELETE FROM acme_accounts WHERE id = $1";
const ADD: &str = "INSERT INTO acme_certificates (id, version, held_until, failures, next_attempt) \
    VALUES ($1, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING";
const GET: &str = "SELECT id, version, chain, sealed, sealed_by, begins, ends, \
    CAST(CASE WHEN held_until > (SELECT now FROM store_clock) THEN 1 ELSE 0 END AS BIGINT) AS is_held, \
    failures, next_attempt, last_error FROM acme_certificates WHERE id = $1";
// The newest one of other domains or another authority.
const GET_OTHER: &str = "SELECT id, version, chain, sealed, sealed_by, begins, ends, \
    CAST(CASE WHEN held_until > (SELECT now FROM store_clock) THEN 1 ELSE 0 END AS BIGINT) AS is_held, \
    failures, next_attempt, last_error FROM acme_certificates \
    WHERE id <> $1 AND ends > (SELECT now FROM store_clock) ORDER BY ends DESC LIMIT 1";
// Nodes agree on the clock of the database.
const CLAIM: &str = "UPDATE acme_certificates SET holder = $3, \
    held_until = (SELECT now FROM store_clock) + $4, \
    next_attempt = (SELECT now FROM store_clock) + $5 \
    WHERE id = $1 AND version = $2 AND held_until <= (SELECT now FROM store_clock) \
    AND next_attempt <= (SELECT now FROM store_clock)";
const KEEP: &str = "UPDATE acme_certificates SET held_until = (SELECT now FROM store_clock) + $3 \
    WHERE id = $1 AND holder = $2 AND held_until > (SELECT now FROM store_clock)";
const ISSUE: &str = "UPDATE acme_certificates SET version = version + 1, chain = $3, sealed = $4, \
    sealed_by = $5, begins = $6, ends = $7, holder = NULL, held_until = 0, failures = 0, \
    next_attempt = (SELECT now FROM store_clock) + $8, last_error = NULL WHERE id = $1 AND holder = $2";
const FAIL: &str = "UPDATE acme_certificates SET holder = NULL, held_until = 0, \
    failures = failures + 1, next_attempt = (SELECT now FROM store_clock) + $3, last_error = $4 \
    WHERE id = $1 AND holder = $2";
const RELEASE: &str = "UPDATE acme_certificates SET holder = NULL, held_until = 0, \
    next_attempt = (SELECT now FROM store_clock) WHERE id = $1 AND holder = $2";
const DROP_OLD: &str = "DELETE FROM acme_certificates \
    WHERE id <> $1 AND ends < (SELECT now FROM store_clock) \
    AND held_until <= (SELECT now FROM store_clock)";
const PUT_CHALLENGE: &str = "INSERT INTO acme_challenges (kind, name, answer, expires) \
    VALUES ($1, $2, $3, (SELECT now FROM store_clock) + $4) \
    ON CONFLICT (kind, name) DO UPDATE SET answer = excluded.answer, expires = excluded.expires";
const GET_CHALLENGE: &str = "SELECT answer FROM acme_challenges WHERE kind = $1 AND name = $2 \
    AND expires > (SELECT now FROM store_clock)";
const DROP_CHALLENGE: &str = "DELETE FROM acme_challenges WHERE (kind = $1 AND name = $2) \
    OR expires <= (SELECT now FROM store_clock)";

impl Store {
    fn own_vault(&self) -> Result<&Vault, StoreError> {
        let missing = || StoreError::Sealing("this program has no vault".to_owned());
        self.vault().ok_or_else(missing)
    }

    /// Returns the account of that name.
    pub async fn acme_account(&self, id: &str) -> Result<Option<AcmeAccount>, StoreError> {
        let row: Option<AccountRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET_ACCOUNT).bind(clean(id)).fetch_optional(pool).await?
        });
        let Some(AccountRow { contacts, sealed, sealed_by }) = row else { return Ok(None) };
        let sealed = SealedSecret { by: sealed_by, bytes: sealed };
        let secret = self.own_vault()?.open(&account_label(id), &sealed)?;
        let secret = String::from_utf8(secret);
        let secret = secret.map_err(|_| StoreError::Sealing("it is not a text".to_owned()))?;
        Ok(Some(AcmeAccount { contacts, secret }))
    }

    /// Keeps an account.
    pub async fn put_acme_account(
        &self,
        id: &str,
        account: &AcmeAccount,
    ) -> Result<(), StoreError> {
        let sealer = self.own_vault()?.sealer().await?;
        let sealed = sealer.seal(&account_label(id), account.secret.as_bytes())?;
        on_writer!(&self.db, pool => {
            sqlx::query(PUT_ACCOUNT)
                .bind(clean(id))
                .bind(clean(&account.contacts))
                .bind(&sealed.bytes)
                .bind(clean(&sealed.by))
                .execute(pool)
                .await?;
        });
        Ok(())
    }

    /// Forgets an account that the authority does not know any more.
    pub async fn drop_acme_account(&self, id: &str) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(DROP_ACCOUNT).bind(clean(id)).execute(pool).await?;
        });
        Ok(())
    }

    /// Returns the certificate of that name, after adding a row without one if there is none.
    pub async fn acme_certificate(&self, id: &str) -> Result<AcmeCertificate, StoreError> {
        loop {
            let row: Option<CertificateRow> = on_reader!(&self.db, pool => {
                sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
            });
            if let Some(row) = row {
                return Ok(row.into());
            }
            on_writer!(&self.db, pool => {
                sqlx::query(ADD).bind(clean(id)).execute(pool).await?;
            });
        }
    }

    /// Returns the certificate of another name that is valid longest. It serves until the own one is
    /// issued, after the domains were changed.
    pub async fn other_acme_certificate(
        &self,
        id: &str,
    ) -> Result<Option<AcmeCertificate>, StoreError> {
        let row: Option<CertificateRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET_OTHER).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(AcmeCertificate::from))
    }

    /// Opens the private key of a certificate.
    pub fn open_acme_key(
        &self,
        id: &str,
        certificate: &SealedCertificate,
    ) -> Result<String, StoreError> {
        let key = self.own_vault()?.open(&certificate_label(id), &certificate.key)?;
        String::from_utf8(key).map_err(|_| StoreError::Sealing("it is not a text".to_owned()))
    }

    /// Claims the order of the certificate that follows this version, for a time that
    /// [`Self::keep_acme_claim`] extends. Of several nodes, one gets it. The next attempt is not before the
    /// second time has passed, even if the node vanishes.
    pub async fn claim_acme_order(
        &self,
        id: &str,
        version: i64,
        holder: &str,
        time: Micros,
        until_next: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(CLAIM)
                .bind(clean(id))
                .bind(version)
                .bind(clean(holder))
                .bind(time.get())
                .bind(until_next.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Extends a claim. Returns false if it is lost.
    pub async fn keep_acme_claim(
        &self,
        id: &str,
        holder: &str,
        time: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let keep = sqlx::query(KEEP).bind(clean(id)).bind(clean(holder)).bind(time.get());
            keep.execute(pool).await?.rows_affected()
        }) > 0)
    }

    /// Stores an issued certificate and ends the claim. The next order is not before that time has passed.
    /// Returns false if the claim belongs to another node.
    pub async fn put_acme_certificate(
        &self,
        id: &str,
        holder: &str,
        issued: &IssuedCertificate,
        until_next: Micros,
    ) -> Result<bool, StoreError> {
        let IssuedCertificate { chain, key, begins, ends } = issued;
        let sealer = self.own_vault()?.sealer().await?;
        let sealed = sealer.seal(&certificate_label(id), key.as_bytes())?;
        let stored = on_writer!(&self.db, pool => {
            sqlx::query(ISSUE)
                .bind(clean(id))
                .bind(clean(holder))
                .bind(clean(chain))
                .bind(&sealed.bytes)
                .bind(clean(&sealed.by))
                .bind(begins.get())
                .bind(ends.get())
                .bind(until_next.get())
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0;
        on_writer!(&self.db, pool => {
            sqlx::query(DROP_OLD).bind(clean(id)).execute(pool).await?;
        });
        Ok(stored)
    }

    /// Notes a failed order and ends the claim. The next one is not before that time has passed.
    pub async fn fail_acme_order(
        &self,
        id: &str,
        holder: &str,
        until_next: Micros,
        why: &str,
    ) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            let fail = sqlx::query(FAIL).bind(clean(id)).bind(clean(holder));
            fail.bind(until_next.get()).bind(clean(why)).execute(pool).await?;
        });
        Ok(())
    }

    /// Ends a claim without a failure, so that another node can order at once.
    pub async fn release_acme_order(&self, id: &str, holder: &str) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(RELEASE).bind(clean(id)).bind(clean(holder)).execute(pool).await?;
        });
        Ok(())
    }

    /// Keeps the answer to a challenge for a while.
    pub async fn put_challenge(
        &self,
        challenge: &ChallengeAnswer,
        time: Micros,
    ) -> Result<(), StoreError> {
        let ChallengeAnswer { kind, name, answer } = challenge;
        on_writer!(&self.db, pool => {
            let put = sqlx::query(PUT_CHALLENGE).bind(*kind).bind(clean(name));
            put.bind(clean(answer)).bind(time.get()).execute(pool).await?;
        });
        Ok(())
    }

    /// Returns the answer to a challenge.
    pub async fn challenge_answer(
        &self,
        kind: &str,
        name: &str,
    ) -> Result<Option<String>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar(GET_CHALLENGE).bind(clean(kind)).bind(clean(name))
                .fetch_optional(pool).await?
        }))
    }

    /// Removes the answer to a challenge, and all expired ones.
    pub async fn drop_challenge(&self, kind: &str, name: &str) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            let drop = sqlx::query(DROP_CHALLENGE).bind(clean(kind)).bind(clean(name));
            drop.execute(pool).await?;
        });
        Ok(())
    }
}
