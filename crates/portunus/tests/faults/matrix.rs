//! The matrix run: a gateway, a simulated provider behind it, and every cell of the table.

use canon::Origin;
use demo::{Options, simulate};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use testkit::{Gateway, Got};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::caller::{self, FORMATS, ask};
use crate::judge::{self, Break, Refusal};
use crate::table::{ROWS, Row, Want};

/// How many calls run at once: few enough that none has to wait for a processor so long that a time
/// limit would be met by accident.
const AT_ONCE: usize = 16;
/// How many of those that only wait for their time limit.
const WAITING: usize = 128;

/// One cell: a fault, a caller's format, a provider's format, streamed or not.
struct Cell {
    row: &'static Row,
    caller: Origin,
    upstream: Origin,
    stream: bool,
    want: Want,
}

impl Cell {
    /// Whether the call ends by a time limit, which is then a short one.
    fn is_hasty(&self) -> bool {
        matches!(self.want, Want::Refused(Refusal::Late) | Want::Broken(Break::Late))
    }
}

/// Every cell: each format to a provider of its own, and to one it has to be translated for.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for row in ROWS {
        for (at, caller) in FORMATS.into_iter().enumerate() {
            for upstream in [caller, FORMATS[(at + 1) % FORMATS.len()]] {
                for stream in [false, true] {
                    if let Some(want) = row.want(caller, upstream, stream) {
                        cells.push(Cell { row, caller, upstream, stream, want });
                    }
                }
            }
        }
    }
    cells
}

/// A provider and a model for each cell, so that the trouble of one is not the next one's.
fn config(address: &str, cells: &[Cell]) -> String {
    let mut text = String::new();
    for (at, cell) in cells.iter().enumerate() {
        let speaks = cell.upstream.name();
        let times = if cell.is_hasty() {
            "first_byte = \"4s\"\ngap = \"3s\"\ntotal = \"6s\""
        } else {
            "first_byte = \"60s\"\ngap = \"60s\"\ntotal = \"120s\""
        };
        write!(
            text,
            "[providers.p{at}]\nspeaks = \"{speaks}\"\nbase = \"http://{address}\"\nauth = \"none\"\n\
             [providers.p{at}.timeouts]\n{times}\n\
             [models.m{at}]\nlanes = [\"p{at}/demo\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n"
        )
        .unwrap();
    }
    text
}

/// The simulated provider, for as long as the test runs.
pub(crate) async fn provider(rules: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let rules = Arc::new(demo::Rules::read(rules).unwrap());
    let options = Options { rules, ..Options::default() };
    tokio::spawn(simulate(listener, options, std::future::pending::<()>()));
    address
}

/// What the provider would bill.
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
    let cells = Arc::new(cells());
    let address = provider("").await;
    let gateway = Arc::new(Gateway::with(&config(&address, &cells)).await);
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
    let mut done: Vec<(usize, Got, Value)> = Vec::new();
    while let Some(one) = calls.join_next().await {
        let (at, (got, receipt)) = one.unwrap();
        done.push((at, got, receipt));
    }
    done.sort_by_key(|(at, _, _)| *at);
    let told = meter(&address).await;
    let mut billed: HashMap<&str, Vec<&Value>> = HashMap::new();
    for call in told["calls"].as_array().unwrap() {
        billed.entry(call["tag"].as_str().unwrap_or_default()).or_default().push(call);
    }
    let mut wrong = String::new();
    for (at, got, receipt) in &done {
        let cell = &cells[*at];
        let tag = format!("c{at}");
        let bills = billed.get(tag.as_str()).map(Vec::as_slice).unwrap_or_default();
        let seen = look(cell, got).and_then(|()| balance(cell, got, receipt, bills));
        if let Err(why) = seen {
            let how = if cell.stream { "stream" } else { "whole" };
            let pair = format!("{} → {}", cell.caller.name(), cell.upstream.name());
            writeln!(wrong, "{:<36} {pair:<22} {how:<7} {why}", cell.row.fault).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cells are wrong:\n{wrong}",
        wrong.lines().count(),
        cells.len()
    );
    // A redirect that was followed would have been refused there.
    assert_eq!(told["refused"], 0, "the provider was asked for something else");
    assert!(done.iter().all(|(_, got, _)| got.status != 500), "no fault is a 500");
    gateway.settled().await;
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(key["held_usd"], "0.000000000", "no hold is left");
    let rows = gateway.app.store.export(None, 100_000).await.unwrap();
    assert_eq!(rows.len(), cells.len(), "every call has exactly one row");
}

/// Calls and fetches the receipt.
async fn call(gateway: &Gateway, cell: &Cell, at: usize) -> (Got, Value) {
    let order = format!("[[fault: {} tag=c{at}]]", cell.row.fault);
    let (path, body) = ask(cell.caller, &format!("m{at}"), &order, cell.stream);
    let got = gateway.post(&path, &body).send().await;
    let id = got.header("x-request-id").to_owned();
    let receipt = gateway.get(&format!("/v1/usage/{id}")).send().await;
    (got, receipt.json())
}

/// What the caller saw.
fn look(cell: &Cell, got: &Got) -> Result<(), String> {
    match cell.want {
        Want::Full | Want::Counted => judge::complete(cell.caller, got, cell.stream, true),
        Want::Mended => judge::complete(cell.caller, got, cell.stream, false),
        Want::Refused(why) => judge::refused(cell.caller, got, why),
        Want::Broken(why) | Want::Void(why) => judge::broken(cell.caller, got, why),
    }
    .map_err(|why| format!("{why} [{} {}]", got.status.as_u16(), shown(got)))
}

fn shown(got: &Got) -> String {
    let last: Vec<char> = got.text().chars().rev().take(160).collect();
    last.iter().rev().collect::<String>().replace('\n', "⏎")
}

/// What the ledger holds, beside what the provider would bill.
fn balance(cell: &Cell, got: &Got, receipt: &Value, bills: &[&Value]) -> Result<(), String> {
    let [.., bill] = bills else { return Err("the provider never saw the call".to_owned()) };
    let told = |name: &str| receipt[name].as_u64().unwrap_or(u64::MAX);
    let claimed = |name: &str| bill[name].as_u64().unwrap_or_default();
    let free = receipt["cost_usd"] == "0.000000000";
    let is = |what: &str, got: &Value, want: Value| {
        if *got == want { Ok(()) } else { Err(format!("ledger: {what} is {got}, not {want}")) }
    };
    match cell.want {
        Want::Full | Want::Mended => {
            is("outcome", &receipt["outcome"], json!("done"))?;
            is("estimated", &receipt["estimated"], json!(false))?;
            is("input", &receipt["input_tokens"], json!(claimed("input_tokens")))?;
            is("output", &receipt["output_tokens"], json!(claimed("output_tokens")))?;
            is("free", &json!(free), json!(false))
        }
        Want::Counted => {
            is("outcome", &receipt["outcome"], json!("done"))?;
            is("estimated", &receipt["estimated"], json!(true))?;
            near("input", told("input_tokens"), claimed("input_tokens"))?;
            near("output", told("output_tokens"), claimed("output_tokens"))?;
            is("free", &json!(free), json!(false))
        }
        Want::Refused(_) => {
            is("outcome", &receipt["outcome"], json!("failed"))?;
            is("free", &json!(free), json!(true))
        }
        Want::Void(_) => {
            is("outcome", &receipt["outcome"], json!("broke_off"))?;
            is("free", &json!(free), json!(true))
        }
        Want::Broken(_) => {
            is("outcome", &receipt["outcome"], json!("broke_off"))?;
            is("estimated", &receipt["estimated"], json!(true))?;
            near("input", told("input_tokens"), claimed("input_tokens"))?;
            // What a provider produces beyond what came is not the caller's.
            let text = caller::streamed_text(cell.caller, &caller::events(cell.caller, got)?);
            near("output", told("output_tokens"), demo::count_tokens(&text))?;
            is("free", &json!(free), json!(false))
        }
    }
}

/// A count of ours is of the same size as the provider's.
fn near(what: &str, ours: u64, theirs: u64) -> Result<(), String> {
    let (low, high) = (theirs / 4, theirs * 4 + 16);
    if ours > 0 && (low..=high).contains(&ours) {
        return Ok(());
    }
    Err(format!("ledger: {what} was counted as {ours}, the provider has {theirs}"))
}
