//! Embedded deterministic models, and an upstream that serves them in every wire format.
//!
//! Knows nothing of accounts or money. [`answer`] is the model and [`events`] streams its answer.
//! [`serve`] is an upstream as a plain function. [`simulate`] is the same upstream behind a socket,
//! where it can fail in every way that [`faults`] lists.

mod faults;
mod model;
mod drawing;
mod pieces;
mod signature;
mod seeded_random;
mod server;
mod simulate;
mod tokens;

pub use faults::{OrderError, FaultRules, faults};
pub use model::{MAX_OUTPUT, Persona, answer, count_input};
pub use pieces::events;
pub use server::{DemoBody, MODELS, UsageMeter, StreamPace, DemoUpstream, serve};
pub use simulate::{SimulatorOptions, simulate};
pub use tokens::count as count_tokens;
