//! API keys: their text, and the ring of those this gateway knows.

mod account;
mod ring;
mod token;
mod told;

pub use account::AccountMoney;
pub use ring::{Key, KeyRing};
pub use token::word;
pub use token::{NewToken, Token, hash};
pub use told::{state, told, told_budget};
