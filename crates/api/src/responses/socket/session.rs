//! The life of one WebSocket.

use access::limits::{BufferPermit, CallerUse};
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use config::Config;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use transport::{
    CloseReason, ConnectionPlace, ReadMeter, ShutdownPhase, SocketInput, UpgradedConnection,
    WebSocket,
};

use super::client_event::{ClientEvent, CreateEvent, RefusedEvent, read_event};
use super::server_event::{error_event, steer_failed};
use super::turn::{SocketContext, SocketTurnEnd, run_turn, stopping};

/// Time between two pings. Proxies close connections that are silent for a minute.
const PING_PERIOD: Duration = Duration::from_secs(20);
/// Responses of a connection that run at once.
const MAX_RUNNING: usize = 16;
/// Responses of a connection that run or wait for their turn.
const MAX_PENDING: usize = 32;
/// Named streams of a connection.
const MAX_STREAMS: usize = 32;
/// Events that wait to be sent. A call whose events are not read waits.
const MAX_EVENTS: usize = 32;

/// One WebSocket.
pub(super) struct SocketSession {
    context: Arc<SocketContext>,
    config: Arc<Config>,
    caller: Arc<CallerUse>,
    socket: WebSocket,
    sender: mpsc::Sender<Bytes>,
    events: mpsc::Receiver<Bytes>,
    turns: FuturesUnordered<BoxFuture<'static, SocketTurnEnd>>,
    /// Streams whose response runs.
    running: HashSet<Option<String>>,
    waiting: VecDeque<WaitingCreate>,
    /// Named streams of the connection so far.
    streams: HashSet<String>,
    /// The event that is being read. The next message is read after it.
    reading: Option<BoxFuture<'static, Result<ClientEvent, RefusedEvent>>>,
    /// Reason to close after the running responses, and the error of every further event.
    closing: Option<(CloseReason, ApiError)>,
}

/// A request that waits for an earlier one of its stream.
struct WaitingCreate {
    create: CreateEvent,
    _memory: BufferPermit,
}

/// Memory of the message that is being read.
struct MessageMemory(BufferPermit);

impl ReadMeter for MessageMemory {
    fn grow(&mut self, bytes: u64) -> Result<(), ApiError> {
        self.0.grow(bytes)
    }

    fn shrink(&mut self, bytes: u64) {
        self.0.shrink(bytes);
    }
}

/// Signal that the connection is over.
struct Disconnected;

impl SocketSession {
    /// Serves a connection until it ends.
    pub(super) async fn run(
        context: Arc<SocketContext>,
        config: Arc<Config>,
        caller: Arc<CallerUse>,
        connection: UpgradedConnection,
    ) {
        let memory = MessageMemory(context.state.limiter.buffer_permit(&caller, &config.gate));
        let (socket, place) =
            WebSocket::open(connection, config.max_body_bytes, Box::new(memory)).await;
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        let session = Self {
            context,
            config,
            caller,
            socket,
            sender,
            events,
            turns: FuturesUnordered::new(),
            running: HashSet::new(),
            waiting: VecDeque::new(),
            streams: HashSet::new(),
            reading: None,
            closing: None,
        };
        // A response that is sent to a slow reader ends with the connections, too.
        tokio::select! {
            () = session.serve(&place) => {}
            () = place.reached(ShutdownPhase::Cut) => {}
        }
    }

    async fn serve(mut self, place: &ConnectionPlace) {
        let mut pings = tokio::time::interval_at(Instant::now() + PING_PERIOD, PING_PERIOD);
        let lifetime = tokio::time::sleep(self.config.web_socket_lifetime);
        tokio::pin!(lifetime);
        let mut batch = Vec::with_capacity(MAX_EVENTS);
        loop {
            self.start_turns();
            if self.closing.is_some() && self.turns.is_empty() {
                return self.close().await;
            }
            let is_open = self.closing.is_none();
            let step = tokio::select! {
                _ = self.events.recv_many(&mut batch, MAX_EVENTS) => {
                    self.send(batch.drain(..)).await
                }
                Some(end) = self.turns.next() => {
                    self.end_turn(end);
                    Ok(())
                }
                event = wait_for(&mut self.reading) => {
                    self.reading = None;
                    self.accept_event(event).await
                }
                input = self.socket.next(), if self.reading.is_none() => {
                    match input {
                        SocketInput::Text(text) => {
                            self.reading = Some(self.read_text(text));
                            Ok(())
                        }
                        SocketInput::Refused(reason, error) => return self.refuse(reason, error).await,
                        SocketInput::Closed => Err(Disconnected),
                    }
                }
                _ = pings.tick() => {
                    if self.socket.ping().await { Ok(()) } else { Err(Disconnected) }
                }
                () = place.reached(ShutdownPhase::Drain), if is_open => {
                    self.closing = Some((CloseReason::GoingAway, stopping()));
                    Ok(())
                }
                () = &mut lifetime, if is_open => {
                    self.closing = Some((CloseReason::Done, self.too_old()));
                    Ok(())
                }
            };
            if step.is_err() {
                // Responses that run end like those whose caller has left.
                return;
            }
        }
    }

    /// Begins the responses whose turn it is: those of one stream follow each other.
    fn start_turns(&mut self) {
        if self.closing.is_some() {
            return;
        }
        let mut at = 0;
        while self.turns.len() < MAX_RUNNING
            && let Some(next) = self.waiting.get(at)
        {
            if self.running.contains(&next.create.stream_id) {
                at += 1;
            } else if let Some(WaitingCreate { create, .. }) = self.waiting.remove(at) {
                self.running.insert(create.stream_id.clone());
                let turn = run_turn(Arc::clone(&self.context), create, self.sender.clone());
                self.turns.push(Box::pin(turn));
            }
        }
    }

    fn end_turn(&mut self, end: SocketTurnEnd) {
        self.running.remove(&end.stream_id);
        if let Some(fatal) = end.fatal {
            self.closing.get_or_insert(fatal);
        }
    }

    /// Reads a text, which may be large, beside the running responses.
    fn read_text(&self, text: Bytes) -> BoxFuture<'static, Result<ClientEvent, RefusedEvent>> {
        let state = Arc::clone(&self.context.state);
        Box::pin(async move {
            let engine = Arc::clone(&state.engine);
            let work = async move {
                engine.heavy_work.permit(text.len()).await.run(|| read_event(&text)).await
            };
            relay::run_for_caller(&state.engine.tasks, Box::pin(work)).await
        })
    }

    async fn accept_event(
        &mut self,
        event: Result<ClientEvent, RefusedEvent>,
    ) -> Result<(), Disconnected> {
        let refused = match event {
            Ok(ClientEvent::Create(create)) => match self.queue(create) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            },
            Ok(ClientEvent::Steer { previous_response_id, input }) => {
                let event = steer_failed(&previous_response_id, &input);
                return self.send(std::iter::once(event)).await;
            }
            Err(refused) => refused,
        };
        let RefusedEvent { stream_id, error } = refused;
        let event = error_event(&error, "", stream_id.as_deref());
        self.send(std::iter::once(event)).await
    }

    /// Queues a request for a response.
    fn queue(&mut self, create: CreateEvent) -> Result<(), RefusedEvent> {
        let checked = self.check_room(&create);
        match checked {
            Ok(memory) => {
                self.waiting.push_back(WaitingCreate { create, _memory: memory });
                Ok(())
            }
            Err(error) => Err(RefusedEvent { stream_id: create.stream_id, error }),
        }
    }

    fn check_room(&mut self, create: &CreateEvent) -> Result<BufferPermit, ApiError> {
        if let Some((_, error)) = &self.closing {
            return Err(error.clone());
        }
        if self.turns.len() + self.waiting.len() >= MAX_PENDING {
            let message =
                format!("{MAX_PENDING} responses of this connection run or wait; wait for one");
            return Err(ApiError::new(ErrorKind::RateLimited, message)
                .with_code("too_many_pending_responses")
                .with_retry_after(Duration::from_secs(1)));
        }
        if let Some(id) = &create.stream_id
            && !self.streams.contains(id)
        {
            if self.streams.len() >= MAX_STREAMS {
                let message = format!(
                    "this connection has {MAX_STREAMS} streams already; use one of them or open \
                     another connection"
                );
                return Err(ApiError::invalid("stream_id", message)
                    .with_code("websocket_stream_limit_reached"));
            }
            self.streams.insert(id.clone());
        }
        let memory = self.context.state.limiter.buffer_permit(&self.caller, &self.config.gate);
        memory.grow(create.body.len() as u64)?;
        Ok(memory)
    }

    /// Returns the error of a connection that is open too long.
    fn too_old(&self) -> ApiError {
        let minutes = self.config.web_socket_lifetime.as_secs() / 60;
        let message = format!(
            "this WebSocket has been open for {minutes} minutes, the limit; open another one"
        );
        ApiError::invalid("", message).with_code("websocket_connection_limit_reached")
    }

    async fn send(&mut self, texts: impl Iterator<Item = Bytes>) -> Result<(), Disconnected> {
        if self.socket.send(texts).await { Ok(()) } else { Err(Disconnected) }
    }

    /// Closes a connection whose peer sent something that is not allowed. What runs has lost its caller.
    async fn refuse(mut self, reason: CloseReason, error: Option<ApiError>) {
        let events: Vec<Bytes> =
            error.map(|error| error_event(&error, "", None)).into_iter().collect();
        self.turns.clear();
        if events.is_empty() || self.send(events.into_iter()).await.is_ok() {
            self.socket.close(reason).await;
        }
    }

    /// Sends the last events, answers the requests that wait, and closes the connection.
    async fn close(mut self) {
        let Some((reason, error)) = self.closing.take() else { return };
        let mut events = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            events.push(event);
        }
        for WaitingCreate { create, .. } in self.waiting.drain(..) {
            events.push(error_event(&error, "", create.stream_id.as_deref()));
        }
        if reason == CloseReason::Done {
            events.push(error_event(&error, "", None));
        }
        if self.send(events.into_iter()).await.is_ok() {
            self.socket.close(reason).await;
        }
    }
}

/// Waits for a future that there may not be.
async fn wait_for<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
