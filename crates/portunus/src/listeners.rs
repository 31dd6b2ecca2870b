//! Listening sockets: new ones, those that a service manager or another process passed on, and those
//! that this process passes on.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// Longest time between the last handshake of a stopping process and the end of its listener.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Purpose of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListenerRole {
    /// Calls, administration and pages.
    Api,
    /// Metrics without a key.
    Metrics,
    /// Challenges of an authority, and the way to https.
    PlainHttp,
}

/// A listening socket that another process may use too.
#[derive(Debug)]
pub(crate) struct HandedSocket {
    /// `None` if the service manager passed it, which does not know of roles.
    pub(crate) role: Option<ListenerRole>,
    /// True if a service manager keeps it open when this process ends.
    pub(crate) is_kept: bool,
    pub(crate) socket: StdListener,
}

/// A socket to accept connections on.
#[derive(Debug)]
pub(crate) struct BoundListener {
    pub(crate) listener: TcpListener,
    pub(crate) is_kept: bool,
}

/// Sockets that this process got from another one and does not use yet.
#[derive(Debug, Default)]
pub(crate) struct PassedSockets {
    sockets: Vec<HandedSocket>,
    /// Time for which an address that is in use is tried again.
    patience: Duration,
}

impl PassedSockets {
    /// Takes the sockets of the service manager (`sd_listen_fds(3)`,
    /// <https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html>). It changes the
    /// environment, so it must be called before any thread is started.
    pub(crate) fn from_environment() -> io::Result<Self> {
        let mut passed = listenfd::ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let socket = passed.take_tcp_listener(index)?;
            sockets.extend(socket.map(|socket| HandedSocket { role: None, is_kept: true, socket }));
        }
        Ok(Self { sockets, patience: Duration::ZERO })
    }

    /// Adds the sockets of another process. They come first, because it uses them now.
    ///
    /// A process that is about to stop may have let go of a socket that it still holds open.
    pub(crate) fn add(&mut self, sockets: Vec<HandedSocket>) {
        self.sockets.splice(..0, sockets);
        self.patience = STOP_PATIENCE;
    }

    /// Returns the passed socket of that role and address, or a new one.
    pub(crate) async fn listen(
        &mut self,
        role: ListenerRole,
        address: SocketAddr,
        others: &[SocketAddr],
    ) -> io::Result<BoundListener> {
        let fits = |one: &HandedSocket| fits(one, role, address, others);
        let Some(place) = self.sockets.iter().position(fits) else {
            let listener = bind(address, self.patience).await?;
            return Ok(BoundListener { listener, is_kept: false });
        };
        let HandedSocket { is_kept, socket, .. } = self.sockets.remove(place);
        socket.set_nonblocking(true)?;
        Ok(BoundListener { listener: TcpListener::from_std(socket)?, is_kept })
    }
}

/// Binds an address, and tries again for some time while another socket has it.
async fn bind(address: SocketAddr, patience: Duration) -> io::Result<TcpListener> {
    let end = Instant::now() + patience;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            bound => return bound,
        }
    }
}

/// Returns true if a passed socket is the one for that role and address. The service manager's choice of
/// an address counts more than that of the configuration, unless it is the address of another listener.
fn fits(
    passed: &HandedSocket,
    role: ListenerRole,
    address: SocketAddr,
    others: &[SocketAddr],
) -> bool {
    let Ok(bound) = passed.socket.local_addr() else { return false };
    let is_address = bound == address || (address.port() == 0 && bound.ip() == address.ip());
    match passed.role {
        Some(known) if known != role => false,
        Some(_) => is_address || passed.is_kept,
        None => is_address || (role == ListenerRole::Api && !others.contains(&bound)),
    }
}

/// Sockets of this process, for another one that takes over.
#[derive(Debug, Default)]
pub(crate) struct ListeningSockets(Mutex<Vec<HandedSocket>>);

impl ListeningSockets {
    /// Adds a socket on which this process accepts connections.
    pub(crate) fn add(&self, role: ListenerRole, bound: &BoundListener) -> io::Result<()> {
        let BoundListener { listener, is_kept } = bound;
        let socket = StdListener::from(listener.as_fd().try_clone_to_owned()?);
        self.0.lock().push(HandedSocket { role: Some(role), is_kept: *is_kept, socket });
        Ok(())
    }

    /// Returns copies of all sockets; none after the listeners were closed.
    pub(crate) fn copies(&self) -> io::Result<Vec<HandedSocket>> {
        let copy = |one: &HandedSocket| {
            let HandedSocket { role, is_kept, socket } = one;
            socket.try_clone().map(|socket| HandedSocket { role: *role, is_kept: *is_kept, socket })
        };
        self.0.lock().iter().map(copy).collect()
    }

    /// Closes the copies, because another process has the sockets.
    pub(crate) fn hand_over(&self) {
        self.0.lock().clear();
    }

    /// Lets no handshake of the API begin any more, and closes the copies of its sockets. Returns false if
    /// the kernel cannot do this, or need not, because the service manager keeps the socket.
    ///
    /// The other sockets stay, because their listeners accept until the end of the process or until
    /// another one takes over, which could not bind their addresses. So does a socket of the service manager.
    pub(crate) fn refuse_handshakes(&self) -> bool {
        let is_closed = |one: &mut HandedSocket| match one.role {
            Some(ListenerRole::Api) => !one.is_kept,
            Some(ListenerRole::Metrics | ListenerRole::PlainHttp) | None => false,
        };
        let closed: Vec<HandedSocket> = self.0.lock().extract_if(.., is_closed).collect();
        closed.iter().filter(|one| drop_syn(&one.socket).is_ok()).count() > 0
    }

    /// Lets handshakes begin again. A process that is told to stop while another one takes over from it
    /// has refused them, and what it tells the kernel is about the socket and not about the process.
    pub(crate) fn accept_handshakes(&self) {
        for HandedSocket { socket, .. } in self.0.lock().iter() {
            accept_syn(socket);
        }
    }
}

/// Lets the kernel ignore packets that begin a handshake. Callers send them again after a second and
/// are refused then, while handshakes that have begun can end. A listener that is closed resets
/// connections that were established between the last `accept` and its end.
#[cfg(target_os = "linux")]
fn drop_syn(socket: &StdListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};
    // Classic BPF (<https://www.kernel.org/doc/html/latest/networking/filter.html>). The packet begins
    // with the TCP header, whose flags are byte 13 (RFC 9293, section 3.1).
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const FLAGS_OFFSET: u32 = 13;
    const SYN: u32 = 0x02;
    let filter = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_OFFSET),
        SockFilter::new(JUMP_IF_SET, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ];
    SockRef::from(socket).attach_filter(&filter)
}

/// Reverts [`drop_syn`]. Without a filter there is nothing to revert, and the error says only that.
#[cfg(target_os = "linux")]
fn accept_syn(socket: &StdListener) {
    let _ = socket2::SockRef::from(socket).detach_filter();
}

#[cfg(not(target_os = "linux"))]
fn accept_syn(_: &StdListener) {}

#[cfg(not(target_os = "linux"))]
fn drop_syn(_: &StdListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn passed(role: Option<ListenerRole>, is_kept: bool) -> HandedSocket {
        let socket = StdListener::bind("127.0.0.1:0").unwrap();
        HandedSocket { role, is_kept, socket }
    }

    #[test]
    fn passed_sockets_are_found_by_role_and_address() {
        use ListenerRole::{Api, Metrics};
        let elsewhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let own = passed(Some(Api), false);
        let address = own.socket.local_addr().unwrap();
        assert!(fits(&own, Api, address, &[]) && fits(&own, Api, any_port, &[]));
        assert!(!fits(&own, Metrics, address, &[]) && !fits(&own, Api, elsewhere, &[]));
        assert!(fits(&passed(Some(Api), true), Api, elsewhere, &[]));
        let manager = passed(None, true);
        let address = manager.socket.local_addr().unwrap();
        assert!(fits(&manager, Api, elsewhere, &[]) && fits(&manager, Metrics, address, &[]));
        assert!(!fits(&manager, Api, elsewhere, &[address]));
        assert!(!fits(&manager, Metrics, elsewhere, &[]));
    }

    #[test]
    fn a_stopping_process_hands_over_what_it_still_accepts() {
        use ListenerRole::{Api, Metrics, PlainHttp};
        let sockets = ListeningSockets::default();
        let all = [(Api, false), (Metrics, false), (PlainHttp, false), (Api, true)];
        sockets.0.lock().extend(all.map(|(role, is_kept)| passed(Some(role), is_kept)));
        let handed = || {
            let copies = sockets.copies().unwrap();
            copies.iter().map(|one| (one.role.unwrap(), one.is_kept)).collect::<Vec<_>>()
        };
        assert_eq!(handed(), all);
        assert_eq!(sockets.refuse_handshakes(), cfg!(target_os = "linux"));
        assert_eq!(handed(), all[1..], "only the listener of the API ends");
        assert!(!sockets.refuse_handshakes());
        sockets.hand_over();
        assert!(handed().is_empty());
    }

    #[tokio::test]
    async fn an_address_that_is_let_go_is_bound() {
        let held = passed(None, false);
        let address = held.socket.local_addr().unwrap();
        let refused = bind(address, Duration::ZERO).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let waiting = tokio::spawn(bind(address, Duration::from_secs(60)));
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap().local_addr().unwrap(), address);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn begun_handshakes_end_and_no_new_one_begins() {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = TcpStream::connect(address).unwrap();
        drop_syn(&listener).unwrap();
        assert!(TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err());
        let (accepted, peer) = listener.accept().unwrap();
        assert_eq!(peer, before.local_addr().unwrap());
        accept_syn(&listener);
        assert!(TcpStream::connect_timeout(&address, Duration::from_secs(10)).is_ok());
        drop((accepted, listener));
    }
}
