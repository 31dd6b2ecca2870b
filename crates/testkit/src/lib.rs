//! Test support: the gateway in process, and a scripted provider behind it.
//!
//! Both are real. The gateway listens on a port of its own with a store and a journal in a
//! temporary folder. The provider answers over TCP with exactly the bytes a test gives it.

#![expect(clippy::expect_used, reason = "a test helper may panic")]

mod gateway;
mod provider;

pub use gateway::{TestGateway, TestRequest, TestResponse};
pub use provider::{
    AnswerStep, ReceivedRequest, ScriptedProvider, chat_reply, chat_stream, reply, sse,
};
