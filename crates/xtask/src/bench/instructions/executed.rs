//! Functions that a start and each kind of call execute.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::counts::function_names;
use super::{CHAT, CallgrindGateway, CountingStage, ROADS, capped_key};
use crate::gateway::Binary;
use crate::http::{self, Client};
use crate::process::Signal;

/// Calls of several callers at once: enough that full batches are posted, pages of the database split
/// and its log is written back.
const CALLS_AT_ONCE: u32 = 8_000;
const CALLERS: u32 = 32;
/// Time in which each loop in the background runs, and calls are posted.
const BACKGROUND_WAIT: Duration = Duration::from_secs(8);
/// Pages and lists.
const PAGES: [&str; 5] = ["/", "/console", "/healthz", "/readyz", "/v1/models"];
/// Calls that are refused: a model that does not exist, and a body that is not JSON.
const REFUSED: [&str; 2] = [r#"{"model":"none","messages":[{"role":"user","content":"x"}]}"#, "{"];

/// Returns the names of the functions that run in the binary, as its symbol table has them.
pub(crate) fn executed_functions(binary: &Path) -> Result<Vec<String>> {
    let stage = CountingStage::set(Binary { path: binary.into(), cores: None })?;
    let mangled = "--demangle=no".to_owned();
    let gateway = stage.under_callgrind("executed", &[mangled], capped_key)?;
    thread::sleep(BACKGROUND_WAIT);
    let start = fs::read_to_string(gateway.write_file()?)?;
    for road in &ROADS {
        gateway.warm_up(road)?;
    }
    let [small, ..] = &ROADS;
    // Calls may be refused: under callgrind a lease is sometimes extended too late.
    drop(gateway.repeat_at_once(small, CALLS_AT_ONCE, CALLERS));
    gateway.ask_for_pages_and_refusals()?;
    thread::sleep(BACKGROUND_WAIT);
    let calls = fs::read_to_string(gateway.write_file()?)?;
    gateway.running.stop(Signal::Term)?;
    stage.clear()?;
    Ok(in_order(&function_names(&start), &function_names(&calls)))
}

impl CallgrindGateway {
    fn ask_for_pages_and_refusals(&self) -> Result<()> {
        let (address, key) = (self.address, &self.key);
        let page = |path| {
            let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n");
            format!("{head}authorization: Bearer {key}\r\nconnection: close\r\n\r\n").into_bytes()
        };
        let refused = |body| http::post(address, CHAT, key, body);
        let stranger = http::post(address, CHAT, "nobody", "{}");
        let requests = PAGES.map(page).into_iter().chain(REFUSED.map(refused)).chain([stranger]);
        for request in requests {
            Client::open(address)?.exchange(&request, &mut Vec::new())?;
        }
        Ok(())
    }
}

/// Sorts functions into three groups: those of the start that calls need too, those of calls, and those
/// that only the start needs. So a quiet gateway has the first and the last in memory, and calls do not
/// need the last.
fn in_order(start: &[&str], calls: &[&str]) -> Vec<String> {
    let in_start: HashSet<&str> = start.iter().copied().collect();
    let in_calls: HashSet<&str> = calls.iter().copied().collect();
    let both = calls.iter().filter(|name| in_start.contains(**name));
    let only_calls = calls.iter().filter(|name| !in_start.contains(**name));
    let only_start = start.iter().filter(|name| !in_calls.contains(**name));
    both.chain(only_calls).chain(only_start).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_calls_come_first_and_each_one_once() {
        let order = in_order(&["parse", "alloc", "listen"], &["serve", "alloc"]);
        assert_eq!(order, ["alloc", "serve", "parse", "listen"]);
    }
}
