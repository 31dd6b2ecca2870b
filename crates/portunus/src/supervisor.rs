//! News for the service manager, by the protocol of systemd
//! (<https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>). Without a service manager
//! nothing is sent.
//!
//! The kernel keeps ten messages for a service manager that does not read, and then stops the sender. So
//! a thread of its own sends, and no call waits for it.

use config::ReloadStep;
use sd_notify::NotifyState;
use std::env;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::app::App;

/// Variable with the socket of the service manager.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// News that wait for a service manager that does not read. Later ones are lost, with a warning.
const MAX_WAITING: usize = 64;
/// Time in which news are sent before the process goes on.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

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

/// News on their way.
struct QueuedNews {
    states: Vec<NotifyState<'static>>,
    is_alive: bool,
    /// Told when they are sent.
    sent: oneshot::Sender<()>,
}

/// The way to the service manager.
pub(crate) struct SupervisorLink {
    /// `None` without a service manager.
    messages: Option<SyncSender<QueuedNews>>,
    /// True while the last message about the life of the process waits; a second one would say nothing new.
    alive_waits: Arc<AtomicBool>,
}

impl SupervisorLink {
    /// Starts the thread that sends, if there is a service manager.
    pub(crate) fn start() -> io::Result<Self> {
        let alive_waits = Arc::new(AtomicBool::new(false));
        let mut messages = None;
        if env::var_os(SOCKET_VARIABLE).is_some() {
            let (sender, receiver) = sync_channel(MAX_WAITING);
            let waits = Arc::clone(&alive_waits);
            let sending = move || send_all(&receiver, &waits);
            thread::Builder::new().name("supervisor".to_owned()).spawn(sending)?;
            messages = Some(sender);
        }
        Ok(Self { messages, alive_waits })
    }

    /// Hands news to the thread that sends. The receiver hears when they are sent, or lost.
    fn hand_on(&self, news: SupervisorNews) -> oneshot::Receiver<()> {
        let (sent, is_sent) = oneshot::channel();
        let Some(messages) = &self.messages else { return is_sent };
        let is_alive = news == SupervisorNews::Alive;
        if is_alive && self.alive_waits.swap(true, Ordering::Relaxed) {
            return is_sent;
        }
        if messages.try_send(QueuedNews { states: states(news), is_alive, sent }).is_err() {
            tracing::warn!("the service manager does not read its socket; {news:?} is lost");
            // The next one is due all the same.
            if is_alive {
                self.alive_waits.store(false, Ordering::Relaxed);
            }
        }
        is_sent
    }
}

impl App {
    /// Tells the service manager, unless another process has taken over and speaks for the service.
    pub(crate) fn tell_supervisor(&self, news: SupervisorNews) {
        if !self.handed_over.is_cancelled() {
            drop(self.supervisor.hand_on(news));
        }
    }

    /// The same, and waits a moment until the service manager has them.
    pub(crate) async fn tell_supervisor_first(&self, news: SupervisorNews) {
        if !self.handed_over.is_cancelled() {
            let is_sent = self.supervisor.hand_on(news);
            if timeout(SEND_TIMEOUT, is_sent).await.is_err() {
                tracing::warn!("the service manager does not read its socket");
            }
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

/// Returns the lines of news.
fn states(news: SupervisorNews) -> Vec<NotifyState<'static>> {
    match news {
        SupervisorNews::Ready => vec![NotifyState::Ready],
        SupervisorNews::Reloading => {
            let now = NotifyState::monotonic_usec_now();
            [NotifyState::Reloading].into_iter().chain(now).collect()
        }
        SupervisorNews::Alive => vec![NotifyState::Watchdog],
        SupervisorNews::Stopping => vec![NotifyState::Stopping],
        SupervisorNews::Successor(id) => vec![NotifyState::MainPid(id)],
    }
}

/// Sends until the link is dropped.
fn send_all(messages: &Receiver<QueuedNews>, alive_waits: &AtomicBool) {
    for QueuedNews { states, is_alive, sent } in messages {
        if let Err(e) = sd_notify::notify(&states) {
            tracing::warn!("the service manager could not be told: {e}");
        }
        if is_alive {
            alive_waits.store(false, Ordering::Relaxed);
        }
        // Most senders do not wait for it.
        let _ = sent.send(());
    }
}

/// Returns the period in which the service manager wants to hear that the process works: half of the
/// time after which it ends a silent one.
pub(crate) fn watchdog_period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|period| !period.is_zero())
}
