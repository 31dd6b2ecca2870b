//! Objects that a provider made for a key, and that its later calls may name. Only a hash of the id
//! is stored.

use canon::Micros;
use sqlx::QueryBuilder;

use crate::db::{clean, in_transaction, on_reader, on_writer};
use crate::row::row;
use crate::{ObjectOwner, Store, StoreError};

row! {
    /// An object of a provider.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProviderObject {
        /// Hash of the id.
        pub hash: Vec<u8>,
        /// The account that it was made for.
        pub account_id: String,
        /// The key that it was made for.
        pub key_id: String,
        /// Time at which it is forgotten.
        pub expires: Micros,
    }
}

const ADD: &str = "INSERT INTO provider_objects (hash, account_id, key_id, expires) \
    VALUES ($1, $2, $3, $4) ON CONFLICT (hash, account_id, key_id) \
    DO UPDATE SET expires = excluded.expires WHERE provider_objects.expires < excluded.expires";
const FIND: &str =
    "SELECT hash, account_id, key_id, expires FROM provider_objects WHERE account_id = ";
const SWEEP: &str = "DELETE FROM provider_objects WHERE expires <= $1";

/// Hashes in one query.
const HASHES_PER_STATEMENT: usize = 500;

impl Store {
    /// Records objects. One that is known is kept until the later time.
    pub async fn record_objects(&self, objects: &[ProviderObject]) -> Result<(), StoreError> {
        in_transaction!(&self.db, tx: Kind => {
            for ProviderObject { hash, account_id, key_id, expires } in objects {
                let add = sqlx::query(ADD).bind(hash).bind(clean(account_id));
                let add = add.bind(clean(key_id)).bind(expires.get());
                add.execute(&mut *tx).await.map_err(StoreError::naming("object", "account"))?;
            }
        });
        Ok(())
    }

    /// Returns the objects of that owner among these hashes. Expired ones are not returned.
    pub async fn provider_objects(
        &self,
        owner: &ObjectOwner,
        hashes: &[Vec<u8>],
        now: Micros,
    ) -> Result<Vec<ProviderObject>, StoreError> {
        let mut objects: Vec<ProviderObject> = Vec::new();
        for chunk in hashes.chunks(HASHES_PER_STATEMENT) {
            let found: Vec<ProviderObject> = on_reader!(&self.db, pool: Kind => {
                let mut query = QueryBuilder::<Kind>::new(FIND);
                query.push_bind(clean(owner.account_id()).into_owned());
                query.push(" AND expires > ").push_bind(now.get());
                if let Some(key_id) = owner.key_id() {
                    query.push(" AND key_id = ").push_bind(clean(key_id).into_owned());
                }
                query.push(" AND hash IN (");
                let mut list = query.separated(", ");
                for hash in chunk {
                    list.push_bind(hash.clone());
                }
                query.push(")").build_query_as().persistent(false).fetch_all(pool).await?
            });
            objects.extend(found);
        }
        Ok(objects)
    }

    /// Forgets all expired objects and returns their number.
    pub async fn sweep_objects(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now.get()).execute(pool).await?.rows_affected()
        }))
    }
}
