//! API keys: their text, and the ring of those this gateway knows.

mod account;
mod describe;
mod ring;
mod token;

pub use account::AccountMoney;
pub use describe::{described, described_budget, state};
pub use ring::{Key, KeyRing};
pub use token::word;
pub use token::{NewToken, Token, hash};
