//! Providers as data: what switches them on, how they are convinced of us, how requests are made to
//! fit them and how their answers come back.

mod account;
mod auth;
mod bedrock;
mod google;
mod switched_on;
mod ways;
