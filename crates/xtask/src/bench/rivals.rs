//! Measurements of other gateways under the same load on the same processor (`cargo xtask bench
//! --rivals`).
//!
//! Each does less work than Portunus: LiteLLM checks one key and keeps no accounts, which would
//! need a database. Portkey checks no key and counts nothing.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::load::{LoadRun, percentile};
use super::targets::{BenchStage, SAME_FORMAT};
use super::usage::{self, ProcessorTimes};
use super::{PROBES, Probe, milliseconds};
use crate::gateway::{free_address, pinned};
use crate::http::Client;
use crate::process::{ChildServer, Signal};
use crate::suite::node;
use crate::{tools, workspace};

/// Timeout from start to first answer.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of concurrent callers: enough to keep the gateways busy, few enough for their queues.
const CONNECTIONS: usize = 16;
const KEY: &str = "sk-bench";

/// A gateway to measure.
#[derive(Clone, Copy, Debug)]
enum Rival {
    LiteLlm,
    Portkey,
}

/// Figures of one gateway.
pub(super) struct RivalFigures {
    /// Its name and version.
    pub(super) name: String,
    /// Processor microseconds per request, in the order of [`loads`]; `None` if it answered with
    /// errors.
    pub(super) processor_us: Vec<Option<f64>>,
    /// Time to the first byte of an answer in milliseconds, with one caller.
    pub(super) first_ms: f64,
    /// Memory after the load, in megabytes.
    pub(super) memory_mb: f64,
    /// Time from start to first answer, in milliseconds.
    pub(super) start_ms: f64,
}

impl RivalFigures {
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "processor_us": self.processor_us,
            "first_byte_ms": self.first_ms,
            "memory_mb": self.memory_mb,
            "start_ms": self.start_ms,
        })
    }
}

/// Returns the loads: a small chat, a large prompt, a burst stream.
pub(super) fn loads() -> impl Iterator<Item = &'static Probe> {
    PROBES.iter().filter(|probe| probe.connections > 1 && probe.model == SAME_FORMAT)
}

/// Measures each gateway in turn.
pub(super) fn measure(stage: &BenchStage, time: Duration) -> Result<Vec<RivalFigures>> {
    [Rival::LiteLlm, Rival::Portkey].into_iter().map(|rival| rival.measure(stage, time)).collect()
}

impl Rival {
    fn measure(self, stage: &BenchStage, time: Duration) -> Result<RivalFigures> {
        let folder = folder();
        let address = free_address()?;
        let (name, mut command) = self.command(stage, address)?;
        println!("measuring {name}");
        let log = workspace::target().join(format!("bench/{self:?}.log"));
        let begin = Instant::now();
        let mut running = ChildServer::start(&name, command.current_dir(&folder), &log)?;
        let small = loads().next().map(Probe::body).unwrap_or_default();
        let request = self.request(stage, address, &small);
        running.wait_until(START_TIMEOUT, || {
            let answer = |mut client: Client| client.exchange(&request, &mut Vec::new()).ok();
            Client::open(address).ok().and_then(answer).is_some_and(|answer| answer.status == 200)
        })?;
        let start_ms = milliseconds(begin.elapsed());
        let mut processor_us = Vec::new();
        for probe in loads() {
            let request = self.request(stage, address, &probe.body());
            let load = LoadRun {
                address,
                request: &request,
                ending: probe.ending(),
                connections: CONNECTIONS,
                time,
            };
            let mut before = None;
            let outcome = load.run(|| before = Some(ProcessorTimes::of(running.id())));
            let before = before.context("the load did not begin")??;
            let used = ProcessorTimes::of(running.id())?.since(&before).as_secs_f64();
            processor_us.push(match outcome {
                #[expect(clippy::cast_precision_loss, reason = "far fewer requests than that")]
                Ok(tally) => Some(used * 1e6 / tally.whole.len() as f64),
                Err(e) => {
                    println!("{name} failed under `{}`: {}", probe.name, e.root_cause());
                    None
                }
            });
        }
        let alone = LoadRun { address, request: &request, ending: "}", connections: 1, time };
        let first_ms = milliseconds(percentile(&alone.run(|| ())?.first, 0.5));
        let memory_mb = usage::memory(running.id())?;
        // The figures of a gateway that has to be killed are still valid.
        if let Err(e) = running.stop(Signal::Term) {
            println!("{e:#}");
        }
        Ok(RivalFigures { name, processor_us, first_ms, memory_mb, start_ms })
    }

    fn command(self, stage: &BenchStage, address: SocketAddr) -> Result<(String, Command)> {
        let source = folder();
        Ok(match self {
            Self::LiteLlm => {
                let requirements = source.join("requirements.txt");
                let python = tools::python("rivals", &requirements)?;
                let config = workspace::target().join("bench/litellm.yaml");
                let upstream = stage.upstream();
                fs::write(
                    &config,
                    format!(
                        "model_list:\n  - model_name: {SAME_FORMAT}\n    litellm_params: {{ model: \
                         openai/{SAME_FORMAT}, api_base: \"http://{upstream}/v1\", api_key: none }}\n\
                         general_settings: {{ master_key: {KEY} }}\n"
                    ),
                )?;
                let mut command = pinned(&python.with_file_name("litellm"), stage.cores());
                command.args(["--host", "127.0.0.1", "--num_workers", "1", "--port"]);
                command.arg(address.port().to_string()).arg("--config").arg(config);
                command.env("LITELLM_LOG", "ERROR");
                let version = fs::read_to_string(requirements)?;
                let version = version.trim().rsplit('=').next().unwrap_or_default().to_owned();
                (format!("LiteLLM {version}"), command)
            }
            Self::Portkey => {
                let node = node::install("rivals", &source)?;
                let home = node.folder.join("node_modules/@portkey-ai/gateway");
                let mut command = pinned(node.program(), stage.cores());
                command.arg(home.join("build/start-server.js")).arg("--headless");
                command.arg(format!("--port={}", address.port()));
                command.env("TRUSTED_CUSTOM_HOSTS", "127.0.0.1");
                let about: Value =
                    serde_json::from_str(&fs::read_to_string(home.join("package.json"))?)?;
                let version = about.get("version").and_then(Value::as_str).unwrap_or_default();
                (format!("Portkey {version}"), command)
            }
        })
    }

    fn request(self, stage: &BenchStage, address: SocketAddr, body: &str) -> Vec<u8> {
        let more = match self {
            Self::LiteLlm => String::new(),
            Self::Portkey => format!(
                "x-portkey-provider: openai\r\nx-portkey-custom-host: http://{}/v1\r\n",
                stage.upstream()
            ),
        };
        let length = body.len();
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\n\
             {more}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

fn folder() -> PathBuf {
    workspace::root().join("crates/xtask/rivals")
}
