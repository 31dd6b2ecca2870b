//! Targets of the measurements: the bare simulated upstream, nginx in front of it, and the gateway
//! in front of it. Both proxies run on one processor; the upstream and the load generator share
//! another.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::gateway::{Binary, Server, free_address, pinned};
use crate::http::{self, Client};
use crate::process::{ChildServer, Signal, TempFolder};
use crate::tools;

/// A model served in the caller's own format.
pub(super) const SAME_FORMAT: &str = "m";
/// A model served in another format.
pub(super) const OTHER_FORMAT: &str = "t";
/// The same two models with paced streams.
pub(super) const SAME_FORMAT_PACED: &str = "p";
pub(super) const OTHER_FORMAT_PACED: &str = "q";
/// A model whose streams can stall.
pub(super) const IDLE_STREAMS_MODEL: &str = "i";
/// The pause before each event of a paced stream.
const EVENT_PAUSE: &str = "5ms";
/// The cap of the key: more than any load costs.
const KEY_CAP_USD: &str = "1000000";
/// Timeout of a proxy from start to first answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The upstream without a proxy.
    Direct,
    /// A plain reverse proxy.
    Nginx,
    /// A minimal reverse proxy on hyper: what the library costs that many gateways stand on.
    Hyper,
    /// The gateway with all features enabled.
    Gateway,
}

impl Target {
    /// All targets.
    pub(super) const ALL: [Self; 4] = [Self::Direct, Self::Nginx, Self::Hyper, Self::Gateway];
}

/// The two processors of a measurement.
pub(super) struct CorePair {
    /// Of the proxy.
    pub(super) proxy: Option<String>,
    /// Of load and upstream.
    pub(super) load: Option<String>,
}

impl CorePair {
    /// Uses the first two processors and moves this process to the second. A machine with one
    /// processor uses it for everything.
    pub(super) fn take(processors: &[usize]) -> Result<Self> {
        let [proxy, load, ..] = processors else { return Ok(Self { proxy: None, load: None }) };
        let (proxy, load) = (proxy.to_string(), load.to_string());
        let own = std::process::id().to_string();
        let moved = Command::new("taskset").args(["-acp", &load, &own]).output()?;
        ensure!(moved.status.success(), "taskset: {}", String::from_utf8_lossy(&moved.stderr));
        Ok(Self { proxy: Some(proxy), load: Some(load) })
    }

    /// Describes the use of the processors.
    pub(super) fn describe(&self) -> String {
        match (&self.proxy, &self.load) {
            (Some(proxy), Some(load)) => {
                format!("proxy on processor {proxy}, load and upstream on processor {load}")
            }
            _ => "everything on one processor".into(),
        }
    }
}

/// Programs, keys and upstreams of the measurements.
pub(super) struct BenchStage {
    scratch: TempFolder,
    gateway: Binary,
    nginx: PathBuf,
    hyper: PathBuf,
    /// Processor of upstreams and load.
    load_cores: Option<String>,
    key: String,
    upstream: Server,
    paced: Server,
    idle: Server,
}

impl BenchStage {
    /// Starts the upstream and prepares a data folder with a key.
    pub(super) fn set(binary: &Path, hyper: &Path, cores: &CorePair) -> Result<Self> {
        let nginx = tools::nginx()?;
        let (hyper, load_cores) = (hyper.to_path_buf(), cores.load.clone());
        let scratch = TempFolder::new("bench")?;
        let gateway = Binary { path: binary.into(), cores: cores.proxy.clone() };
        let key = gateway.create_capped_key(&scratch.path().join("data"), KEY_CAP_USD)?;
        let simulator = Binary { path: binary.into(), cores: cores.load.clone() };
        let simulate = |name: &str, flags: &[&str]| {
            let address = free_address()?;
            let log = scratch.path().join(format!("{name}.log"));
            let mut command = simulator.simulate(address, flags);
            Server::start("portunus simulate", &mut command, address, "/", &log)
        };
        let upstream = simulate("upstream", &["--canned"])?;
        let paced = simulate("paced", &["--canned", "--pace", EVENT_PAUSE])?;
        let idle = simulate("idle", &[])?;
        Ok(Self { scratch, gateway, nginx, hyper, load_cores, key, upstream, paced, idle })
    }

    /// The address of the upstream.
    pub(super) fn upstream(&self) -> SocketAddr {
        self.upstream.address
    }

    /// The address of the upstream that serves a model.
    pub(super) fn upstream_of(&self, model: &str) -> SocketAddr {
        match model {
            SAME_FORMAT_PACED | OTHER_FORMAT_PACED => self.paced.address,
            IDLE_STREAMS_MODEL => self.idle.address,
            _ => self.upstream.address,
        }
    }

    /// The processor of the proxies.
    pub(super) fn cores(&self) -> Option<&str> {
        self.gateway.cores.as_deref()
    }

    /// The processor of the upstreams and the load.
    pub(super) fn load_cores(&self) -> Option<&str> {
        self.load_cores.as_deref()
    }

    /// The gateway's program on the processor of the proxies.
    pub(super) fn gateway(&self) -> &Binary {
        &self.gateway
    }

    /// Folder for files of the measurements.
    pub(super) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns a request of the caller. For the plain proxies the path selects the upstream.
    pub(super) fn request(
        &self,
        target: Target,
        model: &str,
        address: SocketAddr,
        body: &str,
    ) -> Vec<u8> {
        let path = match (target, model) {
            (Target::Nginx | Target::Hyper, SAME_FORMAT_PACED | OTHER_FORMAT_PACED) => {
                "/paced/v1/chat/completions"
            }
            (Target::Nginx, IDLE_STREAMS_MODEL) => "/idle/v1/chat/completions",
            _ => "/v1/chat/completions",
        };
        http::post(address, path, &self.key, body)
    }

    /// Starts a proxy. Also returns the time to its first good answer to `body`.
    pub(super) fn start(&self, target: Target, body: &str) -> Result<(Server, Duration)> {
        let address = free_address()?;
        let (name, mut command) = match target {
            Target::Nginx => ("nginx", self.nginx(address)?),
            Target::Hyper => ("hyper_proxy", self.hyper(address)),
            Target::Gateway => ("portunus serve", self.serve(address)?),
            Target::Direct => anyhow::bail!("the upstream runs already"),
        };
        let request = self.request(target, SAME_FORMAT, address, body);
        let log = self.scratch.path().join(format!("{}.log", address.port()));
        let begin = Instant::now();
        let mut running = ChildServer::start(name, &mut command, &log)?;
        let mut answered = Duration::ZERO;
        running.wait_until(START_TIMEOUT, || {
            let good = answers(address, &request);
            answered = begin.elapsed();
            good
        })?;
        Ok((Server { running, address }, answered))
    }

    /// Stops the upstreams.
    pub(super) fn clear(self) -> Result<()> {
        for server in [self.upstream, self.paced, self.idle] {
            server.running.stop(Signal::Term)?;
        }
        Ok(())
    }

    fn serve(&self, address: SocketAddr) -> Result<Command> {
        let config = self.scratch.path().join("gateway.toml");
        fs::write(&config, gateway_config(self)).context("writing a config")?;
        Ok(self.gateway.serve(address, &self.scratch.path().join("data"), Some(&config)))
    }

    fn hyper(&self, address: SocketAddr) -> Command {
        let mut command = pinned(&self.hyper, self.gateway.cores.as_deref());
        let addresses = [address, self.upstream.address, self.paced.address];
        command.args(addresses.map(|address| address.to_string()));
        command
    }

    fn nginx(&self, address: SocketAddr) -> Result<Command> {
        let folder = self.scratch.path().join("nginx");
        fs::create_dir_all(&folder)?;
        let config = folder.join("nginx.conf");
        fs::write(&config, nginx_config(address, self, &folder))?;
        Ok(self.nginx_command(self.cores(), &folder))
    }

    /// Returns the command of nginx with `nginx.conf` in that folder.
    pub(super) fn nginx_command(&self, cores: Option<&str>, folder: &Path) -> Command {
        let mut command = pinned(&self.nginx, cores);
        command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
        command
    }
}

fn answers(address: SocketAddr, request: &[u8]) -> bool {
    let Ok(mut client) = Client::open(address) else { return false };
    client.exchange(request, &mut Vec::new()).is_ok_and(|answer| answer.status == 200)
}

/// Returns a configuration with one provider per model, in the format of the model.
pub(super) fn gateway_config(stage: &BenchStage) -> String {
    let served = [
        (SAME_FORMAT, "chat"),
        (OTHER_FORMAT, "messages"),
        (SAME_FORMAT_PACED, "chat"),
        (OTHER_FORMAT_PACED, "messages"),
        (IDLE_STREAMS_MODEL, "chat"),
    ];
    let entry = |(model, speaks): (&str, &str)| {
        let upstream = stage.upstream_of(model);
        format!(
            r#"[providers.of-{model}]
speaks = "{speaks}"
base = "http://{upstream}"
auth = "none"

[models."{model}"]
lanes = ["of-{model}/{model}"]
price = {{ input = "1.00", output = "2.00" }}

"#
        )
    };
    served.into_iter().map(entry).collect()
}

/// Returns a configuration with one process and no master, so that its processor time is the
/// proxy's. Connections are kept alive on both sides, and streams are not buffered.
fn nginx_config(address: SocketAddr, stage: &BenchStage, folder: &Path) -> String {
    let [upstream, paced, idle] =
        [SAME_FORMAT, SAME_FORMAT_PACED, IDLE_STREAMS_MODEL].map(|model| stage.upstream_of(model));
    plain_nginx(
        folder,
        &[("sim", upstream), ("paced", paced)],
        &format!("listen {address};"),
        &format!(
            "location / {{ proxy_pass http://sim; }}
        location /paced/ {{ proxy_pass http://paced/; }}
        location /idle/ {{ proxy_pass http://{idle}/; }}"
        ),
    )
}

/// Returns the configuration of a proxy that does nothing else.
pub(super) fn plain_nginx(
    folder: &Path,
    upstreams: &[(&str, SocketAddr)],
    listen: &str,
    locations: &str,
) -> String {
    let folder = folder.display();
    let upstream = |(name, address): &(&str, SocketAddr)| {
        format!(
            "    upstream {name} {{
        server {address};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
"
        )
    };
    let upstreams: String = upstreams.iter().map(upstream).collect();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_max_body_size 32m;
    client_body_buffer_size 256k;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
{upstreams}    server {{
        {listen}
        proxy_http_version 1.1;
        proxy_set_header Connection \"\";
        proxy_buffering off;
        {locations}
    }}
}}
"
    )
}
