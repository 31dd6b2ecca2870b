//! `portunus simulate`: the demo models as a stand-alone provider.

use std::process::ExitCode;
use tokio::net::TcpListener;

use super::say;

pub(super) async fn simulate(listen: &str, canned: bool) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(listen).await.map_err(|e| {
        anyhow::anyhow!("cannot listen on {listen}: {e}; choose another with --listen")
    })?;
    let address = listener.local_addr()?;
    let formats: Vec<&str> = dialects::all().map(|dialect| dialect.origin().name()).collect();
    say(&format!("a simulated provider speaks {} at http://{address}", formats.join(", ")));
    let options = demo::Options { canned, ..demo::Options::default() };
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    demo::simulate(listener, options, stop).await?;
    Ok(ExitCode::SUCCESS)
}
