//! The gateway in process, and a provider to misbehave behind it, for tests.
//!
//! Both are real: the gateway listens on a port of its own with a store and a journal in a
//! temporary folder, and the provider answers over TCP with exactly the bytes a test gives it.

#![expect(clippy::expect_used, reason = "a test stops when its setup fails")]

mod gateway;
mod new_key;
mod provider;
mod shifted_clock;
mod wait;
mod wire;

pub use gateway::{OpenResponse, TestGateway, TestRequest, TestResponse};
pub use new_key::NewKey;
pub use provider::{
    AnswerStep, ReceivedRequest, ScriptedProvider, chat_reply, chat_stream, reply, sse,
};
pub use shifted_clock::ShiftedClock;
pub use wait::until;
pub use wire::{REDACTIONS, answer_text};
