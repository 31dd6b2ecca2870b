//! What proves an account besides its password: code generators, passkeys, recovery codes.

use ledger::Micros;
use sqlx::FromRow;

use crate::db::{clean, in_transaction, on_reader, on_writer, unknown_word};
use crate::{Sealed, Store, StoreError};

/// The kinds of factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FactorKind {
    /// A program that shows a new code every half minute.
    Totp,
    /// A key on a device.
    Passkey,
    /// A code on paper, good once.
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
    /// Its id; a passkey's is the one its device gave it.
    pub id: String,
    /// Whose it is.
    pub account_id: String,
    /// Of what kind.
    pub kind: FactorKind,
    /// What its owner calls it.
    pub name: String,
    /// The generator's secret, the passkey's public key or the code's digest.
    pub secret: Vec<u8>,
    /// The key of the vault that sealed the generator's secret; none where there is nothing to seal,
    /// or where it is from before there was a vault.
    pub sealed_by: Option<String>,
    /// The latest step or count that was used.
    pub counter: i64,
    /// When it was added.
    pub created: Micros,
    /// When it was last used.
    pub used: Option<Micros>,
}

impl Factor {
    /// What a sealed secret is bound to.
    pub fn label(&self) -> String {
        label(&self.id, &self.account_id)
    }
}

/// What the secret of a factor is bound to: its row and its account.
pub(crate) fn label(id: &str, account_id: &str) -> String {
    format!("factors\0{id}\0{account_id}")
}

/// The secret is never printed.
impl std::fmt::Debug for Factor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Factor")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

#[derive(FromRow)]
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
// Some passkeys count nothing and say zero for ever.
const USE: &str = "UPDATE factors SET counter = $2, used = $3 \
    WHERE id = $1 AND (counter < $2 OR ($2 = 0 AND counter = 0))";
const SEAL: &str =
    "UPDATE factors SET secret = $2, sealed_by = $3 WHERE id = $1 AND sealed_by IS NULL";
const DROP: &str = "DELETE FROM factors WHERE id = $1 AND account_id = $2";
const DROP_KIND: &str = "DELETE FROM factors WHERE account_id = $1 AND kind = $2";

/// The insertion of a factor, for either database.
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
            .bind($factor.created)
    };
}

impl Store {
    /// Adds a factor.
    pub async fn add_factor(&self, factor: &Factor) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            bound!(factor).execute(pool).await.map_err(StoreError::naming("factor", "account"))?;
        });
        Ok(())
    }

    /// Puts factors of one kind in the place of all the account had of that kind.
    pub async fn replace_factors(
        &self,
        account_id: &str,
        kind: FactorKind,
        factors: &[Factor],
    ) -> Result<(), StoreError> {
        in_transaction!(&self.db, tx: Kind => {
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

    /// The factor with that id.
    pub async fn factor(&self, id: &str) -> Result<Option<Factor>, StoreError> {
        let row: Option<FactorRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(id)).fetch_optional(pool).await?
        });
        Ok(row.map(Factor::try_from).transpose()?)
    }

    /// An account's factors, the oldest first.
    pub async fn factors_of(&self, account_id: &str) -> Result<Vec<Factor>, StoreError> {
        let rows: Vec<FactorRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(OF).bind(clean(account_id)).fetch_all(pool).await?
        });
        Ok(rows.into_iter().map(Factor::try_from).collect::<Result<_, _>>()?)
    }

    /// Notes that a factor was used at that step or count. False when it was used there or beyond
    /// before: of all who show one code, one gets in.
    pub async fn use_factor(&self, id: &str, counter: i64, at: Micros) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(USE).bind(clean(id)).bind(counter).bind(at).execute(pool).await?
                .rows_affected()
        }) > 0)
    }

    /// Puts a sealed secret in the place of one that lies open. False when it does not any more.
    pub async fn seal_factor(&self, id: &str, sealed: &Sealed) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SEAL).bind(clean(id)).bind(&sealed.bytes).bind(clean(&sealed.by))
                .execute(pool).await?.rows_affected()
        }) > 0)
    }

    /// Removes an account's factor. False when it has none of that id.
    pub async fn drop_factor(&self, account_id: &str, id: &str) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(DROP).bind(clean(id)).bind(clean(account_id)).execute(pool).await?
                .rows_affected()
        }) > 0)
    }
}
