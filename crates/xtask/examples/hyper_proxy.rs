//! A minimal reverse proxy on hyper and hyper-util, for the row `hyper` of `cargo xtask bench`: no
//! keys, no accounts, no routing but `/paced/` to the second upstream. Connections are kept alive on
//! both sides and bodies are passed on as they come.
//! `hyper_proxy LISTEN UPSTREAM PACED_UPSTREAM`

use std::error::Error;

use http::Uri;
use http::header::HOST;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

/// Path of the paced upstream.
const PACED: &str = "/paced";

type ProxyClient = Client<HttpConnector, Incoming>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream), Some(paced)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("hyper_proxy LISTEN UPSTREAM PACED_UPSTREAM".into());
    };
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: ProxyClient = Client::builder(TokioExecutor::new()).build(connector);
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let (client, upstream, paced) = (client.clone(), upstream.clone(), paced.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| pass_on(&client, &upstream, &paced, request));
            // A caller may leave at any time.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

/// Sends a request to its upstream and returns the answer as it comes.
async fn pass_on(
    client: &ProxyClient,
    upstream: &str,
    paced: &str,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Box<dyn Error + Send + Sync>> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let (host, path) = match path.strip_prefix(PACED) {
        Some(path) => (paced, path),
        None => (upstream, path),
    };
    let uri = Uri::builder().scheme("http").authority(host).path_and_query(path).build()?;
    *request.uri_mut() = uri;
    request.headers_mut().remove(HOST);
    Ok(client.request(request).await?)
}
