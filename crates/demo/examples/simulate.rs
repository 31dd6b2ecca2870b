//! The simulated upstream by itself: `cargo run -p demo --example simulate -- 127.0.0.1:9001`.

use demo::{SimulatorOptions, simulate};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let listener = TcpListener::bind(address).await?;
    simulate(listener, SimulatorOptions::default(), tokio::signal::ctrl_c()).await
}
