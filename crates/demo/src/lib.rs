//! Embedded deterministic models, and an upstream that serves them in every wire format.
//!
//! Knows nothing of accounts or money. [`answer`] is the model and [`events`] streams its answer.
//! [`serve`] is an upstream as a plain function. [`simulate`] is the same upstream behind a socket,
//! where it can fail in every way that [`faults`] lists.

mod drawing;
mod faults;
mod model;
mod pieces;
mod seeded_random;
mod server;
mod signature;
mod simulate;
mod tokens;

pub use faults::{FaultRules, OrderError, faults};
pub use model::{MAX_OUTPUT, Persona, answer, count_input};
pub use pieces::events;
pub use server::{DemoBody, DemoUpstream, MODELS, StreamPace, UsageMeter, serve};
pub use simulate::{SimulatorOptions, simulate};
pub use tokens::count as count_tokens;
