//! Second factors of accounts: code generators, passkeys, recovery codes.

use crate::audited_change::in_change;
use crate::db::{clean, on_reader, on_writer, unknown_word};
use crate::row::row;
use crate::{AuditedChange, SealedSecret, Store, StoreError};
use canon::Micros;

/// The kinds of factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FactorKind {
    /// A code generator (TOTP, RFC 6238).
    Totp,
    /// A passkey (WebAuthn).
    Passkey,
    /// A printed code that can be used once.
    Recovery,
}

impl FactorKind {
    const ALL: [Self; 3] = [Self::Totp, Self::Passkey, Self::Recovery];

    /// The word in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Totp => "totp",
            Self::Passkey => "passkey",
            Self::Recovery => "recovery",
        }
    }
}

/// A factor.
#[derive(Clone, PartialEq, Eq)]
pub struct Factor {
    /// Its id. The id of a passkey comes from its device.
    pub id: String,
    /// The account.
    pub account_id: String,
    /// The kind.
    pub kind: FactorKind,
    /// Name given by its owner.
    pub name: String,
    /// Secret of the generator, public key of the passkey, or digest of the code.
    pub secret: Vec<u8>,
    /// Vault key that sealed the generator's secret. `None` for other kinds, and for secrets from
    /// before the vault existed.
    pub sealed_by: Option<String>,
    /// Last used time step or signature counter.
    pub counter: i64,
    /// Time of creation.
    pub created: Micros,
    /// Time of the last use.
    pub used: Option<Micros>,
}

impl Factor {
    /// Returns the label a sealed secret is bound to.
    pub fn label(&self) -> String {
        label(&self.id, &self.account_id)
    }
}

/// Returns the label of a factor's secret, which names its row and its account.
pub(crate) fn label(id: &str, account_id: &str) -> String {
    format!("factors\0{id}\0{account_id}")
}

/// Omits the secret.
impl std::fmt::Debug for Factor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Factor")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

row! {
    struct FactorRow {
        id: String,
        account_id: String,
        kind: String,
        name: String,
        secret: Vec<u8>,
        sealed_by: Option<String>,
        counter: i64,
        created: Micros,
        used: Option<Micros>,
    }
}

impl TryFrom<FactorRow> for Factor {
    type Error = sqlx::Error;

    fn try_from(row: FactorRow) -> Result<Self, sqlx::Error> {
        let FactorRow { id, account_id, kind, name, secret, sealed_by, counter, created, used } =
            row;
        let known = FactorKind::ALL.into_iter().find(|known| known.word() == kind);
        let kind = known.ok_or_else(|| unknown_word(&kind))?;
        Ok(Self { id, account_id, kind, name, secret, sealed_by, counter, created, used })
    }
}

const ADD: &str = "INSERT INTO factors \
    (id, account_id, kind, name, secret, sealed_by, counter, created, used) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL)";
const GET: &str = "SELECT id, account_id, kind, name, secret, sealed_by, counter, created, used \
    FROM factors WHERE id = $1";
const OF: &str = "SELECT id, account_id, kind, name, secret, sealed_by, counter, created, used \
    FROM factors WHERE account_id = $1 ORDER BY created, id";
// Some passkeys do not count and always report zero
// (<https://www.w3.org/TR/webauthn-3/#sctn-sign-counter>).
const USE: &str = "UPDATE factors SET counter = $2, used = $3 \
    WHERE id = $1 AND (counter < $2 OR ($2 = 0 AND counter = 0))";
const SEAL: &str =
    "UPDATE factors SET secret = $2, sealed_by = $3 WHERE id = $1 AND sealed_by IS NULL";
const DROP: &str = "DELETE FROM factors WHERE id = $1 AND account_id = $2";
const DROP_KIND: &str = "DELETE FROM factors WHERE account_id = $1 AND kind = $2";

/// Builds the insertion of a factor, for either driver.
macro_rules! bound {
    ($factor:expr) => {
        sqlx::query(ADD)
            .bind(clean(&$factor.id))
            .bind(clean(&$factor.account_id))
            .bind($factor.kind.word())
            .bind(clean(&$factor.name))
            .bind(&$factor.secret)
            .bind(&$factor.sealed_by)
            .bind($factor.counter)
            .bind($factor.created.get())
    };
}

impl Store {
    /// Returns the factor with that id.
    pub async fn factor(&self, id: &str) -> Result<Option<Factor>, StoreError> {
        let row: Option<FactorRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(Factor::try_from).transpose()?)
    }

    /// Returns the factors of an account, the oldest first.
    pub async fn factors_of(&self, account_id: &str) -> Result<Vec<Factor>, StoreError> {
        let rows: Vec<FactorRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(OF).bind(clean(account_id)).fetch_all(pool).await?
        });
        Ok(rows.into_iter().map(Factor::try_from).collect::<Result<_, _>>()?)
    }

    /// Records the use of a factor at that step or count. Returns false if it was used there or
    /// beyond before, so that a code can be used once.
    pub async fn use_factor(&self, id: &str, counter: i64, at: Micros) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(USE).bind(clean(id)).bind(counter).bind(at.get()).execute(pool).await?
                .rows_affected()
        }) > 0)
    }

    /// Replaces an unsealed secret by the sealed one. Returns false if it is sealed already.
    pub async fn seal_factor(&self, id: &str, sealed: &SealedSecret) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SEAL).bind(clean(id)).bind(&sealed.bytes).bind(clean(&sealed.by))
                .execute(pool).await?.rows_affected()
        }) > 0)
    }
}

impl AuditedChange {
    /// Adds a factor.
    pub async fn add_factor(&mut self, factor: &Factor) -> Result<(), StoreError> {
        in_change!(self, tx => {
            bound!(factor).execute(&mut *tx).await.map_err(StoreError::naming("factor", "account"))?;
        });
        Ok(())
    }

    /// Replaces all factors of one kind of an account.
    pub async fn replace_factors(
        &mut self,
        account_id: &str,
        kind: FactorKind,
        factors: &[Factor],
    ) -> Result<(), StoreError> {
        in_change!(self, tx => {
            sqlx::query(DROP_KIND)
                .bind(clean(account_id))
                .bind(kind.word())
                .execute(&mut *tx)
                .await?;
            for factor in factors {
                bound!(factor)
                    .execute(&mut *tx)
                    .await
                    .map_err(StoreError::naming("factor", "account"))?;
            }
        });
        Ok(())
    }

    /// Removes a factor of an account. Returns false if the account has no such factor.
    pub async fn drop_factor(&mut self, account_id: &str, id: &str) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP).bind(clean(id)).bind(clean(account_id)).execute(&mut *tx).await?
                .rows_affected()
        }) > 0)
    }
}
