//! The end of the process: signals, and a process that takes over.

use std::io;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use transport::ShutdownPhase;

use crate::app::App;
use crate::supervisor::SupervisorNews;

/// A signal that stops the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// `SIGTERM`, from a supervisor.
    Terminate,
    /// `SIGINT`, from a terminal.
    Interrupt,
}

/// The signals that stop the process.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers.
    pub(crate) fn install() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}

/// Stops at a signal, or when another process has taken over. Calls are still taken for `server.linger`,
/// but not after `SIGINT`: nobody who presses Ctrl-C waits for a load balancer. Each further signal ends
/// a phase: the time to linger, the running calls, and then the process.
pub(crate) async fn stop_on_signal(app: Arc<App>, mut signals: StopSignals) {
    let lingers = tokio::select! {
        () = app.handed_over.cancelled() => true,
        signal = signals.next() => {
            app.advance(ShutdownPhase::Linger);
            app.tell_supervisor_first(SupervisorNews::Stopping).await;
            signal == StopSignal::Terminate
        }
    };
    let linger = app.config().linger;
    if lingers && !linger.is_zero() {
        tracing::info!("stopping: calls are still taken for {linger:?}; a second signal ends this");
        tokio::select! {
            () = tokio::time::sleep(linger) => {}
            _ = signals.next() => {}
        }
    }
    tracing::info!("stopping: running calls may finish; a further signal ends them");
    app.stop.cancel();
    signals.next().await;
    tracing::warn!("stopping now: running calls are ended");
    app.end_calls.cancel();
    signals.next().await;
    std::process::exit(1);
}
