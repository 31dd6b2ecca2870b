//! Runs every cell of the fault table: a gateway with a simulated provider behind it.

use canon::WireFormat;
use demo::{SimulatorOptions, simulate};
use ledger::{CallOutcome, LedgerEntry};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use testkit::{TestGateway, TestResponse};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::faults::expectations::{self, Break, Refusal};
use crate::faults::fault_table::{Asks, ROWS, Row, Want};
use crate::faults::formats::{self, FORMATS, ask};

/// Calls that run at once: few enough that none has to wait for a processor so long that a time
/// limit would be met by accident.
const AT_ONCE: usize = 16;
/// Output limit of the requests.
const MAX_OUTPUT_TOKENS: u64 = 200;
/// Calls at once of those that only wait for their time limit.
const WAITING: usize = 128;

/// The address a call is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    /// A conversation, whole or as a stream of events.
    Talk,
    /// A conversation as a stream of the items of one JSON array, which only native has.
    Array,
    /// Embeddings.
    Vectors,
}

/// One cell: a fault, a caller's format, a provider's format, streamed or not.
pub(crate) struct Cell {
    row: &'static Row,
    surface: Surface,
    caller: WireFormat,
    upstream: WireFormat,
    stream: bool,
    want: Want,
}

impl Cell {
    /// True if the call ends by a time limit, which is then a short one.
    fn is_hasty(&self) -> bool {
        matches!(
            self.want,
            Want::Refused(Refusal::Late) | Want::Lost(Refusal::Late) | Want::Broken(Break::Late)
        )
    }
}

/// Every cell of these rows: each format to a provider of its own, and to one it has to be
/// translated for; the other surfaces where the row means something there.
pub(crate) fn cells(rows: &'static [Row]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for row in rows {
        for (at, caller) in FORMATS.into_iter().enumerate() {
            for upstream in [caller, FORMATS[(at + 1) % FORMATS.len()]] {
                if matches!(row.asks, Asks::Two(_)) && !(counts(caller) && counts(upstream)) {
                    continue;
                }
                let mut add = |surface, stream, want| {
                    cells.push(Cell { row, surface, caller, upstream, stream, want });
                };
                for stream in [false, true] {
                    if let Some(want) = row.want(caller, upstream, stream) {
                        add(Surface::Talk, stream, want);
                    }
                }
                if row.asks != Asks::Text {
                    continue;
                }
                if caller == WireFormat::Native
                    && let Some(want) = row.want(caller, upstream, true)
                {
                    add(Surface::Array, true, want);
                }
            }
            for upstream in [WireFormat::Chat, WireFormat::Native] {
                if row.asks == Asks::Text
                    && counts(caller)
                    && let Some(want) = row.vectors.unwrap_or(row.whole)
                {
                    let (surface, stream) = (Surface::Vectors, false);
                    cells.push(Cell { row, surface, caller, upstream, stream, want });
                }
            }
        }
    }
    cells
}

/// True if a format has several candidates in an answer, and embeddings.
fn counts(format: WireFormat) -> bool {
    matches!(format, WireFormat::Chat | WireFormat::Native)
}

/// A provider and a model for each cell, so that the trouble of one is not the next one's.
fn config(bases: &[String], cells: &[Cell]) -> String {
    // All calls are those of one key.
    let mut text = "[limits]\ngoodwill = \"100\"\n".to_owned();
    for (at, cell) in cells.iter().enumerate() {
        let speaks = cell.upstream.as_str();
        let base = &bases[at % bases.len()];
        let kind = if cell.surface == Surface::Vectors { "embedding" } else { "chat" };
        let times = if cell.is_hasty() {
            "first_byte = \"4s\"\ngap = \"3s\"\ntotal = \"6s\""
        } else {
            "first_byte = \"60s\"\ngap = \"60s\"\ntotal = \"120s\""
        };
        write!(
            text,
            "[providers.p{at}]\nspeaks = \"{speaks}\"\nbase = \"{base}\"\nauth = \"none\"\n\
             [providers.p{at}.timeouts]\n{times}\n\
             [models.m{at}]\nlanes = [\"p{at}/demo\"]\nkind = \"{kind}\"\n\
             price = {{ input = \"1.00\", output = \"2.00\" }}\n"
        )
        .unwrap();
    }
    text
}

/// The simulated provider, for as long as the test runs.
pub(crate) async fn provider(rules: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let rules = Arc::new(demo::FaultRules::parse(rules).unwrap());
    let options = SimulatorOptions { rules, ..SimulatorOptions::default() };
    tokio::spawn(simulate(listener, options, std::future::pending::<()>()));
    address
}

/// The provider's own meter.
pub(crate) async fn meter(address: &str) -> Value {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let ask = "GET /meter HTTP/1.1\r\nhost: meter\r\nconnection: close\r\n\r\n";
    socket.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_has_its_one_right_outcome_in_every_format() {
    let address = provider("").await;
    run(cells(ROWS), &address, &[format!("http://{address}")], "").await;
}

/// Runs every cell through a gateway in front of the provider at one of these bases, and compares
/// what came of it with what the provider's meter, at that address, would bill.
pub(crate) async fn run(cells: Vec<Cell>, address: &str, bases: &[String], more: &str) {
    let cells = Arc::new(cells);
    let gateway = TestGateway::with_config(&format!("{more}{}", config(bases, &cells))).await;
    let gateway = Arc::new(gateway);
    let turns = [Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(WAITING))];
    let mut calls = JoinSet::new();
    for at in 0..cells.len() {
        let (cells, gateway) = (Arc::clone(&cells), Arc::clone(&gateway));
        let turns = Arc::clone(&turns[usize::from(cells[at].is_hasty())]);
        calls.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            (at, call(&gateway, &cells[at], at).await)
        });
    }
    let mut done: Vec<(usize, TestResponse)> = Vec::new();
    while let Some(one) = calls.join_next().await {
        done.push(one.unwrap());
    }
    done.sort_by_key(|(at, _)| *at);
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.export(None, 100_000).await.unwrap();
    assert_eq!(rows.len(), cells.len(), "every call has exactly one row");
    let rows: HashMap<&str, &LedgerEntry> =
        rows.iter().map(|row| (row.request_id.as_str(), row)).collect();
    let told = meter(address).await;
    let mut billed: HashMap<&str, Vec<&Value>> = HashMap::new();
    for call in told["calls"].as_array().unwrap() {
        billed.entry(call["tag"].as_str().unwrap_or_default()).or_default().push(call);
    }
    let mut wrong = String::new();
    for (at, got) in &done {
        let cell = &cells[*at];
        let tag = format!("c{at}");
        let bills = billed.get(tag.as_str()).map(Vec::as_slice).unwrap_or_default();
        let row = rows.get(got.header("x-request-id"));
        let row = row.ok_or_else(|| "the ledger has no such call".to_owned());
        let seen = look(cell, got).and(row).and_then(|row| balance(cell, got, row, bills));
        if let Err(why) = seen {
            let how = match (cell.surface, cell.stream) {
                (Surface::Talk, false) => "whole",
                (Surface::Talk, true) => "stream",
                (Surface::Array, _) => "array",
                (Surface::Vectors, _) => "vector",
            };
            let pair = format!("{} → {}", cell.caller.as_str(), cell.upstream.as_str());
            writeln!(wrong, "{:<36} {pair:<22} {how:<7} {why}", cell.row.fault).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cells are wrong:\n{wrong}",
        wrong.lines().count(),
        cells.len()
    );
    // A followed redirect would have been refused there.
    assert_eq!(told["refused"], 0, "the provider was asked for something else");
    assert!(done.iter().all(|(_, got)| got.status != 500), "no fault is a 500");
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(key["held_usd"], "0.000000000", "no hold is left");
}

async fn call(gateway: &TestGateway, cell: &Cell, at: usize) -> TestResponse {
    let order = format!("[[fault: {} tag=c{at}]]", cell.row.fault);
    let (model, caller) = (format!("m{at}"), cell.caller);
    let (mut path, body) = match (cell.surface, cell.row.asks) {
        (Surface::Vectors, _) => formats::ask_for_vector(caller, &model, &order),
        (_, Asks::Text) => ask(caller, &model, &order, cell.stream),
        (_, Asks::Call) => formats::ask_for_call(caller, &model, &order, cell.stream),
        (_, Asks::Two(_)) => formats::ask_for_two(caller, &model, &order),
    };
    if cell.surface == Surface::Array {
        path = path.replace("?alt=sse", "");
    }
    gateway.post(&path, &body).send().await
}

/// Checks the answer the caller got.
fn look(cell: &Cell, got: &TestResponse) -> Result<(), String> {
    match cell.want {
        Want::Full | Want::Counted | Want::Mended => match (cell.surface, cell.row.asks) {
            (Surface::Vectors, _) => expectations::vector(cell.caller, got),
            (_, Asks::Text) => {
                expectations::complete(cell.caller, got, cell.stream, cell.want != Want::Mended)
            }
            (_, Asks::Call) => expectations::calls(cell.caller, got, cell.stream),
            (_, Asks::Two(count)) => expectations::several(cell.caller, got, count),
        },
        Want::Refused(why) | Want::Lost(why) => expectations::refused(cell.caller, got, why),
        Want::Broken(why) | Want::Void(why) => expectations::broken(cell.caller, got, why),
    }
    .map_err(|why| format!("{why} [{} {}]", got.status.as_u16(), shown(got)))
}

fn shown(got: &TestResponse) -> String {
    let last: Vec<char> = got.text().chars().rev().take(160).collect();
    last.iter().rev().collect::<String>().replace('\n', "⏎")
}

/// Compares the ledger with the provider's meter.
fn balance(
    cell: &Cell,
    got: &TestResponse,
    row: &LedgerEntry,
    bills: &[&Value],
) -> Result<(), String> {
    let [.., bill] = bills else { return Err("the provider never saw the call".to_owned()) };
    let claimed = |name: &str| bill[name].as_u64().unwrap_or_default();
    let (input, output) = (claimed("input_tokens"), claimed("output_tokens"));
    let outcome = match cell.want {
        Want::Full | Want::Mended | Want::Counted => CallOutcome::Done,
        Want::Refused(_) | Want::Lost(_) => CallOutcome::Failed,
        Want::Void(_) | Want::Broken(_) => CallOutcome::BrokeOff,
    };
    is("the outcome", row.outcome, outcome)?;
    match cell.want {
        // A lost answer that told no counts is absorbed by an estimate.
        Want::Lost(_) | Want::Void(_) => {
            let is_known = row.estimated || row.told_usage().is_some();
            is("whether it is told or estimated", is_known, true)?;
        }
        Want::Full | Want::Mended | Want::Refused(_) => {
            is("whether it is estimated", row.estimated, false)?;
        }
        Want::Counted | Want::Broken(_) => is("whether it is estimated", row.estimated, true)?,
    }
    // One dollar a million: a token in is a thousand nanodollars, one out two thousand.
    let cost = i64::try_from(row.usage.input * 1_000 + row.usage.output * 2_000).unwrap();
    is("the cost", row.cost.as_nanos(), cost)?;
    let borne = u64::try_from(row.absorbed.as_nanos()).unwrap() / 1_000;
    match cell.want {
        // An answer that came and cannot be used is borne in full, as far as it tells its counts. Of one
        // that did not come, the usual output in that time is borne, at most up to the limit.
        Want::Lost(_) | Want::Void(_) => {
            let least = if borne < input { near("what is borne", borne, input) } else { Ok(()) };
            let most = input + 2 * output.max(MAX_OUTPUT_TOKENS);
            least.and(if borne > most { near("what is borne", borne, most) } else { Ok(()) })?;
        }
        Want::Full | Want::Mended | Want::Counted | Want::Refused(_) | Want::Broken(_) => {
            is("what is borne", borne, 0)?;
        }
    }
    match cell.want {
        Want::Full | Want::Mended => {
            is("the input", row.usage.input, input)?;
            is("the output", row.usage.output, output)
        }
        Want::Counted => {
            near("the input", row.usage.input, input)?;
            match cell.surface {
                Surface::Vectors => is("the output", row.usage.output, 0),
                Surface::Talk | Surface::Array => near("the output", row.usage.output, output),
            }
        }
        Want::Refused(_) | Want::Lost(_) | Want::Void(_) => is("the cost", cost, 0),
        Want::Broken(_) => {
            near("the input", row.usage.input, input)?;
            // The caller does not pay for output that never arrived.
            let events = formats::events(cell.caller, got)?;
            let said = match cell.row.asks {
                Asks::Text | Asks::Two(_) => formats::streamed_text(cell.caller, &events),
                Asks::Call => formats::called(cell.caller, got, Some(&events)),
            };
            near("the output", row.usage.output, demo::count_tokens(&said))
        }
    }
}

fn is<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("ledger: {what} is {got:?}, not {want:?}")) }
}

/// A count of ours is the provider's, but for a quarter or a few tokens: tokenisers differ, and what
/// they make of a short text differs most.
fn near(what: &str, ours: u64, theirs: u64) -> Result<(), String> {
    let slack = (theirs / 4).max(8);
    if ours > 0 && ours.abs_diff(theirs) <= slack {
        return Ok(());
    }
    Err(format!("ledger: {what} was counted as {ours}, the provider has {theirs}"))
}
