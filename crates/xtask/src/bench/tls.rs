//! A small chat through TLS: gateway and nginx terminate TLS on the processor of the proxies. The
//! load generator speaks plain HTTP to another nginx on its own processor, which encrypts.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::interval::ConfidenceInterval;
use super::load::LoadRun;
use super::report::FigureRow;
use super::targets::{BenchStage, gateway_config, plain_nginx};
use super::{PROBES, Probe, divide, figures_of, median};
use crate::gateway::{Server, free_address};
use crate::http;
use crate::process::{ChildServer, Signal};
use crate::tools;

/// The cap of the key: more than the load costs.
const KEY_CAP_USD: &str = "1000000";

/// Certificate and private key.
struct TestCertificate {
    certificate: PathBuf,
    key: PathBuf,
}

/// A proxy that terminates TLS, and the encrypting proxy in front of it.
struct TlsPair {
    proxy: ChildServer,
    front: Server,
}

/// Measures the processor time of a small chat through TLS.
pub(super) fn measure(stage: &BenchStage, rounds: usize, time: Duration) -> Result<FigureRow> {
    let [probe, ..] = &PROBES;
    let certificate = TestCertificate::create(stage.folder())?;
    let data = stage.folder().join("tls-data");
    let key = stage.gateway().create_capped_key(&data, KEY_CAP_USD)?;
    let nginx = TlsPair::start(stage, "nginx", |address| {
        let folder = folder(stage, "tls-nginx")?;
        let listen = format!(
            "listen {address} ssl; ssl_certificate {}; ssl_certificate_key {};",
            certificate.certificate.display(),
            certificate.key.display(),
        );
        let upstream = [("sim", stage.upstream())];
        let config =
            plain_nginx(&folder, &upstream, &listen, "location / { proxy_pass http://sim; }");
        fs::write(folder.join("nginx.conf"), config)?;
        Ok(stage.nginx_command(stage.cores(), &folder))
    })?;
    let gateway = TlsPair::start(stage, "gateway", |address| {
        let config = stage.folder().join("tls-gateway.toml");
        let listener = format!(
            "[server.tls]\ncert = \"{}\"\nkey = \"{}\"\n\n",
            certificate.certificate.display(),
            certificate.key.display(),
        );
        fs::write(&config, listener + &gateway_config(stage))?;
        Ok(stage.gateway().serve(address, &data, Some(&config)))
    })?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        theirs.extend(nginx.processor_us(probe, &key, time)?);
        ours.extend(gateway.processor_us(probe, &key, time)?);
    }
    for TlsPair { proxy, front } in [nginx, gateway] {
        front.running.stop(Signal::Term)?;
        proxy.stop(Signal::Term)?;
    }
    let pairs = ours.iter().zip(&theirs);
    let ratios: Vec<f64> =
        pairs.filter_map(|(ours, theirs)| divide(Some(*ours), Some(*theirs))).collect();
    Ok(FigureRow {
        what: "1 KB chat through TLS, 64 at once: processor µs/request".into(),
        nginx: median(theirs),
        gateway_interval: ConfidenceInterval::of(&ours),
        gateway: median(ours),
        ratio_interval: ConfidenceInterval::of(&ratios),
        ratio: median(ratios),
        ..FigureRow::default()
    })
}

impl TlsPair {
    /// Starts a proxy with the command for its address, and its front.
    fn start(
        stage: &BenchStage,
        name: &str,
        command: impl FnOnce(SocketAddr) -> Result<Command>,
    ) -> Result<Self> {
        let (inner, outer) = (free_address()?, free_address()?);
        let folder = folder(stage, &format!("tls-front-{name}"))?;
        let config = plain_nginx(
            &folder,
            &[("encrypted", inner)],
            &format!("listen {outer};"),
            "location / { proxy_pass https://encrypted; proxy_ssl_verify off; }",
        );
        fs::write(folder.join("nginx.conf"), config)?;
        let proxy = ChildServer::start(name, &mut command(inner)?, &folder.join("proxy.log"))?;
        let mut front = stage.nginx_command(stage.load_cores(), &folder);
        // The front answers with 502 as long as there is no proxy behind it.
        let front = Server::start("nginx", &mut front, outer, "/", &folder.join("front.log"))?;
        Ok(Self { proxy, front })
    }

    fn processor_us(&self, probe: &Probe, key: &str, time: Duration) -> Result<Option<f64>> {
        let address = self.front.address;
        let request = http::post(address, "/v1/chat/completions", key, &probe.body());
        let (ending, connections) = (probe.ending(), probe.connections);
        let load = LoadRun { address, request: &request, ending, connections, time };
        Ok(figures_of(&load, Some(self.proxy.id()))?.processor_us)
    }
}

impl TestCertificate {
    /// Creates a self-signed certificate of a few days.
    fn create(folder: &Path) -> Result<Self> {
        let (certificate, key) = (folder.join("tls-cert.pem"), folder.join("tls-key.pem"));
        let mut command = Command::new(tools::openssl()?);
        command
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "7", "-subj", "/CN=localhost", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate);
        let output = command.output()?;
        ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { certificate, key })
    }
}

fn folder(stage: &BenchStage, name: &str) -> Result<PathBuf> {
    let folder = stage.folder().join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
