//! `cargo xtask bench --scale`: many streams, many idle connections, two processors instead of one,
//! a load of 70 %, and three times the callers that the gateway may serve at once.
//!
//! A machine with a low limit of open files is measured with as many connections as it allows, and
//! the rows say how many these were.

mod connections;
mod open_loop;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::load::{LoadRun, percentile};
use super::report::{self, FigureRow, Goal};
use super::targets::CorePair;
use super::usage::{self, ProcessorTimes};
use super::{PROBES, Probe, milliseconds};
use crate::dist::ordered_build;
use crate::gateway::{Binary, Server, free_address};
use crate::http;
use crate::process::{Signal, TempFolder};
use crate::workspace;
use connections::{IdleConnections, OpenStreams};
use open_loop::{FixedRateLoad, PatientCallers};

// Goal and limit of each figure.
const TWO_CORES: Goal = Goal::value_at_least(1.9, 1.7);
const STREAMS: Goal = Goal::value_at_least(10_000.0, 9_000.0);
const STREAM_KIB: Goal = Goal::value(16.0, 64.0);
const IDLE_CONNECTIONS: Goal = Goal::value_at_least(50_000.0, 9_000.0);
const P99_ADDED_MS: Goal = Goal::value(1.0, 3.0);
const OVERLOAD_P99: Goal = Goal::value(1.1, 1.5);

/// Concurrent streams, if the limit of open files allows them.
const MAX_STREAMS: usize = 10_000;
/// Idle connections, if the limit of open files allows them.
const MAX_IDLE_CONNECTIONS: usize = 50_000;
/// Limit of open files that both would need.
const WANTED_FILES: usize = 131_072;
/// Files that are no connections of callers.
const OTHER_FILES: usize = 512;
/// The cap of the key: more than any load costs.
const KEY_CAP_USD: &str = "1000000";
/// Share of the highest rate at which times are measured.
const LOAD_SHARE: f64 = 0.7;
/// Calls that the gateway may serve at once under overload, and how many times as many callers come.
const RUNNING_LIMIT: usize = 100;
const OVERLOAD: usize = 3;

/// A model whose answers come at once, one with an event each five milliseconds, and one with an
/// event each second.
const MODELS: [(&str, &[&str]); 3] = [
    ("m", &["--canned"]),
    ("p", &["--canned", "--pace", "5ms"]),
    ("slow", &["--canned", "--pace", "1s"]),
];

/// Upstreams and data of the measurements.
struct ScaleStage {
    binary: PathBuf,
    folder: TempFolder,
    upstreams: Vec<Server>,
    cores: CorePair,
}

/// A running gateway with a key.
struct KeyedGateway {
    server: Server,
    key: String,
}

/// Runs all measurements. Returns true if no figure exceeds its limit.
pub(crate) fn run(quick: bool) -> Result<bool> {
    let binary = ordered_build::build()?;
    let time = Duration::from_secs(if quick { 1 } else { 5 });
    let files = raise_file_limit()?;
    let stage = ScaleStage::set(binary)?;
    let mut rows = Vec::new();
    rows.extend(stage.two_processors(time)?);
    rows.extend(stage.at_share_of_highest_rate(time)?);
    rows.extend(stage.overload(time)?);
    rows.extend(stage.streams(files, time)?);
    rows.extend(stage.idle_connections(files)?);
    for upstream in stage.upstreams {
        upstream.running.stop(Signal::Term)?;
    }
    let good = report::print(&rows);
    let file = workspace::target().join("bench/scale.json");
    let about = json!({
        "quick": quick,
        "open_files": files,
        "load_before": usage::load_average()?,
        "machine": usage::processor_name(),
    });
    report::write(&file, &about, &rows)?;
    println!("written to {}", file.display());
    Ok(good)
}

/// Raises the limit of open files of this process and its children as far as allowed. Returns it.
fn raise_file_limit() -> Result<usize> {
    let own = std::process::id().to_string();
    for limit in [format!("{WANTED_FILES}:{WANTED_FILES}"), format!("{WANTED_FILES}:")] {
        let prlimit = Command::new("prlimit").args(["--pid", &own, "--nofile"]).arg(limit).output();
        if prlimit.is_ok_and(|output| output.status.success()) {
            break;
        }
    }
    let limits = fs::read_to_string("/proc/self/limits")?;
    open_files(&limits).context("an unknown form of /proc/self/limits")
}

/// Parses the soft limit of open files.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

impl ScaleStage {
    fn set(binary: PathBuf) -> Result<Self> {
        let cores = CorePair::take(&usage::processors()?)?;
        let folder = TempFolder::new("scale")?;
        let simulator = Binary { path: binary.clone(), cores: cores.load.clone() };
        let mut upstreams = Vec::new();
        for (model, flags) in MODELS {
            let address = free_address()?;
            let log = folder.path().join(format!("upstream-{model}.log"));
            let mut command = simulator.simulate(address, flags);
            upstreams.push(Server::start("portunus simulate", &mut command, address, "/", &log)?);
        }
        Ok(Self { binary, folder, upstreams, cores })
    }

    /// Starts a gateway on the processor of the proxy, with a data folder of its own.
    fn gateway(&self, name: &str, limits: &str) -> Result<KeyedGateway> {
        self.gateway_on(self.cores.proxy.clone(), name, limits)
    }

    fn gateway_on(
        &self,
        processors: Option<String>,
        name: &str,
        limits: &str,
    ) -> Result<KeyedGateway> {
        let binary = Binary { path: self.binary.clone(), cores: processors };
        let data = self.folder.path().join(format!("{name}-data"));
        let key = binary.create_capped_key(&data, KEY_CAP_USD)?;
        let mut config = format!("[limits]\n{limits}\n");
        for ((model, _), upstream) in MODELS.iter().zip(&self.upstreams) {
            let address = upstream.address;
            config += &format!(
                "[providers.of-{model}]\nspeaks = \"chat\"\nbase = \"http://{address}\"\nauth = \"none\"\n\
                 [models.{model}]\nlanes = [\"of-{model}/{model}\"]\n\
                 price = {{ input = \"1.00\", output = \"2.00\" }}\n"
            );
        }
        let path = self.folder.path().join(format!("{name}.toml"));
        fs::write(&path, config)?;
        let address = free_address()?;
        let mut command = binary.serve(address, &data, Some(&path));
        let log = self.folder.path().join(format!("{name}.log"));
        let server = Server::start("portunus serve", &mut command, address, "/healthz", &log)?;
        Ok(KeyedGateway { server, key })
    }

    /// Compares a gateway on two processors with one on a single processor.
    ///
    /// Load and upstream need a processor too, so that requests per second say little on a small
    /// machine. The figure is requests per second of fully used processors: twice the processor time
    /// of a request on one, divided by that on two. Locks and shared memory that cost time show in it.
    fn two_processors(&self, time: Duration) -> Result<Vec<FigureRow>> {
        let both = self.cores.proxy.iter().chain(&self.cores.load).cloned().collect::<Vec<_>>();
        let both = (!both.is_empty()).then(|| both.join(","));
        let (one, two) = (self.gateway("one", "")?, self.gateway_on(both, "two", "")?);
        let (mut on_one, mut on_two) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            on_one.push(one.processor_us(time)?);
            on_two.push(two.processor_us(time)?);
        }
        one.server.running.stop(Signal::Term)?;
        two.server.running.stop(Signal::Term)?;
        let (on_one, on_two) = (super::median(on_one), super::median(on_two));
        let ratio = super::divide(on_one, on_two).map(|ratio| 2.0 * ratio);
        Ok(vec![
            value("one processor: processor µs/request", on_one, None),
            value("two processors: processor µs/request", on_two, None),
            value("two processors carry × one", ratio, Some(TWO_CORES)),
        ])
    }

    /// Measures the time added by the gateway at a share of its highest rate. Requests come at fixed
    /// moments, whether or not earlier ones are answered, and the time counts from that moment.
    fn at_share_of_highest_rate(&self, time: Duration) -> Result<Vec<FigureRow>> {
        let gateway = self.gateway("share", "")?;
        let [probe, ..] = &PROBES;
        let request = gateway.request(&probe.body());
        let load = gateway.load(probe, &request, time);
        let highest = load.run(|| ())?;
        #[expect(clippy::cast_precision_loss, reason = "far fewer requests than that")]
        let highest = highest.whole.len() as f64 / highest.wall.as_secs_f64();
        let rate = highest * LOAD_SHARE;
        let through =
            FixedRateLoad { address: gateway.server.address, request: &request, rate, time };
        let through = through.run()?;
        let upstream = self.upstreams.first().context("no upstream")?.address;
        let direct = http::post(upstream, "/v1/chat/completions", &gateway.key, &probe.body());
        let direct = FixedRateLoad { address: upstream, request: &direct, rate, time }.run()?;
        gateway.server.running.stop(Signal::Term)?;
        let row = |what: &str, share: f64, goal| {
            let [without, with] =
                [&direct, &through].map(|times| milliseconds(percentile(times, share)));
            let mut row = value(what, Some(with - without), goal);
            row.direct = Some(without);
            row
        };
        Ok(vec![
            value("70 % load: requests/s", Some(rate), None),
            row("70 % load: whole p50, added ms", 0.5, None),
            row("70 % load: whole p99, added ms", 0.99, Some(P99_ADDED_MS)),
        ])
    }

    /// Measures streams of a gateway with a limit of running calls: first with as many callers as it
    /// allows, then with several times as many.
    fn overload(&self, time: Duration) -> Result<Vec<FigureRow>> {
        let gateway = self.gateway("overload", &format!("running = {RUNNING_LIMIT}"))?;
        let request = gateway.request(&stream_body("p"));
        let address = gateway.server.address;
        // Each stream takes half a second.
        let time = time * 2;
        // Some less than the limit, because a call ends after its answer.
        let callers = RUNNING_LIMIT * 9 / 10;
        let within = PatientCallers { address, request: &request, callers, time }.run()?;
        let callers = RUNNING_LIMIT * OVERLOAD;
        let beyond = PatientCallers { address, request: &request, callers, time }.run()?;
        gateway.server.running.stop(Signal::Term)?;
        let [calm, loaded] =
            [&within, &beyond].map(|seen| milliseconds(percentile(&seen.answered, 0.99)));
        let count = |count: usize| u32::try_from(count).ok().map(f64::from);
        Ok(vec![
            value(
                "within the limit of running calls: answered",
                count(within.answered.len()),
                None,
            ),
            value("within the limit of running calls: 503", count(within.shed), None),
            value("three times as many callers: answered", count(beyond.answered.len()), None),
            value("three times as many callers: 503", count(beyond.shed), None),
            value("within the limit of running calls: p99, ms", Some(calm), None),
            value("three times as many callers: p99 of the answered, ms", Some(loaded), None),
            value(
                "p99 of the answered × without overload",
                Some(loaded / calm),
                Some(OVERLOAD_P99),
            ),
        ])
    }

    /// Measures many streams with an event per second each.
    fn streams(&self, files: usize, time: Duration) -> Result<Vec<FigureRow>> {
        // A stream takes two files of the gateway, which leaves half of its files unused.
        let count = MAX_STREAMS.min((files / 4).saturating_sub(OTHER_FILES));
        let gateway = self.gateway("streams", &roomy_limits())?;
        let process = gateway.server.running.id();
        let memory = usage::memory(process)?;
        let request = gateway.request(&stream_body("slow"));
        let mut streams = OpenStreams::open(gateway.server.address, &request, count)?;
        let before = ProcessorTimes::of(process)?;
        let events = streams.read_for(time)?;
        let used = ProcessorTimes::of(process)?.since(&before).as_secs_f64();
        let grown = usage::memory(process)? - memory;
        drop(streams);
        gateway.server.running.stop(Signal::Term)?;
        #[expect(clippy::cast_precision_loss, reason = "far fewer than that")]
        let (count, events) = (count as f64, events as f64);
        let seconds = time.as_secs_f64();
        Ok(vec![
            value("streams at once, an event per second each", Some(count), Some(STREAMS)),
            value("streams at once: events/s", Some(events / seconds), None),
            value("streams at once: share of a processor", Some(used / seconds), None),
            value("streams at once: processor µs/event", Some(used * 1e6 / events), None),
            value(
                "streams at once: KiB each",
                Some(grown * 1e6 / 1024.0 / count),
                Some(STREAM_KIB),
            ),
        ])
    }

    /// Measures many idle connections, and a call beside them.
    fn idle_connections(&self, files: usize) -> Result<Vec<FigureRow>> {
        let count = MAX_IDLE_CONNECTIONS.min((files / 2).saturating_sub(OTHER_FILES));
        let gateway = self.gateway("idle", &roomy_limits())?;
        let process = gateway.server.running.id();
        let memory = usage::memory(process)?;
        let idle = IdleConnections::open(gateway.server.address, count)?;
        usage::wait_until_quiet(process)?;
        let grown = usage::memory(process)? - memory;
        let [probe, ..] = &PROBES;
        let request = gateway.request(&probe.body());
        let alone =
            LoadRun { connections: 1, ..gateway.load(probe, &request, Duration::from_secs(1)) };
        let beside = milliseconds(percentile(&alone.run(|| ())?.whole, 0.5));
        drop(idle);
        gateway.server.running.stop(Signal::Term)?;
        #[expect(clippy::cast_precision_loss, reason = "far fewer than that")]
        let count = count as f64;
        Ok(vec![
            value("idle connections", Some(count), Some(IDLE_CONNECTIONS)),
            value("idle connections: KiB each", Some(grown * 1e6 / 1024.0 / count), None),
            value("a call beside idle connections: whole p50, ms", Some(beside), None),
        ])
    }
}

impl KeyedGateway {
    fn request(&self, body: &str) -> Vec<u8> {
        http::post(self.server.address, "/v1/chat/completions", &self.key, body)
    }

    fn load<'a>(&self, probe: &Probe, request: &'a [u8], time: Duration) -> LoadRun<'a> {
        let (address, ending) = (self.server.address, probe.ending());
        LoadRun { address, request, ending, connections: probe.connections, time }
    }

    /// Measures the processor time of a small chat, posting included.
    fn processor_us(&self, time: Duration) -> Result<f64> {
        let [probe, ..] = &PROBES;
        let request = self.request(&probe.body());
        let load = self.load(probe, &request, time);
        let figures = super::figures_of(&load, Some(self.server.running.id()))?;
        figures.processor_us.context("no processor time")
    }
}

/// Limits that leave the number of connections to the limit of open files.
fn roomy_limits() -> String {
    "connections = 100000\nconnections_per_address = 50000\nrunning = 100000".to_owned()
}

fn stream_body(model: &str) -> String {
    let messages = json!([{ "role": "user", "content": "Tell me about the tide." }]);
    json!({ "model": model, "messages": messages, "stream": true }).to_string()
}

fn value(what: &str, gateway: Option<f64>, goal: Option<Goal>) -> FigureRow {
    FigureRow { what: what.into(), gateway, goal, ..FigureRow::default() }
}

/// Returns the address that the connection with that number comes from: a source address has ports
/// for some thousand connections to one server.
fn source_of(number: usize) -> SocketAddr {
    const CONNECTIONS_PER_SOURCE: usize = 4_000;
    let last = u8::try_from(1 + number / CONNECTIONS_PER_SOURCE).unwrap_or(u8::MAX);
    SocketAddr::from(([127, 0, 0, last], 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_open_files_is_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max processes 7 8 processes\n\
                      Max open files            1024                 20000                files\n";
        assert_eq!(open_files(limits), Some(1024));
    }

    #[test]
    fn connections_come_from_several_addresses() {
        assert_eq!(source_of(0).to_string(), "127.0.0.1:0");
        assert_eq!(source_of(49_999).to_string(), "127.0.0.13:0");
    }
}
