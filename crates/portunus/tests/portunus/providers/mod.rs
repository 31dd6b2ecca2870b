//! Providers as data: activation, authentication, request adaptation, and answers.

mod auth;
mod bedrock;
mod echoed_secrets;
mod environment;
mod google;
mod request_adaptation;
mod service_account;
