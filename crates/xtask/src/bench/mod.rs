//! `cargo xtask bench`: measures the gateway, nginx, a bare proxy on hyper and the bare upstream in
//! interleaved rounds on one machine, with keys, holds, journal, posting and metering enabled.
//!
//! Processor time per request is the most reliable figure. Requests per second also depend on the
//! load generator and the upstream, which share a processor.

mod document;
pub(crate) mod instructions;
mod interval;
mod load;
mod report;
mod rivals;
pub(crate) mod scale;
mod targets;
mod tls;
mod usage;
mod without_load;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::dist::ordered_build;
use crate::gateway::Server;
use crate::process::Signal;
use crate::tools::{self, cargo};
use crate::workspace;
use interval::ConfidenceInterval;
use load::{LoadRun, percentile};
use report::{FigureRow, Goal};
use targets::{
    BenchStage, CorePair, OTHER_FORMAT, OTHER_FORMAT_PACED, SAME_FORMAT, SAME_FORMAT_PACED, Target,
};
use usage::ProcessorTimes;

// Goal and limit of each figure.
const CPU_SMALL: Goal = Goal::ratio(0.9, 1.2);
const CPU_LARGE: Goal = Goal::ratio(0.75, 1.0);
const CPU_BURST: Goal = Goal::ratio(0.5, 0.9);
const CPU_TRANSLATED: Goal = Goal::ratio(1.0, 1.6);
const CPU_BURST_TRANSLATED: Goal = Goal::ratio(0.8, 1.5);
const CPU_PACED: Goal = Goal::ratio(0.9, 1.1);
const CPU_PACED_TRANSLATED: Goal = Goal::ratio(1.0, 1.5);
const RATE: Goal = Goal::ratio_at_least(1.1, 0.7);
const FIRST_BYTE_MS: Goal = Goal::value(0.1, 0.5);
const IDLE_MB: Goal = Goal::value(15.0, 40.0);
const LOADED_MB: Goal = Goal::value(25.0, 60.0);
const START_MS: Goal = Goal::value(25.0, 150.0);

/// Load average up to which a measurement is valid. It includes the preceding build.
const MAX_LOAD_AVERAGE: f64 = 1.0;

/// One kind of load.
struct Probe {
    name: &'static str,
    model: &'static str,
    /// Length of the prompt in bytes.
    prompt: usize,
    stream: bool,
    connections: usize,
    /// Goal of processor time per request.
    processor: Option<Goal>,
    /// Goal of requests per second of processor time.
    rate: Option<Goal>,
    /// Goal of the median time added to the first byte.
    first_byte: Option<Goal>,
}

const PROBES: [Probe; 9] = [
    Probe {
        name: "1 KB chat, 64 at once",
        model: SAME_FORMAT,
        prompt: 900,
        stream: false,
        connections: 64,
        processor: Some(CPU_SMALL),
        rate: Some(RATE),
        first_byte: None,
    },
    Probe {
        name: "1 KB chat, 1 at once",
        model: SAME_FORMAT,
        prompt: 900,
        stream: false,
        connections: 1,
        processor: None,
        rate: None,
        first_byte: Some(FIRST_BYTE_MS),
    },
    Probe {
        name: "100 KB prompt, 16 at once",
        model: SAME_FORMAT,
        prompt: 100_000,
        stream: false,
        connections: 16,
        processor: Some(CPU_LARGE),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "burst stream, 16 at once",
        model: SAME_FORMAT,
        prompt: 900,
        stream: true,
        connections: 16,
        processor: Some(CPU_BURST),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "burst stream, 1 at once",
        model: SAME_FORMAT,
        prompt: 900,
        stream: true,
        connections: 1,
        processor: None,
        rate: None,
        first_byte: Some(FIRST_BYTE_MS),
    },
    Probe {
        name: "1 KB chat, translated, 64 at once",
        model: OTHER_FORMAT,
        prompt: 900,
        stream: false,
        connections: 64,
        processor: Some(CPU_TRANSLATED),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "burst stream, translated, 16 at once",
        model: OTHER_FORMAT,
        prompt: 900,
        stream: true,
        connections: 16,
        processor: Some(CPU_BURST_TRANSLATED),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "paced stream, 32 at once",
        model: SAME_FORMAT_PACED,
        prompt: 900,
        stream: true,
        connections: 32,
        processor: Some(CPU_PACED),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "paced stream, translated, 32 at once",
        model: OTHER_FORMAT_PACED,
        prompt: 900,
        stream: true,
        connections: 32,
        processor: Some(CPU_PACED_TRANSLATED),
        rate: None,
        first_byte: None,
    },
];

impl Probe {
    fn body(&self) -> String {
        let words = "The harbour opens at dawn and every ship pays at the gate. ";
        let prompt: String = words.chars().cycle().take(self.prompt).collect();
        let mut body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": prompt }],
        });
        if self.stream
            && let Some(fields) = body.as_object_mut()
        {
            fields.insert("stream".into(), true.into());
            fields.insert("stream_options".into(), json!({ "include_usage": true }));
        }
        body.to_string()
    }

    fn ending(&self) -> &'static str {
        if self.stream { "data: [DONE]" } else { "}" }
    }
}

/// Duration of a run.
struct RunLength {
    rounds: usize,
    time: Duration,
    starts: usize,
}

/// Figures of one target under one load in one round.
#[derive(Clone, Copy, Default)]
struct Figures {
    per_second: f64,
    /// Processor time of the proxy per request in microseconds, with what the requests left to do
    /// afterwards; `None` without a proxy.
    processor_us: Option<f64>,
    /// Share of its processor that the proxy used during the load.
    busy: Option<f64>,
    whole_p50_ms: f64,
    whole_p99_ms: f64,
    first_p50_ms: f64,
}

/// Runs all measurements. Returns true if no figure exceeds its limit.
pub(crate) fn run(quick: bool, rivals: bool, write: bool) -> Result<bool> {
    println!("building the gateway to hand out; the first time this takes a quarter of an hour");
    let built_gateway = ordered_build::build()?;
    let hyper = ["build", "--profile", "dist", "-p", "xtask", "--example", "hyper_proxy"];
    tools::run(&mut cargo(&hyper))?;
    let run_length = if quick {
        RunLength { rounds: 3, time: Duration::from_millis(500), starts: 3 }
    } else {
        RunLength { rounds: 7, time: Duration::from_secs(2), starts: 9 }
    };
    let load_average = usage::load_average()?;
    let cores = CorePair::take(&usage::processors()?)?;
    println!("{}", cores.describe());
    let built_hyper = workspace::target().join("dist/examples/hyper_proxy");
    let stage = BenchStage::set(&built_gateway, &built_hyper, &cores)?;
    let mut rows = vec![starts(&stage, run_length.starts)?];
    let small = small_body();
    let (nginx, _) = stage.start(Target::Nginx, &small)?;
    let (hyper, _) = stage.start(Target::Hyper, &small)?;
    let (gateway, _) = stage.start(Target::Gateway, &small)?;
    // Background work right after the start is done by then.
    thread::sleep(Duration::from_millis(500));
    rows.push(memory("memory right after the start, MB", [&nginx, &hyper, &gateway], IDLE_MB)?);

    let mut rounds = Vec::new();
    for round in 0..run_length.rounds {
        println!("round {} of {}", round + 1, run_length.rounds);
        rounds.push(measure(&stage, [&nginx, &hyper, &gateway], run_length.time, round)?);
    }
    for (at, probe) in PROBES.iter().enumerate() {
        let per_round = |target: Target| -> Vec<Figures> {
            rounds.iter().filter_map(|round| round.get(at)?.get(target as usize).copied()).collect()
        };
        rows.extend(rows_of_load(probe, &Target::ALL.map(per_round)));
    }
    rows.push(memory("memory after the load, MB", [&nginx, &hyper, &gateway], LOADED_MB)?);
    rows.push(without_load::idle_streams(&stage, &nginx, &gateway)?);

    for server in [nginx, hyper, gateway] {
        server.running.stop(Signal::Term)?;
    }
    rows.push(tls::measure(&stage, run_length.rounds, run_length.time)?);
    let rivals = if rivals { rivals::measure(&stage, run_length.time)? } else { Vec::new() };
    stage.clear()?;
    let good = report::print(&rows);
    for seen in &rivals {
        println!("{}", seen.json());
    }
    if load_average > MAX_LOAD_AVERAGE {
        println!("the machine was busy (load average {load_average}): measure again when idle");
    }
    let file = workspace::target().join("bench/last.json");
    let about = json!({
        "quick": quick,
        "rounds": run_length.rounds,
        "seconds_per_load": run_length.time.as_secs_f64(),
        "processors": cores.describe(),
        "load_before": load_average,
    });
    report::write(&file, &about, &rows)?;
    if write {
        let machine = usage::processor_name().unwrap_or_default();
        let rounds = run_length.rounds;
        let seconds = run_length.time.as_secs_f64();
        let about =
            format!("{rounds} rounds of {seconds} s per load on {machine}; {}.", cores.describe());
        document::write(&about, &rows, &rivals)?;
    }
    println!("written to {}", file.display());
    Ok(good)
}

fn small_body() -> String {
    PROBES.first().map(Probe::body).unwrap_or_default()
}

/// Measures the time from start to the first good answer, several times per proxy in turn.
fn starts(stage: &BenchStage, times: usize) -> Result<FigureRow> {
    let body = small_body();
    let (mut nginx, mut gateway) = (Vec::new(), Vec::new());
    for _ in 0..times {
        for (target, took) in [(Target::Nginx, &mut nginx), (Target::Gateway, &mut gateway)] {
            let (server, answered) = stage.start(target, &body)?;
            server.running.stop(Signal::Term)?;
            took.push(milliseconds(answered));
        }
    }
    let gateway_interval = ConfidenceInterval::of(&gateway);
    let (nginx, gateway) = (median(nginx), median(gateway));
    Ok(FigureRow {
        what: "start to first answer, ms".into(),
        ratio: divide(gateway, nginx),
        nginx,
        gateway,
        gateway_interval,
        goal: Some(START_MS),
        ..FigureRow::default()
    })
}

fn memory(what: &str, servers: [&Server; 3], goal: Goal) -> Result<FigureRow> {
    let [nginx, hyper, gateway] = servers.map(|server| usage::memory(server.running.id()));
    let (nginx, hyper, gateway) = (Some(nginx?), Some(hyper?), Some(gateway?));
    let (ratio, goal) = (divide(gateway, nginx), Some(goal));
    Ok(FigureRow { what: what.into(), nginx, hyper, gateway, ratio, goal, ..FigureRow::default() })
}

/// Figures of all targets under one load in one round, in the order of [`Target::ALL`].
type RoundFigures = [Figures; 4];

/// Runs one round: every load on every target. The first target changes with the round, so that
/// none always follows the same one.
fn measure(
    stage: &BenchStage,
    [nginx, hyper, gateway]: [&Server; 3],
    time: Duration,
    round: usize,
) -> Result<Vec<RoundFigures>> {
    let mut all = Vec::new();
    for probe in &PROBES {
        let mut figures = RoundFigures::default();
        let targets = Target::ALL.len();
        let order = Target::ALL.into_iter().cycle().skip(round % targets).take(targets);
        for target in order {
            let (address, process) = match target {
                Target::Direct => (stage.upstream_of(probe.model), None),
                Target::Nginx => (nginx.address, Some(nginx.running.id())),
                Target::Hyper => (hyper.address, Some(hyper.running.id())),
                Target::Gateway => (gateway.address, Some(gateway.running.id())),
            };
            if let Some(place) = figures.get_mut(target as usize) {
                *place = one(stage, target, probe, address, process, time)?;
            }
        }
        all.push(figures);
    }
    Ok(all)
}

/// Runs one load on one target.
fn one(
    stage: &BenchStage,
    target: Target,
    probe: &Probe,
    address: SocketAddr,
    process: Option<u32>,
    time: Duration,
) -> Result<Figures> {
    let request = stage.request(target, probe.model, address, &probe.body());
    let ending = probe.ending();
    let load = LoadRun { address, request: &request, ending, connections: probe.connections, time };
    figures_of(&load, process)
}

/// Runs a load. The processor time includes what the calls leave to do after their answers, such as
/// posting: it is read when the proxy is quiet again.
fn figures_of(load: &LoadRun<'_>, process: Option<u32>) -> Result<Figures> {
    let mut before = None;
    let tally = load.run(|| before = process.map(ProcessorTimes::of))?;
    let used = match (before, process) {
        (Some(before), Some(process)) => {
            let before = before?;
            let during = ProcessorTimes::of(process)?.since(&before);
            usage::wait_until_quiet(process)?;
            Some((during, ProcessorTimes::of(process)?.since(&before)))
        }
        _ => None,
    };
    #[expect(clippy::cast_precision_loss, reason = "far fewer requests than that")]
    let done = tally.whole.len() as f64;
    let wall = tally.wall.as_secs_f64();
    Ok(Figures {
        per_second: done / wall,
        processor_us: used.map(|(_, until_quiet)| until_quiet.as_secs_f64() * 1e6 / done),
        busy: used.map(|(during, _)| during.as_secs_f64() / wall),
        whole_p50_ms: milliseconds(percentile(&tally.whole, 0.5)),
        whole_p99_ms: milliseconds(percentile(&tally.whole, 0.99)),
        first_p50_ms: milliseconds(percentile(&tally.first, 0.5)),
    })
}

/// Returns the rows of a load from the rounds of each target.
fn rows_of_load(probe: &Probe, rounds: &[Vec<Figures>; 4]) -> Vec<FigureRow> {
    let [direct, nginx, hyper, gateway] = rounds;
    let row = |what: &str, goal: Option<Goal>, figure: fn(&Figures) -> Option<f64>| {
        let figures =
            |rounds: &[Figures]| -> Vec<f64> { rounds.iter().filter_map(figure).collect() };
        let pairs = gateway.iter().zip(nginx);
        let ratios = pairs.filter_map(|(ours, theirs)| divide(figure(ours), figure(theirs)));
        let ratios: Vec<f64> = ratios.collect();
        FigureRow {
            what: format!("{}: {what}", probe.name),
            direct: median(figures(direct)),
            nginx: median(figures(nginx)),
            hyper: median(figures(hyper)),
            gateway_interval: ConfidenceInterval::of(&figures(gateway)),
            gateway: median(figures(gateway)),
            ratio_interval: ConfidenceInterval::of(&ratios),
            ratio: median(ratios),
            goal,
        }
    };
    let added = |what: &str, goal: Option<Goal>, figure: fn(&Figures) -> f64| {
        let over_direct = |rounds: &[Figures]| -> Vec<f64> {
            let pairs = rounds.iter().zip(direct);
            pairs.map(|(through, without)| figure(through) - figure(without)).collect()
        };
        FigureRow {
            what: format!("{}: {what}", probe.name),
            direct: median(direct.iter().map(figure).collect()),
            nginx: median(over_direct(nginx)),
            hyper: median(over_direct(hyper)),
            gateway_interval: ConfidenceInterval::of(&over_direct(gateway)),
            gateway: median(over_direct(gateway)),
            goal,
            ..FigureRow::default()
        }
    };
    if probe.connections == 1 {
        return vec![
            added("first byte p50, added ms", probe.first_byte, |f| f.first_p50_ms),
            added("whole p50, added ms", None, |f| f.whole_p50_ms),
            added("whole p99, added ms", None, |f| f.whole_p99_ms),
        ];
    }
    vec![
        row("processor µs/request", probe.processor, |f| f.processor_us),
        // Computed for a fully used processor: the load generator and the upstream saturate before
        // a good proxy does, so that the observed figures of both proxies are alike.
        row("requests/s per processor", probe.rate, |f| f.processor_us.map(|us| 1e6 / us)),
        row("requests/s seen", None, |f| Some(f.per_second)),
        row("share of its processor used", None, |f| f.busy),
    ]
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn divide(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    Some(ours? / theirs.filter(|figure| *figure > 0.0)?)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_as_long_as_they_say() {
        let lengths: Vec<usize> = PROBES.iter().map(|probe| probe.body().len()).collect();
        assert!((900..1_100).contains(&lengths[0]), "{lengths:?}");
        assert!((100_000..101_000).contains(&lengths[2]), "{lengths:?}");
        assert!(PROBES[3].body().contains("\"stream\":true"));
    }

    #[test]
    fn ratios_come_from_the_same_round_and_times_are_told_as_what_was_added() {
        let round = |cpu: f64, ms: f64| Figures {
            processor_us: Some(cpu),
            first_p50_ms: ms,
            ..Figures::default()
        };
        let direct = [round(0.0, 1.0), round(0.0, 1.0), round(0.0, 3.0)];
        let nginx = [round(10.0, 1.5), round(20.0, 1.5), round(40.0, 3.5)];
        let gateway = [round(15.0, 1.2), round(30.0, 1.2), round(60.0, 3.2)];
        let rounds = [direct.to_vec(), nginx.to_vec(), nginx.to_vec(), gateway.to_vec()];
        let rows = rows_of_load(&PROBES[0], &rounds);
        assert_eq!((rows[0].gateway, rows[0].ratio), (Some(30.0), Some(1.5)));
        let certain = ConfidenceInterval { low: 1.5, high: 1.5 };
        assert_eq!(rows[0].ratio_interval, Some(certain));
        let rows = rows_of_load(&PROBES[1], &rounds);
        assert!((rows[0].gateway.unwrap() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn the_median_shrugs_off_one_bad_round() {
        assert_eq!(median(vec![1.0, 900.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }
}
