//! `cargo xtask instructions`: user instructions, allocations, copies and system calls per call.
//! Unlike times they hardly depend on the machine and its load, so that a change of one percent is
//! visible. The step `instructions` of the suite checks them against the figures in the repository.
//!
//! callgrind counts inside the function that serves a connection. Each road runs in several groups of
//! calls, and the median group is told: a wake-up more or a piece that arrives in two parts does not
//! decide. What runs outside of that function is counted by [`posting`].

mod budget;
mod counts;
mod executed;
mod posting;
mod system_calls;
mod translations;

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::usage;
use crate::dist::ordered_build;
use crate::gateway::{Binary, Server, free_address};
use crate::http::{self, Client};
use crate::process::{ChildServer, Signal, TempFolder};
use crate::tools::{self, cargo};
use crate::workspace;
use budget::{BudgetFile, InstructionBudget, RoadFigures};
use counts::{AllocationCosts, CallgrindCounts, as_f64};
pub(crate) use executed::executed_functions;
use posting::PostingFigures;
pub(crate) use translations::check_translations;

/// The profile of the kept figures: without link-time optimisation, which the suite has no time for.
const CHECKED_PROFILE: &str = "release";
/// The profile of the binary to hand out.
const HANDED_OUT_PROFILE: &str = "dist";
/// The function that serves a connection: a call without posting and other background work.
const MEASURED: &str = "transport::server::serve_http::{{closure}}";
/// Groups of calls per road.
const GROUPS: usize = 5;
/// Time after the last byte of an answer in which the rest of a call ends.
const REST: Duration = Duration::from_millis(250);
/// Timeout from start to first answer. callgrind takes about fifty times as long.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause before each event of a paced stream: longer than the gateway works on one event under
/// callgrind.
const EVENT_PAUSE: &str = "15ms";
/// Calls of which the system calls are counted.
const TRACED_CALLS: u32 = 100;
const TRACED_PACED_CALLS: u32 = 2;

/// One kind of call.
struct Road {
    name: &'static str,
    path: &'static str,
    /// The model, which decides on the format of the provider and the speed of its streams.
    model: &'static str,
    /// Length of the prompt in bytes.
    prompt: usize,
    delivery: Delivery,
}

/// Arrival of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Whole,
    /// All events at once.
    Burst,
    /// One event after the other. Figures are per event.
    Paced,
}

const ROADS: [Road; 9] = [
    road("chat to chat", CHAT, "chat", 900, Delivery::Whole),
    road("chat to chat, 100 KB", CHAT, "chat", 100_000, Delivery::Whole),
    road("chat to chat, burst", CHAT, "chat", 900, Delivery::Burst),
    road("chat to chat, paced, per event", CHAT, "chat-paced", 900, Delivery::Paced),
    road("chat to messages", CHAT, "messages", 900, Delivery::Whole),
    road("chat to messages, burst", CHAT, "messages", 900, Delivery::Burst),
    road("chat to messages, paced, per event", CHAT, "messages-paced", 900, Delivery::Paced),
    road("messages to chat", MESSAGES, "chat", 900, Delivery::Whole),
    road("messages to chat, burst", MESSAGES, "chat", 900, Delivery::Burst),
];
const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

const fn road(
    name: &'static str,
    path: &'static str,
    model: &'static str,
    prompt: usize,
    delivery: Delivery,
) -> Road {
    Road { name, path, model, prompt, delivery }
}

impl Road {
    fn body(&self) -> String {
        let words = "The harbour opens at dawn and every ship pays at the gate. ";
        let prompt: String = words.chars().cycle().take(self.prompt).collect();
        let body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": prompt }],
            "max_tokens": 1024,
            "stream": self.delivery != Delivery::Whole,
        });
        body.to_string()
    }

    /// Calls before the measured ones, which open connections and fill caches.
    fn first_calls(&self) -> u32 {
        if self.delivery == Delivery::Paced { 1 } else { 30 }
    }

    /// Calls of one group.
    fn group_calls(&self) -> u32 {
        if self.delivery == Delivery::Paced { 1 } else { 20 }
    }
}

/// Measures all roads of the binary of a profile, or of the release binary to keep its figures.
pub(crate) fn run(profile: &str, accept: bool) -> Result<()> {
    if accept {
        keep_translations()?;
        return measure(CHECKED_PROFILE)?.keep(BudgetFile::Gateway);
    }
    measure(profile).map(drop)
}

/// Counts translations alone to keep their figures.
pub(crate) fn keep_translations() -> Result<()> {
    translations::measure()?.keep(BudgetFile::Translations)
}

/// Measures all roads of the release binary. Fails if one costs more than the repository allows.
pub(crate) fn check() -> Result<()> {
    measure(CHECKED_PROFILE)?.check_against(BudgetFile::Gateway)
}

fn measure(profile: &str) -> Result<InstructionBudget> {
    let path = if profile == HANDED_OUT_PROFILE {
        ordered_build::build()?
    } else {
        tools::run(&mut cargo(&["build", "--profile", profile, "-p", "portunus"]))?;
        workspace::target().join(profile).join("portunus")
    };
    let stage = CountingStage::set(Binary { path, cores: None })?;
    let outside = stage.count_posting()?;
    let mut roads = stage.count_calls(&outside.allocation_costs)?;
    match stage.count_system_calls(&mut roads) {
        Ok(()) => {}
        Err(error) => println!("system calls are not counted here: {error:#}"),
    }
    roads.push(("posting, full batches".to_owned(), outside.posting));
    stage.clear()?;
    print(&roads);
    println!("{:>12} more for the journal, timers and scheduling", outside.background);
    let measured = InstructionBudget {
        measured_with: budget::measured_with(),
        roads: roads.into_iter().collect(),
    };
    let file = workspace::target().join("bench").join(format!("instructions-{profile}.json"));
    fs::create_dir_all(workspace::target().join("bench"))?;
    fs::write(&file, serde_json::to_string_pretty(&measured)? + "\n")?;
    println!("written to {}", file.display());
    Ok(measured)
}

fn print(roads: &[(String, RoadFigures)]) {
    println!(
        "\n{:>12} {:>11} {:>8} {:>12} {:>12}  per call",
        "instructions", "allocations", "copies", "socket calls", "system calls"
    );
    for (name, figures) in roads {
        let RoadFigures { instructions, allocations, copies, .. } = figures;
        let [socket, all] = [figures.socket_calls, figures.system_calls]
            .map(|calls| calls.map_or_else(|| "·".to_owned(), |calls| format!("{calls:.2}")));
        println!(
            "{instructions:>12} {allocations:>11.1} {copies:>8.1} {socket:>12} {all:>12}  {name}"
        );
    }
}

/// Divides, and keeps two digits, which are enough for a file that people read.
fn per(count: f64, calls: u64) -> f64 {
    (count / as_f64(calls) * 100.0).round() / 100.0
}

/// Upstreams, configuration and a key for several gateways one after the other.
struct CountingStage {
    binary: Binary,
    folder: TempFolder,
    config: PathBuf,
    upstreams: [Server; 2],
}

impl CountingStage {
    fn set(binary: Binary) -> Result<Self> {
        let folder = TempFolder::new("instructions")?;
        let simulate = |name: &str, flags: &[&str]| {
            let address = free_address()?;
            let log = folder.path().join(format!("{name}.log"));
            let mut command = binary.simulate(address, flags);
            Server::start("portunus simulate", &mut command, address, "/", &log)
        };
        let burst = simulate("upstream", &["--canned"])?;
        let paced = simulate("paced", &["--canned", "--pace", EVENT_PAUSE])?;
        let config = folder.path().join("gateway.toml");
        fs::write(&config, gateway_config(burst.address, paced.address))?;
        Ok(Self { binary, folder, config, upstreams: [burst, paced] })
    }

    fn clear(self) -> Result<()> {
        for upstream in self.upstreams {
            upstream.running.stop(Signal::Term)?;
        }
        Ok(())
    }

    /// Starts a gateway under callgrind with these options, on a data folder and with a key of its
    /// own.
    fn under_callgrind(
        &self,
        name: &str,
        options: &[String],
        create_key: impl FnOnce(&Binary, &Path) -> Result<String>,
    ) -> Result<CallgrindGateway> {
        let valgrind = tools::valgrind()?;
        let data = self.folder.path().join(format!("{name}-data"));
        let key = create_key(&self.binary, &data)?;
        let counts = self.folder.path().join(format!("{name}-counts"));
        let address = free_address()?;
        // One processor, and so one thread that serves calls.
        let mut command = Command::new("taskset");
        command
            .args(["-c", "0"])
            .arg(&valgrind)
            .args(["--tool=callgrind", "-q"])
            .arg(format!("--callgrind-out-file={}", counts.display()))
            .args(options);
        let serve = self.binary.serve(address, &data, Some(&self.config));
        command.arg(serve.get_program()).args(serve.get_args());
        let log = self.folder.path().join(format!("{name}.log"));
        let mut running = ChildServer::start("portunus serve", &mut command, &log)?;
        running.wait_until(START_TIMEOUT, || http::status(address, "/healthz") == Some(200))?;
        Ok(CallgrindGateway { running, address, key, data, counts, written: Cell::new(0) })
    }

    /// Counts instructions, allocations and copies of every road.
    fn count_calls(&self, costs: &AllocationCosts) -> Result<Vec<(String, RoadFigures)>> {
        let only = format!("--toggle-collect={MEASURED}");
        let gateway = self.under_callgrind("calls", &[only], capped_key)?;
        let mut roads = Vec::new();
        for road in &ROADS {
            gateway.warm_up(road)?;
            gateway.write_counts()?;
            let mut groups = Vec::new();
            for number in 0.. {
                let repeated = gateway.repeat(road, road.group_calls());
                // A lease that callgrind or a busy machine extends too late refuses a call. Such a
                // group does not count.
                if repeated.is_err() && number < 3 * GROUPS {
                    gateway.write_counts()?;
                    continue;
                }
                let events = repeated?;
                let units = match road.delivery {
                    Delivery::Whole | Delivery::Burst => u64::from(road.group_calls()),
                    Delivery::Paced => events,
                };
                groups.push((gateway.write_counts()?, units));
                if groups.len() == GROUPS {
                    break;
                }
            }
            groups.sort_by_key(|(counts, units)| counts.total() / units.max(&1));
            // Events of a paced stream that a busy machine delivers together cost less, so that the
            // dearest group is the one of single events.
            let told = match road.delivery {
                Delivery::Whole | Delivery::Burst => groups.into_iter().nth(GROUPS / 2),
                Delivery::Paced => groups.into_iter().last(),
            };
            let (counts, units) = told.context("no group was measured")?;
            ensure!(counts.total() > 0, "callgrind counted no `{MEASURED}`");
            let figures = RoadFigures {
                instructions: counts.total() / units,
                allocations: per(counts.collected_allocations(costs), units),
                copies: per(as_f64(counts.copies), units),
                ..RoadFigures::default()
            };
            let own = counts.own.into_iter().map(|(name, cost)| (name, cost / units)).collect();
            println!("{:>9} {}", figures.instructions, road.name);
            roads.push((road.name.to_owned(), figures.with_dearest(own)));
        }
        gateway.running.stop(Signal::Term)?;
        Ok(roads)
    }

    /// Adds the system calls of every road, of a gateway without callgrind.
    fn count_system_calls(&self, roads: &mut [(String, RoadFigures)]) -> Result<()> {
        let data = self.folder.path().join("traced-data");
        let key = capped_key(&self.binary, &data)?;
        let address = free_address()?;
        let pinned = Binary { path: self.binary.path.clone(), cores: Some("0".into()) };
        let mut serve = pinned.serve(address, &data, Some(&self.config));
        let log = self.folder.path().join("traced.log");
        let gateway = Server::start("portunus serve", &mut serve, address, "/healthz", &log)?;
        for (road, (_, figures)) in ROADS.iter().zip(roads) {
            let calls =
                if road.delivery == Delivery::Paced { TRACED_PACED_CALLS } else { TRACED_CALLS };
            let request = http::post(address, road.path, &key, &road.body());
            // One connection, opened before strace attaches.
            let mut caller = Client::open(address)?;
            exchange(&mut caller, &request, road.first_calls())?;
            let mut events = 0;
            let traced = system_calls::count(gateway.running.id(), self.folder.path(), || {
                events = exchange(&mut caller, &request, calls)?;
                Ok(())
            })?;
            let units = match road.delivery {
                Delivery::Whole | Delivery::Burst => u64::from(calls),
                Delivery::Paced => events.max(1),
            };
            figures.socket_calls = Some(per(as_f64(traced.socket), units));
            figures.system_calls = Some(per(as_f64(traced.all), units));
        }
        gateway.running.stop(Signal::Term)?;
        Ok(())
    }

    fn count_posting(&self) -> Result<PostingFigures> {
        let gateway = self.under_callgrind("posting", &[], Binary::create_key)?;
        let [small, ..] = &ROADS;
        let figures = posting::measure(&gateway, small)?;
        gateway.running.stop(Signal::Term)?;
        Ok(figures)
    }
}

/// Creates a key with more money than all calls cost.
fn capped_key(binary: &Binary, data: &Path) -> Result<String> {
    binary.create_capped_key(data, "1000000")
}

/// A gateway whose instructions are counted.
struct CallgrindGateway {
    running: ChildServer,
    address: SocketAddr,
    key: String,
    data: PathBuf,
    /// Files with counts have this name and a number.
    counts: PathBuf,
    /// Number of files so far.
    written: Cell<u32>,
}

impl CallgrindGateway {
    /// Makes the first calls of a road. The very first ones may come before the gateway has got its
    /// lease, for which callgrind leaves it little time.
    fn warm_up(&self, road: &Road) -> Result<()> {
        let begin = Instant::now();
        while let Err(error) = self.repeat(road, road.first_calls()) {
            ensure!(begin.elapsed() < START_TIMEOUT, error);
        }
        Ok(())
    }

    /// Makes a call several times on one connection. Returns the number of events in the answers.
    fn repeat(&self, road: &Road, times: u32) -> Result<u64> {
        let request = http::post(self.address, road.path, &self.key, &road.body());
        let events = exchange(&mut Client::open(self.address)?, &request, times)?;
        thread::sleep(REST);
        Ok(events)
    }

    /// Makes a call several times with several callers.
    fn repeat_at_once(&self, road: &Road, times: u32, callers: u32) -> Result<()> {
        let address = self.address;
        let request = http::post(address, road.path, &self.key, &road.body());
        thread::scope(|scope| {
            let calls = || exchange(&mut Client::open(address)?, &request, times / callers);
            let threads: Vec<_> = (0..callers).map(|_| scope.spawn(calls)).collect();
            for thread in threads {
                match thread.join() {
                    Ok(done) => drop(done?),
                    Err(_) => bail!("a caller panicked"),
                }
            }
            Ok(())
        })
    }

    fn wait_until_quiet(&self) -> Result<()> {
        usage::wait_until_quiet(self.running.id())
    }

    /// Returns the counts since the last time.
    fn write_counts(&self) -> Result<CallgrindCounts> {
        let file = self.write_file()?;
        let counts = CallgrindCounts::read(&file)?;
        fs::remove_file(&file)?;
        Ok(counts)
    }

    /// Lets callgrind write the counts since the last time. Returns the path of the file.
    fn write_file(&self) -> Result<PathBuf> {
        let id = self.running.id().to_string();
        let output = Command::new("callgrind_control").arg("-d").arg(id).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.written.set(self.written.get() + 1);
        Ok(PathBuf::from(format!("{}.{}", self.counts.display(), self.written.get())))
    }
}

/// Sends a request several times on one connection. Returns the number of events in the answers.
fn exchange(client: &mut Client, request: &[u8], times: u32) -> Result<u64> {
    let (mut body, mut events) = (Vec::new(), 0);
    for _ in 0..times {
        let answer = client.exchange(request, &mut body)?;
        ensure!(answer.status == 200, "{}: {}", answer.status, String::from_utf8_lossy(&body));
        let lines = body.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"data:"));
        events += u64::try_from(lines.count())?;
    }
    Ok(events)
}

fn gateway_config(upstream: SocketAddr, paced: SocketAddr) -> String {
    let entry = |(name, format, address): (&str, &str, SocketAddr)| {
        format!(
            r#"[providers.{name}]
speaks = "{format}"
base = "http://{address}"
auth = "none"

[models.{name}]
lanes = ["{name}/{name}"]
price = {{ input = "1.00", output = "2.00" }}

"#
        )
    };
    let served = [
        ("chat", "chat", upstream),
        ("messages", "messages", upstream),
        ("chat-paced", "chat", paced),
        ("messages-paced", "messages", paced),
    ];
    served.map(entry).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roads_have_names_of_their_own_and_bodies_of_the_stated_length() {
        let mut names: Vec<&str> = ROADS.iter().map(|road| road.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROADS.len());
        assert!((100_000..101_000).contains(&ROADS[1].body().len()));
        assert!(ROADS[2].body().contains("\"stream\":true"));
    }
}
