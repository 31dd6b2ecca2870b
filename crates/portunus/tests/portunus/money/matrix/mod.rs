//! The bill of every call, whatever happens during it: the meter of the provider against the books.
//!
//! A cell is a provider family, a caller's format, whole or streamed, and an event in one phase of the
//! call. The provider of each cell is its own and has a meter. Where it told its counts, its bill is
//! charged and absorbed to the last digit. Where it could not, the books hold an estimate that is marked
//! as one, is not below what the provider is known to have made, and is within the reservation.

mod books;
mod deaths;
mod families;

use canon::{Micros, Money, WireFormat};
use http::Method;
use ledger::LedgerEntry;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use store::KeyRecord;
use testkit::{
    AnswerStep, OpenResponse, ScriptedProvider, ShiftedClock, TestGateway, TestRequest,
    TestResponse, reply, until,
};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

use crate::faults::formats::{self, FORMATS};
use crate::money::key;
use books::is;
use families::{AnswerPieces, BEGIN_SEEN, Family, MORE_SEEN};

/// Calls that run or begin at once: few enough that a busy machine admits them in time.
const AT_ONCE: usize = 16;
/// Cap of the key of each call, and the cap it is lowered to.
const CAP: &str = "5";
const LOWERED_CAP: &str = "0.000001";
/// A word of no answer.
const NEVER_SAID: &str = "lighthouse";
/// Words of the prompt before the question.
const PROMPT: &str = "Describe the harbour in the morning, as a painter would see it. ";

/// Something that happens during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEvent {
    Nothing,
    CallerLeavesBeforeHead,
    CallerLeavesMidway,
    /// The caller has the last word. The counts come when it has left.
    CallerLeavesBeforeCounts,
    /// The caller has the last word, and no counts come.
    CallerLeavesWithoutCounts,
    ProviderBreaksOff,
    ProviderBreaksOffBeforeCounts,
    /// Before any output of a stream, in the midst of a whole answer.
    ProviderBreaksOffThenNextLane,
    ProviderFailsThenNextLane,
    CapIsLowered,
    KeyIsRevoked,
    PriceChanges,
    ClockSteps,
}

impl CallEvent {
    /// Events of single calls.
    const OF_CALLS: [Self; 11] = [
        Self::Nothing,
        Self::CallerLeavesBeforeHead,
        Self::CallerLeavesMidway,
        Self::CallerLeavesBeforeCounts,
        Self::CallerLeavesWithoutCounts,
        Self::ProviderBreaksOff,
        Self::ProviderBreaksOffBeforeCounts,
        Self::ProviderBreaksOffThenNextLane,
        Self::ProviderFailsThenNextLane,
        Self::CapIsLowered,
        Self::KeyIsRevoked,
    ];
}

/// One call, with its provider and the moments of the answer.
struct Cell {
    family: Arc<Family>,
    caller: WireFormat,
    stream: bool,
    event: CallEvent,
    provider: ScriptedProvider,
    /// Provider of the second lane.
    spare: Option<ScriptedProvider>,
    phases: AnswerPhases,
}

/// Moments that the provider reaches, and gates at which it waits.
#[derive(Clone)]
struct AnswerPhases {
    asked: Arc<Semaphore>,
    begun: Arc<Semaphore>,
    said: Arc<Semaphore>,
    may_begin: Arc<Semaphore>,
    may_go_on: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
}

impl AnswerPhases {
    fn new() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self {
            asked: none(),
            begun: none(),
            said: none(),
            may_begin: none(),
            may_go_on: none(),
            may_end: none(),
        }
    }

    /// The answer in its pieces, with the moments and gates between them.
    fn script(&self, family: &Family, stream: bool) -> Vec<AnswerStep> {
        let pieces = family.pieces(stream);
        let reached = |moment: &Arc<Semaphore>| AnswerStep::Reached(Arc::clone(moment));
        let wait_for = |gate: &Arc<Semaphore>| AnswerStep::WaitFor(Arc::clone(gate));
        vec![
            reached(&self.asked),
            wait_for(&self.may_begin),
            AnswerStep::Bytes(pieces.head),
            AnswerStep::Bytes(pieces.begin),
            reached(&self.begun),
            wait_for(&self.may_go_on),
            AnswerStep::Bytes(pieces.more),
            reached(&self.said),
            wait_for(&self.may_end),
            AnswerStep::Bytes(pieces.end),
        ]
    }
}

async fn reach(moment: &Semaphore) {
    moment.acquire().await.unwrap().forget();
}

impl Cell {
    async fn new(family: &Arc<Family>, caller: WireFormat, stream: bool, event: CallEvent) -> Self {
        let phases = AnswerPhases::new();
        let answer = phases.script(family, stream);
        let broken = |pieces: Vec<Vec<u8>>| {
            let sent = pieces.into_iter().map(AnswerStep::Bytes);
            sent.chain([AnswerStep::Close]).collect::<Vec<_>>()
        };
        let AnswerPieces { head, begin, more, end: _ } = family.pieces(stream);
        let (first, second) = match event {
            CallEvent::ProviderBreaksOff => (broken(vec![head, begin]), None),
            CallEvent::ProviderBreaksOffBeforeCounts => (broken(vec![head, begin, more]), None),
            CallEvent::ProviderBreaksOffThenNextLane if stream => {
                (broken(vec![head]), Some(answer))
            }
            CallEvent::ProviderBreaksOffThenNextLane => (broken(vec![head, begin]), Some(answer)),
            CallEvent::ProviderFailsThenNextLane => {
                let error = json!({ "error": { "message": "down", "type": "server_error" } });
                (reply(500, "application/json", &error.to_string()), Some(answer))
            }
            CallEvent::Nothing
            | CallEvent::CallerLeavesBeforeHead
            | CallEvent::CallerLeavesMidway
            | CallEvent::CallerLeavesBeforeCounts
            | CallEvent::CallerLeavesWithoutCounts
            | CallEvent::CapIsLowered
            | CallEvent::KeyIsRevoked
            | CallEvent::PriceChanges
            | CallEvent::ClockSteps => (answer, None),
        };
        let spare = match second {
            Some(answer) => Some(ScriptedProvider::start(vec![answer]).await),
            None => None,
        };
        let provider = ScriptedProvider::start(vec![first]).await;
        Self { family: Arc::clone(family), caller, stream, event, provider, spare, phases }
    }

    /// Every cell with one of these events.
    async fn all(events: &[CallEvent]) -> Vec<Self> {
        let mut cells = Vec::new();
        for family in Family::all().into_iter().map(Arc::new) {
            for caller in FORMATS {
                for stream in [false, true] {
                    for event in events {
                        cells.push(Self::new(&family, caller, stream, *event).await);
                    }
                }
            }
        }
        cells
    }

    fn name(&self) -> String {
        let how = if self.stream { "stream" } else { "whole" };
        format!("{:?}: {} for {} {how}", self.event, self.family.name, self.caller.as_str())
    }

    fn request(&self, at: usize) -> (String, Value) {
        formats::ask(self.caller, &format!("m{at}"), &PROMPT.repeat(8), self.stream)
    }
}

/// A provider and a model for each cell, so that the trouble of one is not the next one's. Prices are
/// those of the directory unless some are given.
fn config(cells: &[Cell], price: &str) -> String {
    // No time limit decides a test.
    let times = "[timeouts]\nfirst_byte = \"600s\"\ngap = \"600s\"\ntotal = \"900s\"\n";
    let mut text = times.to_owned();
    for (at, cell) in cells.iter().enumerate() {
        let Family { provider: like, model, format, .. } = &*cell.family;
        let mut lanes = Vec::new();
        let providers = std::iter::once(&cell.provider).chain(&cell.spare);
        for (name, provider) in ["p", "q"].into_iter().zip(providers) {
            write!(
                text,
                "[providers.{name}{at}]\nlike = \"{like}\"\nspeaks = \"{}\"\nbase = \"{}\"\n\
                 auth = \"none\"\n",
                format.as_str(),
                provider.url
            )
            .unwrap();
            lanes.push(format!("\"{name}{at}/{model}\""));
        }
        writeln!(text, "[models.m{at}]\nlanes = [{}]\n{price}", lanes.join(", ")).unwrap();
    }
    text
}

/// A gateway and the calls through it.
struct MatrixRun {
    gateway: TestGateway,
    cells: Vec<Cell>,
    /// Key of each cell.
    keys: Vec<String>,
}

impl MatrixRun {
    async fn new(gateway: TestGateway, cells: Vec<Cell>) -> Arc<Self> {
        let mut keys = Vec::new();
        let owner = gateway.app.store.accounts().await.unwrap().remove(0);
        for (at, cell) in cells.iter().enumerate() {
            let mut account = owner.clone();
            // These calls use up goodwill, which is the account's: other calls must not decide who pays.
            if cell.event == CallEvent::CallerLeavesBeforeHead {
                account.id = format!("account-{at}");
                account.username = format!("user{at}");
                account.email = None;
                gateway.app.store.add_account(&account).await.unwrap();
            }
            let change = |record: &mut KeyRecord| {
                record.cap = Some(CAP.parse().unwrap());
                record.account_id = account.id;
            };
            keys.push(key(&gateway, change).await);
        }
        gateway.admin_key().await;
        // A gateway looks up only so many unknown keys in a second.
        gateway.app.engine.keys.refresh().await.unwrap();
        Arc::new(Self { gateway, cells, keys })
    }

    fn send(&self, at: usize) -> TestRequest<'_> {
        let (path, body) = self.cells[at].request(at);
        self.gateway.post(&path, &body).key(&self.keys[at])
    }

    /// Begins a call and waits until its caller has the first half of a stream, or until the provider
    /// has said it. `act` happens then, and the call goes on to its end.
    async fn act_midway(&self, at: usize, act: impl Future<Output = ()>) {
        let phases = &self.cells[at].phases;
        let go_on = || {
            phases.may_go_on.add_permits(1);
            phases.may_end.add_permits(1);
        };
        if self.cells[at].stream {
            let open = self.read_until(at, BEGIN_SEEN).await;
            self.check_running(at, Family::delivered_tokens(false)).await;
            act.await;
            // A stream that is cut by the gateway never comes to its end.
            let is_cut = self.cells[at].event == CallEvent::KeyIsRevoked;
            if !is_cut {
                go_on();
            }
            open.rest().await;
        } else {
            let acting = async {
                reach(&phases.begun).await;
                self.check_running(at, Family::delivered_tokens(false)).await;
                act.await;
                go_on();
            };
            tokio::join!(self.read_all(at), acting);
        }
    }

    /// Begins a call and reads until its caller has that word, or its end. A call that the slow store of
    /// a busy machine refuses reaches no provider, has no row, and is sent again.
    async fn read_until(&self, at: usize, word: &str) -> OpenResponse {
        let contains = |body: &[u8]| body.windows(word.len()).any(|part| part == word.as_bytes());
        loop {
            let open = self.send(at).read_until(contains).await;
            let is_refused = matches!(open.status().as_u16(), 429 | 503);
            if !is_refused || !self.cells[at].provider.requests().is_empty() {
                return open;
            }
            // The money of a refused call may be free only after a while.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Sends a call and reads its whole answer.
    async fn read_all(&self, at: usize) -> TestResponse {
        self.read_until(at, NEVER_SAID).await.rest().await
    }

    /// Sends a call and leaves when its provider has come that far.
    async fn leave_at(&self, at: usize, moment: &Semaphore) {
        let reached = async {
            reach(moment).await;
            self.check_running(at, 0).await;
        };
        tokio::select! {
            got = self.read_all(at) => panic!("{}: {}", self.cells[at].name(), got.text()),
            () = reached => {}
        }
    }

    /// Checks a running call: its reservation covers all that the provider has made, and the cap covers
    /// the reservation.
    async fn check_running(&self, at: usize, output: u64) {
        let status = self.gateway.get("/v1/key").key(&self.keys[at]).send().await.json();
        let amount = |name: &str| status[name].as_str().unwrap().parse::<Money>().unwrap();
        let (held, spent) = (amount("held_usd"), amount("spent_usd"));
        let name = self.cells[at].name();
        assert!(held >= self.cells[at].least_bill(output), "{name}: {status}");
        assert!(held.saturating_add(spent) <= amount("cap_usd"), "{name}: {status}");
    }

    fn key_id(&self, at: usize) -> &str {
        self.keys[at].split('-').nth(2).unwrap()
    }

    async fn administrate(&self, method: Method, at: usize, body: &str) {
        let path = format!("/api/admin/keys/{}", self.key_id(at));
        let got = self.gateway.request(method, &path).body(body.to_owned()).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
    }

    /// Runs one cell.
    async fn run(&self, at: usize) {
        let Cell { event, stream, phases, .. } = &self.cells[at];
        if *event != CallEvent::CallerLeavesBeforeHead {
            phases.may_begin.add_permits(1);
        }
        match event {
            CallEvent::Nothing
            | CallEvent::ProviderBreaksOff
            | CallEvent::ProviderBreaksOffBeforeCounts
            | CallEvent::ProviderBreaksOffThenNextLane
            | CallEvent::ProviderFailsThenNextLane => {
                phases.may_go_on.add_permits(1);
                phases.may_end.add_permits(1);
                self.read_all(at).await;
            }
            CallEvent::CallerLeavesBeforeHead => self.leave_at(at, &phases.asked).await,
            CallEvent::CallerLeavesMidway if *stream => {
                let open = self.read_until(at, BEGIN_SEEN).await;
                self.check_running(at, Family::delivered_tokens(false)).await;
                drop(open);
            }
            CallEvent::CallerLeavesMidway => self.leave_at(at, &phases.begun).await,
            CallEvent::CallerLeavesBeforeCounts | CallEvent::CallerLeavesWithoutCounts
                if *stream =>
            {
                phases.may_go_on.add_permits(1);
                let open = self.read_until(at, MORE_SEEN).await;
                self.check_running(at, Family::delivered_tokens(true)).await;
                // The counts are on their way when the caller is gone, so that no time decides.
                if *event == CallEvent::CallerLeavesBeforeCounts {
                    phases.may_end.add_permits(1);
                }
                drop(open);
            }
            CallEvent::CallerLeavesBeforeCounts | CallEvent::CallerLeavesWithoutCounts => {
                phases.may_go_on.add_permits(1);
                self.leave_at(at, &phases.said).await;
            }
            CallEvent::CapIsLowered => {
                let change = json!({ "cap_usd": LOWERED_CAP }).to_string();
                self.act_midway(at, self.administrate(Method::PATCH, at, &change)).await;
            }
            CallEvent::KeyIsRevoked => {
                self.act_midway(at, self.administrate(Method::DELETE, at, "")).await;
            }
            CallEvent::PriceChanges | CallEvent::ClockSteps => {
                panic!("these happen to all calls of a gateway at once")
            }
        }
    }

    /// Checks the books of all calls.
    async fn check(&self) {
        self.gateway.wait_until_settled().await;
        let store = &self.gateway.app.store;
        let rows = store.export(None, 100_000).await.unwrap();
        assert_eq!(rows.len(), self.cells.len(), "every call has exactly one row");
        let rows: HashMap<&str, &LedgerEntry> =
            rows.iter().map(|row| (row.model.as_str(), row)).collect();
        let mut wrong = String::new();
        for (at, cell) in self.cells.iter().enumerate() {
            let row = rows[format!("m{at}").as_str()];
            let key = store.key(self.key_id(at)).await.unwrap().unwrap();
            let spent = is("spent by the key", key.spent, row.cost);
            if let Err(why) = spent.and_then(|()| cell.check(row)) {
                writeln!(wrong, "{}: {why}\n    {row:?}", cell.name()).unwrap();
            }
        }
        let count = wrong.lines().count() / 2;
        assert!(wrong.is_empty(), "{count} of {} cells are wrong:\n{wrong}", self.cells.len());
        let (laws, _) = store.verify().await.unwrap();
        for law in laws {
            assert!(law.violations.is_empty(), "{}: {:?}", law.name, law.violations);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_provider_bills_is_charged_or_absorbed_whatever_happens() {
    let cells = Cell::all(&CallEvent::OF_CALLS).await;
    let gateway = TestGateway::with_config(&config(&cells, "")).await;
    let run = MatrixRun::new(gateway, cells).await;
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    for at in 0..run.cells.len() {
        let (run, turns) = (Arc::clone(&run), Arc::clone(&turns));
        calls.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            run.run(at).await;
        });
    }
    calls.join_all().await;
    run.check().await;
    // A cap below what is spent leaves nothing.
    for (at, _) in
        run.cells.iter().enumerate().filter(|(_, cell)| cell.event == CallEvent::CapIsLowered)
    {
        until("the lowered cap is in force", async || {
            let status = run.gateway.get("/v1/key").key(&run.keys[at]).send().await.json();
            status["remaining_usd"] == "0.000000000"
        })
        .await;
    }
}

/// Runs calls to their midst, where `act` happens once for all of them.
async fn run_together(run: &Arc<MatrixRun>, act: impl Fn(&TestGateway) + Send + Sync + 'static) {
    let (act, midst) = (Arc::new(act), Arc::new(Barrier::new(run.cells.len())));
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    for at in 0..run.cells.len() {
        let (run, act, midst) = (Arc::clone(run), Arc::clone(&act), Arc::clone(&midst));
        let turns = Arc::clone(&turns);
        calls.spawn(async move {
            let turn = turns.acquire_owned().await.unwrap();
            run.cells[at].phases.may_begin.add_permits(1);
            let acting = async {
                drop(turn);
                if midst.wait().await.is_leader() {
                    act(&run.gateway);
                }
                midst.wait().await;
            };
            run.act_midway(at, acting).await;
        });
    }
    calls.join_all().await;
    run.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_costs_the_prices_of_its_admission() {
    let cells = Cell::all(&[CallEvent::PriceChanges]).await;
    let dearer = config(&cells, "price = { input = \"90\", output = \"900\" }");
    let gateway = TestGateway::with_config(&config(&cells, "")).await;
    let run = MatrixRun::new(gateway, cells).await;
    run_together(&run, move |gateway| gateway.reload(&dearer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_the_clock_changes_no_bill() {
    for hours in [30, -30] {
        let step = Micros::from_secs(hours * 3_600);
        let cells = Cell::all(&[CallEvent::ClockSteps]).await;
        let clock = Arc::new(ShiftedClock::default());
        let gateway = TestGateway::with_clock(&config(&cells, ""), clock.clone()).await;
        let run = MatrixRun::new(gateway, cells).await;
        run_together(&run, move |_| clock.step(step)).await;
    }
}
