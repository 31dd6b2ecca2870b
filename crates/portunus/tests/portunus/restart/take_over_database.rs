//! A database that stops answering in the moment of a take-over.

use sqlx::{AssertSqlSafe, ConnectOptions as _};
use testkit::until;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;

use super::{Site, free_address};
use crate::transport::raw_client::Caller;

/// Passes bytes on while the value is true.
async fn passing(listener: TcpListener, target: String, passes: watch::Receiver<bool>) {
    loop {
        let (from_gateway, _) = listener.accept().await.unwrap();
        let to_database = TcpStream::connect(&target).await.unwrap();
        let (gateway_reads, gateway_writes) = from_gateway.into_split();
        let (database_reads, database_writes) = to_database.into_split();
        tokio::spawn(pass(gateway_reads, database_writes, passes.clone()));
        tokio::spawn(pass(database_reads, gateway_writes, passes.clone()));
    }
}

async fn pass(
    from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut passes: watch::Receiver<bool>,
) {
    let mut piece = [0; 16 << 10];
    loop {
        from.readable().await.unwrap();
        if passes.wait_for(|passes| *passes).await.is_err() {
            return;
        }
        match from.try_read(&mut piece) {
            Ok(0) => return,
            Ok(count) => to.write_all(&piece[..count]).await.unwrap(),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_has_taken_over_serves_without_the_database() {
    let url = std::env::var("PORTUNUS_TEST_POSTGRES")
        .expect("PORTUNUS_TEST_POSTGRES must name a PostgreSQL server to make databases on");
    let server: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    let name = format!("portunus_take_over_{}", std::process::id());
    let mut db = server.connect().await.expect("the PostgreSQL server must answer");
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut db).await.unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = proxy.local_addr().unwrap().port();
    let through = server.clone().host("127.0.0.1").port(port).database(&name).to_url_lossy();
    let (pass_on, passes) = watch::channel(true);
    let target = format!("{}:{}", server.get_host(), server.get_port());
    let passing = tokio::spawn(passing(proxy, target, passes));

    // The test is the old process.
    let site = Site::new("0s", "").await;
    let data = site.folder.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let waiting = UnixListener::bind(data.join("take-over.sock")).unwrap();
    let file = site.folder.join("p.toml");
    let sqlite = format!("sqlite:{}", site.folder.join("portunus.db").display());
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace(&sqlite, through.as_str())).unwrap();
    let address = free_address();
    let mut command = site.program("data");
    command.args(["serve", "--take-over", "--listen", &address]);
    let mut new = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let (stream, _) = waiting.accept().await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "take-over 1");
    let handed = b"{\"sockets\":[],\"watchdog_ms\":null}\n";
    lines.get_mut().write_all(handed).await.unwrap();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "commit");
    pass_on.send(false).unwrap();
    lines.get_mut().write_all(b"done\n").await.unwrap();

    let is_alive = async || {
        let Ok(stream) = TcpStream::connect(&address).await else { return false };
        let mut caller = Caller::over(stream);
        caller.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        caller.answer().await.is_some_and(|answer| answer.status == 200)
    };
    until("the new process serves", async || {
        assert_eq!(new.try_wait().unwrap(), None, "it has ended");
        is_alive().await
    })
    .await;
    new.kill().unwrap();
    new.wait().unwrap();
    passing.abort();
    let drop_it = AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"));
    sqlx::query(drop_it).execute(&mut db).await.unwrap();
}
