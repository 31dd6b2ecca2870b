//! `portunus serve`.

use anyhow::Context as _;
use ledger::SystemClock;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

use super::common::CommonArgs;
use super::welcome;
use crate::app::App;
use crate::listeners::{ListenerRole, PassedSockets};
use crate::node_journal::FolderUse;
use crate::shutdown::{StopSignals, stop_on_signal};
use crate::supervisor::{self, SupervisorNews};
use crate::take_over;
use config::Config;

/// Number of the signal for a file beyond its limit (`ulimit -f`).
const SIGXFSZ: i32 = 25;

/// Start options of the command line.
pub(super) struct ServeOptions {
    /// Address to listen on.
    pub(super) listen: Option<String>,
    /// True to replace a process that runs on the same data folder.
    pub(super) take_over: bool,
    /// Sockets of the service manager.
    pub(super) passed: io::Result<PassedSockets>,
}

pub(super) async fn serve(common: &CommonArgs, start: ServeOptions) -> anyhow::Result<ExitCode> {
    // Signal handlers are installed first: a supervisor may stop a gateway that is still starting.
    let mut signals = StopSignals::install().context("signal handlers cannot be installed")?;
    // Without a handler, a file that exceeds its limit would end the process. With one, the write
    // fails.
    let _file_limit =
        signal(SignalKind::from_raw(SIGXFSZ)).context("signal handlers cannot be installed")?;
    // A hangup before the file is watched would end the process.
    let _hangup = signal(SignalKind::hangup()).context("signal handlers cannot be installed")?;
    let ServeOptions { listen, take_over, passed } = start;
    let options = common.load_options(listen);
    let mut config = Config::load(&options)?;
    let mut passed = passed.context("the sockets of the service manager cannot be used")?;
    let mut running = match take_over {
        true => take_over::request(&config.data_folder).await?,
        false => None,
    };
    let mut watchdog = supervisor::watchdog_period();
    if let Some(old) = &mut running {
        let handed = std::mem::take(&mut old.handed);
        passed.add(handed.sockets);
        watchdog = watchdog.or(handed.watchdog);
    }
    let address = config.listen_address;
    let others: Vec<SocketAddr> =
        config.metrics_address.into_iter().chain(config.http_address).collect();
    let api =
        passed.listen(ListenerRole::Api, address, &others).await.map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => anyhow::anyhow!(
                "port {} is in use; stop what uses it or choose another with --listen {}:PORT",
                address.port(),
                address.ip()
            ),
            _ => anyhow::anyhow!(
                "cannot listen on {address}: {e}; choose another address with --listen"
            ),
        })?;
    // Port 0 lets the system choose, so the address is known only after binding.
    let bound = api.listener.local_addr()?;
    if address.port() == 0 {
        config.public_url = config.public_url.replace(&address.to_string(), &bound.to_string());
    }
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(notice) = config.outbound.certificate_notice() {
        tracing::warn!("{notice}");
    }
    let metrics = match config.metrics_address {
        Some(address) => Some(
            passed
                .listen(ListenerRole::Metrics, address, &[bound])
                .await
                .with_context(|| format!("server.metrics: cannot listen on {address}"))?,
        ),
        None => None,
    };
    let plain = match config.http_address {
        Some(address) => Some(
            passed
                .listen(ListenerRole::PlainHttp, address, &[bound])
                .await
                .with_context(|| format!("server.http_listen: cannot listen on {address}"))?,
        ),
        None => None,
    };
    // Sockets that the configuration does not name are closed here, and no process listens on them
    // after a take-over.
    drop(passed);
    let data_folder = config.data_folder.clone();
    let folder_use = if take_over { FolderUse::WithOthers } else { FolderUse::Alone };
    // A signal ends the opening, which can wait for a database. Nothing is served yet, and a crash
    // at this point does no harm either.
    let (app, first) = tokio::select! {
        opened = App::open_in_folder(config, Arc::new(SystemClock), folder_use) => opened?,
        _ = signals.next() => return Ok(ExitCode::SUCCESS),
    };
    crate::acme::serve_stored_certificate(&app).await;
    app.sockets.add(ListenerRole::Api, &api)?;
    if let Some(metrics) = metrics {
        app.sockets.add(ListenerRole::Metrics, &metrics)?;
        app.spawn_loop(crate::serve::serve_metrics(Arc::clone(&app), metrics.listener));
    }
    if let Some(plain) = plain {
        app.sockets.add(ListenerRole::PlainHttp, &plain)?;
        app.spawn_loop(crate::plain_http::serve_plain_http(Arc::clone(&app), plain.listener));
    }
    // Read before the old process stops accepting: after that nothing may fail or wait for a database.
    let link = app.setup_link().await?;
    if let Some(old) = running {
        old.commit().await;
        app.sockets.accept_handshakes();
    }
    match take_over::bind(&data_folder) {
        Ok(waiting) => app.spawn_loop(take_over::serve(Arc::clone(&app), waiting)),
        Err(e) => tracing::warn!("no process can take over from this one: {e}"),
    }
    // It ends with the process, because a signal must work until then.
    let stopping = stop_on_signal(Arc::clone(&app), signals);
    welcome::greet(&app, link.as_deref(), first.as_ref());
    app.tell_supervisor(SupervisorNews::Ready);
    if let Some(period) = watchdog {
        app.start_watchdog(period);
    }
    tokio::select! {
        ended = crate::run(app, api.listener, options) => ended?,
        () = stopping => {}
    }
    Ok(ExitCode::SUCCESS)
}
