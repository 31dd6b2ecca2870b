//! `cargo xtask bench`: the gateway beside nginx and beside no proxy at all, in interleaved
//! rounds on one machine, with keys, holds, journal and metering switched on.
//!
//! Processor time per request is the figure to trust: requests per second depend on how fast the
//! load and the upstream, which share a processor, can be.

mod apart;
mod document;
mod load;
mod report;
mod rivals;
mod targets;
mod usage;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::gateway::Server;
use crate::process::Signal;
use crate::tools::{self, cargo};
use crate::workspace;
use load::{Load, percentile};
use report::{Goal, Row};
use targets::{Cores, OTHER, OTHER_PACED, SAME, SAME_PACED, Stage, Target};

// Where the gateway should be, and what it must not go beyond.
const CPU_SMALL: Goal = Goal::ratio(0.9, 1.5);
const CPU_LARGE: Goal = Goal::ratio(0.75, 1.0);
const CPU_BURST: Goal = Goal::ratio(0.5, 2.0);
const CPU_TRANSLATED: Goal = Goal::ratio(1.0, 2.0);
const CPU_BURST_TRANSLATED: Goal = Goal::ratio(0.8, 3.0);
const CPU_PACED: Goal = Goal::ratio(0.9, 1.2);
const CPU_PACED_TRANSLATED: Goal = Goal::ratio(1.0, 1.5);
const RATE: Goal = Goal::ratio_at_least(1.1, 0.7);
const FIRST_BYTE_MS: Goal = Goal::value(0.2, 0.5);
const IDLE_MB: Goal = Goal::value(15.0, 40.0);
const LOADED_MB: Goal = Goal::value(25.0, 60.0);
const START_MS: Goal = Goal::value(50.0, 150.0);

/// A load of the machine that a measurement does not notice. The build before it counts in.
const QUIET: f64 = 1.0;

/// One kind of load.
struct Probe {
    name: &'static str,
    model: &'static str,
    /// How long the prompt is, in bytes.
    prompt: usize,
    stream: bool,
    connections: usize,
    /// What is asked of processor time per request.
    processor: Option<Goal>,
    /// What is asked of requests per second of processor time.
    rate: Option<Goal>,
    /// What is asked of the time added to the first byte, at its median.
    first_byte: Option<Goal>,
}

const PROBES: [Probe; 9] = [
    Probe {
        name: "1 KB chat, 64 at once",
        model: SAME,
        prompt: 900,
        stream: false,
        connections: 64,
        processor: Some(CPU_SMALL),
        rate: Some(RATE),
        first_byte: None,
    },
    Probe {
        name: "1 KB chat, 1 at once",
        model: SAME,
        prompt: 900,
        stream: false,
        connections: 1,
        processor: None,
        rate: None,
        first_byte: Some(FIRST_BYTE_MS),
    },
    Probe {
        name: "100 KB prompt, 16 at once",
        model: SAME,
        prompt: 100_000,
        stream: false,
        connections: 16,
        processor: Some(CPU_LARGE),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "burst stream, 16 at once",
        model: SAME,
        prompt: 900,
        stream: true,
        connections: 16,
        processor: Some(CPU_BURST),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "burst stream, 1 at once",
        model: SAME,
        prompt: 900,
        stream: true,
        connections: 1,
        processor: None,
        rate: None,
        first_byte: Some(FIRST_BYTE_MS),
    },
    Probe {
        name: "1 KB chat, translated, 64 at once",
        model: OTHER,
        prompt: 900,
        stream: false,
        connections: 64,
        processor: Some(CPU_TRANSLATED),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "burst stream, translated, 16 at once",
        model: OTHER,
        prompt: 900,
        stream: true,
        connections: 16,
        processor: Some(CPU_BURST_TRANSLATED),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "paced stream, 32 at once",
        model: SAME_PACED,
        prompt: 900,
        stream: true,
        connections: 32,
        processor: Some(CPU_PACED),
        rate: None,
        first_byte: None,
    },
    Probe {
        name: "paced stream, translated, 32 at once",
        model: OTHER_PACED,
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

/// How long everything takes.
struct Extent {
    rounds: usize,
    time: Duration,
    starts: usize,
}

/// What one target did under one load in one round.
#[derive(Clone, Copy, Default)]
struct Figures {
    per_second: f64,
    /// Processor time of the proxy per request, in microseconds; nothing without a proxy.
    processor_us: Option<f64>,
    /// The share of its processor the proxy used.
    busy: Option<f64>,
    whole_p50_ms: f64,
    whole_p99_ms: f64,
    first_p50_ms: f64,
}

/// Measures everything; true when no figure is beyond its limit.
pub(crate) fn run(quick: bool, rivals: bool, write: bool) -> Result<bool> {
    println!("building the gateway to hand out; the first time this takes a quarter of an hour");
    tools::run(&mut cargo(&["build", "--profile", "dist", "-p", "portunus"]))?;
    let extent = if quick {
        Extent { rounds: 3, time: Duration::from_millis(500), starts: 3 }
    } else {
        Extent { rounds: 7, time: Duration::from_secs(2), starts: 9 }
    };
    let others = usage::others()?;
    let cores = Cores::take(&usage::processors()?)?;
    println!("{}", cores.told());
    let stage = Stage::set(&workspace::target().join("dist/portunus"), &cores)?;
    let mut rows = Vec::new();

    rows.push(starts(&stage, extent.starts)?);
    rows.push(apart::ledger(&stage)?);
    let small = small_body();
    let (nginx, _) = stage.start(Target::Nginx, &small)?;
    let (gateway, _) = stage.start(Target::Gateway, &small)?;
    // What a server still does right after its start is over by then.
    thread::sleep(Duration::from_millis(500));
    rows.push(memory("memory right after the start, MB", &nginx, &gateway, IDLE_MB)?);

    let mut rounds = Vec::new();
    for round in 0..extent.rounds {
        println!("round {} of {}", round + 1, extent.rounds);
        rounds.push(measure(&stage, &nginx, &gateway, extent.time, round)?);
    }
    for (at, probe) in PROBES.iter().enumerate() {
        let per_round = |target: Target| -> Vec<Figures> {
            rounds.iter().filter_map(|round| round.get(at)?.get(target as usize).copied()).collect()
        };
        let [direct, nginx, gateway] = Target::ALL.map(per_round);
        rows.extend(judge(probe, &direct, &nginx, &gateway));
    }
    rows.push(memory("memory after the load, MB", &nginx, &gateway, LOADED_MB)?);
    rows.push(apart::idle_streams(&stage, &nginx, &gateway)?);

    nginx.running.stop(Signal::Term)?;
    gateway.running.stop(Signal::Term)?;
    let rivals = if rivals { rivals::measure(&stage, extent.time)? } else { Vec::new() };
    stage.clear()?;
    let good = report::print(&rows);
    for seen in &rivals {
        println!("{}", seen.json());
    }
    if others > QUIET {
        println!("the machine was busy before this (load {others}): measure again when it is not");
    }
    let file = workspace::target().join("bench/last.json");
    let about = json!({
        "quick": quick,
        "rounds": extent.rounds,
        "seconds_per_load": extent.time.as_secs_f64(),
        "processors": cores.told(),
        "load_before": others,
    });
    report::write(&file, &about, &rows)?;
    if write {
        let machine = usage::processor_name().unwrap_or_default();
        let rounds = extent.rounds;
        let seconds = extent.time.as_secs_f64();
        let told =
            format!("{rounds} rounds of {seconds} s per load on {machine}; {}.", cores.told());
        document::write(&told, &rows, &rivals)?;
    }
    println!("written to {}", file.display());
    Ok(good)
}

fn small_body() -> String {
    PROBES.first().map(Probe::body).unwrap_or_default()
}

/// From nothing to the first good answer, each proxy several times in turn.
fn starts(stage: &Stage, times: usize) -> Result<Row> {
    let body = small_body();
    let (mut nginx, mut gateway) = (Vec::new(), Vec::new());
    for _ in 0..times {
        for (target, took) in [(Target::Nginx, &mut nginx), (Target::Gateway, &mut gateway)] {
            let (server, answered) = stage.start(target, &body)?;
            server.running.stop(Signal::Term)?;
            took.push(milliseconds(answered));
        }
    }
    let (nginx, gateway) = (median(nginx), median(gateway));
    Ok(Row {
        what: "start to first answer, ms".into(),
        direct: None,
        ratio: divide(gateway, nginx),
        nginx,
        gateway,
        goal: Some(START_MS),
    })
}

fn memory(what: &str, nginx: &Server, gateway: &Server, goal: Goal) -> Result<Row> {
    let nginx = Some(usage::memory(nginx.running.id())?);
    let gateway = Some(usage::memory(gateway.running.id())?);
    let ratio = divide(gateway, nginx);
    Ok(Row { what: what.into(), direct: None, nginx, gateway, ratio, goal: Some(goal) })
}

/// One round: every load on every target. Who goes first changes with the round, so that none of
/// them always meets a machine that has just been busy with another.
fn measure(
    stage: &Stage,
    nginx: &Server,
    gateway: &Server,
    time: Duration,
    round: usize,
) -> Result<Vec<[Figures; 3]>> {
    let mut all = Vec::new();
    for probe in &PROBES {
        let mut figures = [Figures::default(); 3];
        let order = Target::ALL.into_iter().cycle().skip(round % 3).take(3);
        for target in order {
            let (address, process) = match target {
                Target::Direct => (stage.upstream_of(probe.model), None),
                Target::Nginx => (nginx.address, Some(nginx.running.id())),
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

fn one(
    stage: &Stage,
    target: Target,
    probe: &Probe,
    address: SocketAddr,
    process: Option<u32>,
    time: Duration,
) -> Result<Figures> {
    let request = stage.request(target, probe.model, address, &probe.body());
    let ending = probe.ending();
    let load = Load { address, request: &request, ending, connections: probe.connections, time };
    let mut before = None;
    let tally = load.run(|| before = process.map(usage::processor_time))?;
    let used = match (before, process) {
        (Some(before), Some(process)) => {
            Some(usage::processor_time(process)?.saturating_sub(before?).as_secs_f64())
        }
        _ => None,
    };
    #[expect(clippy::cast_precision_loss, reason = "far fewer requests than that")]
    let done = tally.whole.len() as f64;
    let wall = tally.wall.as_secs_f64();
    Ok(Figures {
        per_second: done / wall,
        processor_us: used.map(|used| used * 1e6 / done),
        busy: used.map(|used| used / wall),
        whole_p50_ms: milliseconds(percentile(&tally.whole, 0.5)),
        whole_p99_ms: milliseconds(percentile(&tally.whole, 0.99)),
        first_p50_ms: milliseconds(percentile(&tally.first, 0.5)),
    })
}

/// The lines a load adds to the table.
fn judge(probe: &Probe, direct: &[Figures], nginx: &[Figures], gateway: &[Figures]) -> Vec<Row> {
    let row = |what: &str, goal: Option<Goal>, figure: fn(&Figures) -> Option<f64>| {
        let over_rounds = |rounds: &[Figures]| median(rounds.iter().filter_map(figure).collect());
        let pairs = gateway.iter().zip(nginx);
        let ratios = pairs.filter_map(|(ours, theirs)| divide(figure(ours), figure(theirs)));
        Row {
            what: format!("{}: {what}", probe.name),
            direct: over_rounds(direct),
            nginx: over_rounds(nginx),
            gateway: over_rounds(gateway),
            ratio: median(ratios.collect()),
            goal,
        }
    };
    let added = |what: &str, goal: Option<Goal>, figure: fn(&Figures) -> f64| {
        let over_rounds = |rounds: &[Figures]| {
            let pairs = rounds.iter().zip(direct);
            median(pairs.map(|(through, without)| figure(through) - figure(without)).collect())
        };
        Row {
            what: format!("{}: {what}", probe.name),
            direct: median(direct.iter().map(figure).collect()),
            nginx: over_rounds(nginx),
            gateway: over_rounds(gateway),
            ratio: None,
            goal,
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
        // Judged by what a fully used processor would do, not by what was seen: the load and the
        // upstream tire before a good proxy does, and then the seen figures of both are alike.
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
        let rows = judge(&PROBES[0], &direct, &nginx, &gateway);
        assert_eq!((rows[0].gateway, rows[0].ratio), (Some(30.0), Some(1.5)));
        let rows = judge(&PROBES[1], &direct, &nginx, &gateway);
        assert!((rows[0].gateway.unwrap() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn the_median_shrugs_off_one_bad_round() {
        assert_eq!(median(vec![1.0, 900.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }
}
