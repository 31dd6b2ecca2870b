//! API keys: their text, and the ring of those this gateway knows.

mod account;
mod ring;
mod token;

pub use account::AccountMoney;
pub use ring::{Key, KeyRing};
pub(crate) use token::word;
pub use token::{NewToken, Token, hash};
