//! Parts that tables of objects with an owner and an expiry share: their condition, its parameters, and the turn
//! of a key.

/// Condition for the rows of an owner that have not expired. Its parameters are account, key or nothing, and
/// time.
macro_rules! own_rows {
    () => {
        "account_id = $1 AND ($2 = '' OR key_id = $2) AND expires > $3"
    };
}
pub(crate) use own_rows;

/// Binds the parameters of [`own_rows`], and an id as the fourth.
macro_rules! bind_own {
    ($query:expr, $owner:expr, $now:expr, $id:expr) => {
        $query
            .bind(clean($owner.account_id()))
            .bind(clean($owner.key_id().unwrap_or_default()))
            .bind($now.get())
            .bind(clean($id))
    };
}
pub(crate) use bind_own;

/// Locks a row of the key until the transaction ends, so that its additions follow each other and limits of
/// the key are exact over all nodes.
pub(crate) const TAKE_TURN: &str = "INSERT INTO cached_content_turns (key_id) VALUES ($1) \
    ON CONFLICT (key_id) DO UPDATE SET key_id = excluded.key_id";

/// Returns a number as databases have it.
pub(crate) fn database_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
