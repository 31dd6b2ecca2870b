//! The hand-over of listening sockets to a new process on the same machine.
//!
//! The running process listens on a Unix socket in its data folder, which only its user can open. A new
//! process connects, and the two exchange these messages:
//!
//! | from | message | meaning |
//! |---|---|---|
//! | new | `take-over 1` | asks for the sockets |
//! | old | the list of sockets as JSON, with the sockets (`SCM_RIGHTS`) | the old process serves as before |
//! | new | `commit` | the new process has opened everything |
//! | old | `done` | the old process accepts nothing more and drains |
//!
//! A connection that ends before `commit` changes nothing. The sockets stay open all the time, so that
//! the kernel keeps connections that nobody has accepted yet.

use anyhow::Context as _;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::fs::{File, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener as StdListener;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::app::App;
use crate::listeners::{HandedSocket, ListenerRole};
use crate::supervisor::{self, SupervisorNews};

/// Name of the Unix socket in the data folder.
const SOCKET_FILE: &str = "take-over.sock";
/// Length from which on the path of a folder is too long for the address of a Unix socket (`unix(7)`).
const MAX_FOLDER_BYTES: usize = 80;
/// Time for an answer of the other process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Sockets that can be handed over at once.
const MAX_SOCKETS: usize = 8;
/// Longest message.
const MAX_MESSAGE_BYTES: usize = 4_096;

const REQUEST: &str = "take-over 1";
const COMMIT: &str = "commit";
const DONE: &str = "done";

/// The list of sockets, in their order, and what the new process cannot know otherwise.
#[derive(Debug, Serialize, Deserialize)]
struct SocketList {
    sockets: Vec<SocketEntry>,
    /// Milliseconds after which the service manager wants to hear of its main process again.
    watchdog_ms: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SocketEntry {
    role: Option<ListenerRole>,
    is_kept: bool,
}

/// The connection of a new process with the running one, and what that one handed over.
pub(crate) struct TakeOver {
    stream: UnixStream,
    pub(crate) handed: HandedParts,
}

/// Parts that a running process hands over.
#[derive(Debug, Default)]
pub(crate) struct HandedParts {
    pub(crate) sockets: Vec<HandedSocket>,
    /// Period of news for the service manager.
    pub(crate) watchdog: Option<Duration>,
}

/// Asks the process that runs on a data folder for its sockets. Returns `None` if none runs. It goes on
/// as before until [`TakeOver::commit`].
pub(crate) async fn request(data_folder: &Path) -> anyhow::Result<Option<TakeOver>> {
    let (_open, path) = short_path(data_folder)?;
    let mut stream = match UnixStream::connect(path.join(SOCKET_FILE)).await {
        Ok(stream) => stream,
        // A process that was killed leaves its socket, on which nobody listens.
        Err(e)
            if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
        {
            return Ok(None);
        }
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Err(e).context(
                "the running process belongs to another user; start the new one as that user",
            );
        }
        Err(e) => return Err(e).context("the running process cannot be reached"),
    };
    let asking = async {
        send_line(&mut stream, REQUEST).await?;
        receive_parts(&stream).await
    };
    let handed = timeout(ANSWER_TIMEOUT, asking).await;
    let handed = handed
        .context("the running process does not answer; perhaps another take-over is under way")?;
    let handed = handed.context(
        "the running process did not hand over its sockets; its log says why, unless another \
         take-over was faster",
    )?;
    Ok(Some(TakeOver { stream, handed }))
}

impl TakeOver {
    /// Lets the old process stop accepting connections. From now on this process must accept them,
    /// whatever became of the old one.
    pub(crate) async fn commit(mut self) {
        let committing = async {
            send_line(&mut self.stream, COMMIT).await?;
            read_line(&mut self.stream).await
        };
        match timeout(ANSWER_TIMEOUT, committing).await {
            Ok(Ok(line)) if line == DONE => tracing::info!("the old process drains its calls"),
            Ok(Ok(line)) => tracing::warn!("the old process ended during the take-over: {line:?}"),
            Ok(Err(e)) => tracing::warn!("the old process ended during the take-over: {e}"),
            Err(_) => tracing::warn!("the old process does not answer"),
        }
    }
}

/// Opens the Unix socket on which this process waits for a successor. It replaces that of an earlier
/// process.
pub(crate) fn bind(data_folder: &Path) -> io::Result<UnixListener> {
    let (_open, path) = short_path(data_folder)?;
    let part = path.join(format!("{SOCKET_FILE}.part"));
    match std::fs::remove_file(&part) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&part)?;
    std::fs::set_permissions(&part, Permissions::from_mode(0o600))?;
    std::fs::rename(part, path.join(SOCKET_FILE))?;
    Ok(listener)
}

/// Returns a path of a folder that is short enough for the address of a Unix socket, as long as the file
/// is open.
fn short_path(folder: &Path) -> io::Result<(Option<File>, PathBuf)> {
    if folder.as_os_str().len() <= MAX_FOLDER_BYTES || !cfg!(target_os = "linux") {
        return Ok((None, folder.to_owned()));
    }
    let open = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    Ok((Some(open), path))
}

/// Waits for a process that takes over, and hands everything over to it.
pub(crate) async fn serve(app: Arc<App>, listener: UnixListener) {
    loop {
        let handed_over = match listener.accept().await {
            // One at a time. A second process waits for the end of the first attempt.
            Ok((stream, _)) => hand_over(&app, stream).await,
            Err(e) => {
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                Err(e)
            }
        };
        match handed_over {
            Ok(true) => return,
            Ok(false) => tracing::warn!("another process asked to take over and did not start"),
            Err(e) => tracing::warn!("another process could not take over: {e}"),
        }
    }
}

/// Serves one process that asks to take over. Returns false if it ended before it had started.
async fn hand_over(app: &App, mut stream: UnixStream) -> io::Result<bool> {
    let peer = stream.peer_cred()?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("user {} may not do this", peer.uid())));
    }
    let asked = timeout(ANSWER_TIMEOUT, read_line(&mut stream)).await?;
    if asked? != REQUEST {
        return Err(io::Error::other("its version does not fit"));
    }
    let handed =
        HandedParts { sockets: app.sockets.copies()?, watchdog: supervisor::watchdog_period() };
    send_parts(&stream, handed).await?;
    // The start of the other process may take long. If it fails, the connection ends.
    if read_line(&mut stream).await? != COMMIT {
        return Ok(false);
    }
    if let Some(id) = peer.pid().and_then(|id| u32::try_from(id).ok()) {
        app.tell_supervisor_first(SupervisorNews::Successor(id)).await;
    }
    app.hand_over().await;
    tracing::info!("another process has taken over");
    // It serves in any case.
    let _ = send_line(&mut stream, DONE).await;
    Ok(true)
}

async fn send_line(stream: &mut UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes()).await
}

/// Reads a line; an empty one if the other process has ended.
async fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await {
            Ok(b'\n') => return Ok(String::from_utf8_lossy(&line).into_owned()),
            Ok(byte) if line.len() < MAX_MESSAGE_BYTES => line.push(byte),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(String::new()),
            Err(e) => return Err(e),
        }
    }
}

async fn send_parts(stream: &UnixStream, handed: HandedParts) -> io::Result<()> {
    let HandedParts { sockets, watchdog } = handed;
    let entry = |one: &HandedSocket| SocketEntry { role: one.role, is_kept: one.is_kept };
    let watchdog_ms = watchdog.and_then(|period| u64::try_from(period.as_millis()).ok());
    let list = SocketList { sockets: sockets.iter().map(entry).collect(), watchdog_ms };
    let text = format!("{}\n", serde_json::to_string(&list)?);
    let sent = stream.async_io(Interest::WRITABLE, || {
        let descriptors: Vec<BorrowedFd<'_>> =
            sockets.iter().take(MAX_SOCKETS).map(|one| one.socket.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let text = [IoSlice::new(text.as_bytes())];
        Ok(sendmsg(stream, &text, &mut control, SendFlags::NOSIGNAL)?)
    });
    match sent.await? {
        count if count == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

async fn receive_parts(stream: &UnixStream) -> io::Result<HandedParts> {
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    let mut text = Vec::new();
    while text.last() != Some(&b'\n') {
        let mut piece = vec![0; MAX_MESSAGE_BYTES];
        let received = stream.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [IoSliceMut::new(&mut piece)];
            let received = recvmsg(stream, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(passed) = message {
                    descriptors.extend(passed);
                }
            }
            Ok(received.bytes)
        });
        let count = received.await?;
        if count == 0 || text.len() > MAX_MESSAGE_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        text.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    let SocketList { sockets, watchdog_ms } = serde_json::from_slice(&text)?;
    if sockets.len() != descriptors.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let passed = sockets.into_iter().zip(descriptors);
    let shared = passed.map(|(SocketEntry { role, is_kept }, descriptor)| HandedSocket {
        role,
        is_kept,
        socket: StdListener::from(descriptor),
    });
    let watchdog = watchdog_ms.map(Duration::from_millis).filter(|period| !period.is_zero());
    Ok(HandedParts { sockets: shared.collect(), watchdog })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[tokio::test]
    async fn sockets_arrive_with_the_connections_that_wait_on_them() {
        let (old, new) = UnixStream::pair().unwrap();
        let socket = StdListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let waiting = TcpStream::connect(address).unwrap();
        let role = Some(ListenerRole::Metrics);
        let sockets = vec![HandedSocket { role, is_kept: true, socket }];
        let watchdog = Some(Duration::from_secs(7));
        send_parts(&old, HandedParts { sockets, watchdog }).await.unwrap();
        let mut received = receive_parts(&new).await.unwrap();
        assert_eq!(received.watchdog, watchdog);
        let HandedSocket { role, is_kept, socket } = received.sockets.pop().unwrap();
        assert_eq!((role, is_kept), (Some(ListenerRole::Metrics), true));
        assert_eq!(socket.local_addr().unwrap(), address);
        assert_eq!(socket.accept().unwrap().1, waiting.local_addr().unwrap());
        send_parts(&old, HandedParts::default()).await.unwrap();
        assert!(receive_parts(&new).await.unwrap().sockets.is_empty());
        drop(old);
        assert!(receive_parts(&new).await.is_err());
    }

    #[tokio::test]
    async fn a_folder_with_a_long_path_can_have_the_socket() {
        let name = format!("portunus-{}-{}", std::process::id(), "x".repeat(150));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        assert!(request(&folder).await.unwrap().is_none(), "nothing runs there");
        let listener = bind(&folder).unwrap();
        let mode = std::fs::metadata(folder.join(SOCKET_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        assert!(request(&folder).await.unwrap().is_none(), "nobody listens any more");
        let _second = bind(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
