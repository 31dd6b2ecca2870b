//! Identities of clouds against stub services that check and count every request.

mod aws;
mod entra;
mod google;
mod renewal;
mod signature;
mod stub;
