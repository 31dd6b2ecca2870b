//! News for the service manager, by the protocol of systemd
//! (<https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>). Without a service manager
//! nothing is sent.

use config::ReloadStep;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

/// State of this process that a service manager wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorNews {
    /// Calls are served.
    Ready,
    /// The configuration is read again. [`SupervisorNews::Ready`] follows.
    Reloading,
    /// The process works.
    Alive,
    /// The process is about to end.
    Stopping,
    /// A process with that id takes over.
    Successor(u32),
}

impl App {
    /// Tells the service manager, unless another process has taken over and speaks for the service.
    pub(crate) fn tell_supervisor(&self, news: SupervisorNews) {
        if !self.handed_over.is_cancelled() {
            send(news);
        }
    }

    /// Tells the service manager periodically that the process works.
    pub(crate) fn start_watchdog(self: &Arc<Self>, period: Duration) {
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                app.tell_supervisor(SupervisorNews::Alive);
                tokio::time::sleep(period).await;
            }
        });
    }

    /// Applies a step of a reload.
    pub(crate) fn reload(&self, step: ReloadStep) {
        match step {
            ReloadStep::Begun => self.tell_supervisor(SupervisorNews::Reloading),
            ReloadStep::Loaded(config) => {
                self.reconfigure(*config);
                self.tell_supervisor(SupervisorNews::Ready);
            }
            ReloadStep::Refused => {
                self.engine.metrics.reloads.note_refused();
                self.tell_supervisor(SupervisorNews::Ready);
            }
        }
    }
}

fn send(news: SupervisorNews) {
    let sent = match news {
        SupervisorNews::Ready => sd_notify::notify(&[NotifyState::Ready]),
        SupervisorNews::Reloading => NotifyState::monotonic_usec_now()
            .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now])),
        SupervisorNews::Alive => sd_notify::notify(&[NotifyState::Watchdog]),
        SupervisorNews::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
        SupervisorNews::Successor(id) => sd_notify::notify(&[NotifyState::MainPid(id)]),
    };
    if let Err(e) = sent {
        tracing::warn!("the service manager could not be told: {e}");
    }
}

/// Returns the period in which the service manager wants to hear that the process works: half of the
/// time after which it ends a silent one.
pub(crate) fn watchdog_period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|period| !period.is_zero())
}
