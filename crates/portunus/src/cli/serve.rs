//! `portunus serve`.

use anyhow::Context as _;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::common::CommonArgs;
use super::output::print_text;
use crate::app::{App, FirstStart};
use config::Config;

/// Number of the signal for a file beyond its limit (`ulimit -f`).
const SIGXFSZ: i32 = 25;

pub(super) async fn serve(common: &CommonArgs, listen: Option<String>) -> anyhow::Result<ExitCode> {
    // Signal handlers are installed first: a supervisor may stop a gateway that is still starting.
    let mut terminate =
        signal(SignalKind::terminate()).context("signal handlers cannot be installed")?;
    let mut interrupt =
        signal(SignalKind::interrupt()).context("signal handlers cannot be installed")?;
    // Without a handler, a file that exceeds its limit would end the process. With one, the write
    // fails.
    let _file_limit =
        signal(SignalKind::from_raw(SIGXFSZ)).context("signal handlers cannot be installed")?;
    let options = common.load_options(listen);
    let mut config = Config::load(&options)?;
    let address = config.listen_address;
    let listener = TcpListener::bind(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "port {} is in use; stop what uses it or choose another with --listen {}:PORT",
            address.port(),
            address.ip()
        ),
        _ => {
            anyhow::anyhow!("cannot listen on {address}: {e}; choose another address with --listen")
        }
    })?;
    // Port 0 lets the system choose, so the address is known only after binding.
    let bound = listener.local_addr()?;
    if address.port() == 0 {
        config.public_url = config.public_url.replace(&address.to_string(), &bound.to_string());
    }
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let metrics = match config.metrics_address {
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .with_context(|| format!("server.metrics: cannot listen on {address}"))?,
        ),
        None => None,
    };
    // A signal ends the opening, which can wait for a database. Nothing is served yet, and a crash
    // at this point does no harm either.
    let (app, first) = tokio::select! {
        opened = App::open(config) => opened?,
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
    };
    if let Some(listener) = metrics {
        app.spawn_loop(crate::serve::serve_metrics(Arc::clone(&app), listener));
    }
    // It ends with the process, because a signal must work until then.
    let signals = stop_on_signal(Arc::clone(&app), terminate, interrupt);
    print_text(welcome_text(&app, first.as_ref()).await?);
    tokio::select! {
        ended = crate::run(app, listener, options) => ended?,
        () = signals => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the greeting of a gateway that serves.
async fn welcome_text(app: &App, first: Option<&FirstStart>) -> anyhow::Result<String> {
    let address = app.config().public_url.clone();
    let mut lines = vec![
        format!(
            "Portunus {} serves {} models",
            env!("CARGO_PKG_VERSION"),
            app.config().catalog.len()
        ),
        String::new(),
        format!("  API      {address}"),
        match app.setup_link().await? {
            Some(link) => format!("  Console  {link}   (one-time set-up link)"),
            None => format!("  Console  {address}/console"),
        },
    ];
    if let Some(FirstStart { key }) = first {
        lines.extend([
            format!("  Key      {key}   (shown only this once)"),
            String::new(),
            "Try it:".to_owned(),
            String::new(),
            format!(
                "  curl {address}/v1/chat/completions \\\n    -H 'Authorization: Bearer {key}' \\\n    \
                 -H 'Content-Type: application/json' \\\n    \
                 -d '{{\"model\":\"demo-chat\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello!\"}}]}}'"
            ),
        ]);
    } else {
        lines.push(String::new());
        lines.push("Make a key with: portunus keys create --name NAME --unlimited".to_owned());
    }
    lines.push(String::new());
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

/// Stops on signals. The first one drains, the second one ends running calls, the third one exits
/// at once.
async fn stop_on_signal(app: Arc<App>, mut terminate: Signal, mut interrupt: Signal) {
    for count in 0.. {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        match count {
            0 => {
                tracing::info!("stopping: running calls may finish; a second signal ends them");
                app.drain();
                app.stop.cancel();
            }
            1 => {
                tracing::warn!("stopping now: running calls are ended");
                app.end_calls.cancel();
            }
            _ => std::process::exit(1),
        }
    }
}
