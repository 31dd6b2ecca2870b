//! API keys: their text form, and the cache of keys in memory.

mod account_funds;
mod api_key;
mod foreign_keys;
mod key_cache;
mod key_json;
mod key_token;
mod lookup_limiter;
mod token_proof;

pub use account_funds::AccountFunds;
pub use api_key::ApiKey;
pub use foreign_keys::{KeyRehash, keyed_foreign_hash, plain_foreign_hash};
pub use key_cache::{FoundKey, KeyCache, KnownKey};
pub use key_json::{budget_json, key_json, key_settings_json, key_state};
pub use key_token::{KeyToken, NewKeyToken, hash_token, key_front, key_id_in};
pub use key_token::{letters_from, random_letters};
