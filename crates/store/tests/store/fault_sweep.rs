//! Every single message of a node to the store fails once, in every possible way: it is lost, its
//! answer is lost, it is duplicated. The cap holds throughout, and no call is lost or recorded
//! twice.

use std::sync::Arc;

use canon::{Micros, Money, Usage};
use ledger::{
    CallProgress, ClosedCounts, HeartbeatReply, HeartbeatReport, HoldRecord, HoldTicket,
    KeyBalance, KeyStatus, LeaseClient, LeaseGrant, LeaseRequest, LeaseReturn, LeaseStore,
    LeaseStoreError, LedgerEntry, MarkRaise, MemoryDisk, Node, OpenCalls, PostedBatch, PostedMark,
    SettledCall, StoreRollback, TestClock,
};
use std::sync::Mutex;
use store::{KeyRecord, Store};

use crate::on_both;
use crate::samples::{account, entry, id, key};
use crate::test_database::TestDatabase;

on_both!(every_message_to_the_store_may_fail_once);

const CAP: i64 = 1_500;

#[derive(Clone, Copy, Debug)]
enum MessageFate {
    Lost,
    AnswerLost,
    Twice,
}

/// The message that fails, and the number of messages.
#[derive(Debug)]
struct LineFaults {
    number: usize,
    count: usize,
    fate: MessageFate,
}

/// The connection between a node and the store.
#[derive(Clone)]
struct StoreLine {
    store: Store,
    faults: Arc<Mutex<LineFaults>>,
}

impl StoreLine {
    async fn carry<T, F: Future<Output = Result<T, LeaseStoreError>> + Send>(
        &self,
        message: impl Fn() -> F + Send,
    ) -> Result<T, LeaseStoreError> {
        let fate = {
            let mut faults = self.faults.lock().unwrap();
            faults.count += 1;
            (faults.count == faults.number).then_some(faults.fate)
        };
        match fate {
            None => message().await,
            Some(MessageFate::Lost) => Err(LeaseStoreError::Unreachable("lost".to_owned())),
            Some(MessageFate::AnswerLost) => {
                drop(message().await);
                Err(LeaseStoreError::Unreachable("its answer is lost".to_owned()))
            }
            Some(MessageFate::Twice) => {
                drop(message().await);
                message().await
            }
        }
    }
}

impl LeaseStore for StoreLine {
    async fn enter(&self, id: &str) -> Result<Node, LeaseStoreError> {
        self.carry(|| LeaseStore::enter(&self.store, id)).await
    }

    async fn leave(&self, node: &Node) -> Result<(), LeaseStoreError> {
        self.carry(|| LeaseStore::leave(&self.store, node)).await
    }

    async fn grant(&self, ask: &LeaseRequest) -> Result<LeaseGrant, LeaseStoreError> {
        self.carry(|| LeaseStore::grant(&self.store, ask)).await
    }

    async fn heartbeat(&self, report: &HeartbeatReport) -> Result<HeartbeatReply, LeaseStoreError> {
        self.carry(|| LeaseStore::heartbeat(&self.store, report)).await
    }

    async fn take_back(&self, back: &LeaseReturn) -> Result<(), LeaseStoreError> {
        self.carry(|| LeaseStore::take_back(&self.store, back)).await
    }

    async fn post(
        &self,
        settled: &[SettledCall],
        raise: Option<&MarkRaise>,
    ) -> Result<PostedBatch, LeaseStoreError> {
        self.carry(|| LeaseStore::post(&self.store, settled, raise)).await
    }

    async fn posted_mark(&self, id: &str) -> Result<PostedMark, LeaseStoreError> {
        self.carry(|| LeaseStore::posted_mark(&self.store, id)).await
    }

    async fn mark_posted(&self, raise: &MarkRaise, posted: i64) -> Result<bool, LeaseStoreError> {
        self.carry(|| LeaseStore::mark_posted(&self.store, raise, posted)).await
    }

    async fn note_rollback(
        &self,
        id: &str,
        rollback: StoreRollback,
        is_expected: bool,
    ) -> Result<(), LeaseStoreError> {
        self.carry(|| LeaseStore::note_rollback(&self.store, id, rollback, is_expected)).await
    }

    async fn key_status(
        &self,
        key_id: &str,
        node: &Node,
    ) -> Result<Option<KeyStatus>, LeaseStoreError> {
        self.carry(|| LeaseStore::key_status(&self.store, key_id, node)).await
    }

    async fn close_gone(&self, now: Micros) -> Result<ClosedCounts, LeaseStoreError> {
        self.carry(|| LeaseStore::close_gone(&self.store, now)).await
    }
}

/// A machine that can run a node, with a persistent disk.
struct Machine {
    line: StoreLine,
    name: String,
    clock: Arc<TestClock>,
    disk: Arc<MemoryDisk>,
    balance: Arc<KeyBalance>,
    key: KeyRecord,
    admitted: Vec<String>,
}

impl Machine {
    async fn try_start(&mut self) -> Result<LeaseClient<StoreLine>, LeaseStoreError> {
        let opened = OpenCalls::open(self.clock.clone(), self.disk.clone()).unwrap();
        self.balance = KeyBalance::new(&self.key.id, self.key.cap, Money::ZERO);
        LeaseClient::open(opened, self.line.clone(), self.clock.clone(), &self.name).await
    }

    /// Starts a node. Only one message fails, so the second attempt succeeds.
    async fn start(&mut self) -> LeaseClient<StoreLine> {
        match self.try_start().await {
            Ok(client) => client,
            Err(_) => {
                self.disk = Arc::new(self.disk.after_crash());
                self.try_start().await.unwrap()
            }
        }
    }

    async fn call(&mut self, client: &LeaseClient<StoreLine>) -> Option<(String, HoldTicket)> {
        let request_id = id();
        let held = HoldRecord {
            request_id: request_id.clone().into(),
            key_id: self.key.id.clone().into(),
            account_id: self.key.account_id.clone().into(),
            at: Micros::ZERO,
            amount: Money::ZERO,
            dialect: "chat".into(),
            model: "m".into(),
            stream: true,
            price_version: "p".into(),
            lease: None,
            ..HoldRecord::default()
        };
        let (full, least) = (Money::from_nanos(100), Money::from_nanos(10));
        let ticket = client.hold(&self.balance, Arc::new(held), full, least).await.ok()?;
        self.admitted.push(request_id.clone());
        Some((request_id, ticket))
    }

    fn settle(&self, call: Option<(String, HoldTicket)>, cost: i64) {
        if let Some((request_id, ticket)) = call {
            let done = entry(&request_id, &self.key, cost, 50);
            ticket.settle(LedgerEntry { price_version: "p".into(), ..done });
        }
    }

    /// Does the work of one second. Failed work is repeated in the next one.
    async fn work(&mut self, client: &LeaseClient<StoreLine>) {
        let (first, second) = (self.call(client).await, self.call(client).await);
        if let Some((_, ticket)) = &first {
            let usage = Usage { input: 3, output: 2, ..Usage::default() };
            let cost = Money::from_nanos(20);
            ticket.progress(CallProgress { lane: "l".to_owned(), usage, cost });
        }
        self.clock.pass(Micros::from_millis(1_200));
        drop(client.heartbeat().await);
        self.settle(first, 40);
        drop(client.post().await);
        self.settle(second, 130);
        drop(client.key_status(&self.balance).await);
        drop(client.close_dead_nodes().await);
    }

    /// Checks that the cap holds and that the key's record agrees with its rows.
    async fn check_sums(&self) {
        let totals = self.line.store.lease_totals().await.unwrap();
        for total in totals.iter().filter(|total| total.key_id == self.key.id) {
            assert_eq!(total.leased, total.leases, "{total:?}");
            assert!(total.spent.as_nanos() + total.leased.as_nanos() <= CAP, "{total:?}");
        }
    }
}

/// Runs a fixed scenario on two nodes. The first one has the faults. Returns the number of its
/// messages.
async fn scenario(
    database: &TestDatabase,
    store: &Store,
    number: usize,
    fate: MessageFate,
) -> usize {
    let (messages, _) = scenario_over(database, store, store, number, fate).await;
    messages
}

/// The same, with a separate connection to the store for the first node.
async fn scenario_over(
    database: &TestDatabase,
    store: &Store,
    of_first: &Store,
    number: usize,
    fate: MessageFate,
) -> (usize, usize) {
    let owner = account(&id());
    store.add_account(&owner).await.unwrap();
    let key = KeyRecord { cap: Some(Money::from_nanos(CAP)), ..key(&owner.id) };
    store.add_key(&key).await.unwrap();
    let machine = |number, store: &Store| {
        let faults = Arc::new(Mutex::new(LineFaults { number, count: 0, fate }));
        Machine {
            line: StoreLine { store: store.clone(), faults },
            name: id(),
            clock: Arc::new(TestClock::at(Micros::new(1_000))),
            disk: Arc::default(),
            balance: KeyBalance::new(&key.id, key.cap, Money::ZERO),
            key: key.clone(),
            admitted: vec![],
        }
    };
    // The connection of the second node never fails: no message has that number.
    let (mut one, mut two) = (machine(number, of_first), machine(0, store));
    let (first, second) = (one.start().await, two.start().await);
    one.work(&first).await;
    two.work(&second).await;
    two.check_sums().await;
    one.work(&first).await;
    two.check_sums().await;
    // The first node dies during a call, and a minute passes.
    let open = one.call(&first).await;
    one.clock.pass(Micros::from_millis(1_200));
    drop(first.heartbeat().await);
    one.disk = Arc::new(one.disk.after_crash());
    std::mem::forget(open);
    drop(first);
    database.execute_raw("UPDATE leases SET expires = expires - 60000000").await;
    database.execute_raw("UPDATE nodes SET seen = seen - 60000000").await;
    second.heartbeat().await.unwrap();
    two.work(&second).await;
    two.check_sums().await;
    let first = one.start().await;
    one.work(&first).await;
    two.check_sums().await;
    two.work(&second).await;
    two.check_sums().await;
    for (machine, client) in [(&one, &first), (&two, &second)] {
        for _ in 0..3 {
            machine.clock.pass(Micros::from_millis(1_200));
            drop(client.heartbeat().await);
            drop(client.post().await);
        }
        if client.leave().await.is_err() {
            client.leave().await.unwrap();
        }
    }
    two.check_sums().await;
    for request_id in one.admitted.iter().chain(&two.admitted) {
        let found = store.entry(request_id).await.unwrap();
        let entry = found.expect("every admitted call is recorded");
        assert!(entry.cost <= Money::from_nanos(100), "{entry:?}");
    }
    let sent = one.line.faults.lock().unwrap().count;
    (sent, one.admitted.len())
}

async fn every_message_to_the_store_may_fail_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    for fate in [MessageFate::Lost, MessageFate::AnswerLost, MessageFate::Twice] {
        let mut swept = 0;
        for number in 1.. {
            let count = scenario(&database, &store, number, fate).await;
            swept = number;
            if number > count {
                break;
            }
        }
        assert!(swept > 15, "only {swept} messages were sent");
        let (proofs, _) = store.verify().await.unwrap();
        for proof in proofs {
            assert!(proof.violations.is_empty(), "{fate:?}: {proof:?}");
        }
        // A lease whose grant was lost expires and is closed.
        database.execute_raw("UPDATE leases SET expires = expires - 90000000000").await;
        store.close_gone(Micros::new(1)).await.unwrap();
        let left = store.lease_totals().await.unwrap();
        assert!(left.iter().all(|total| total.leased == Money::ZERO), "{fate:?}: {left:?}");
    }
    store.close().await;
}

#[cfg(feature = "postgres-tests")]
#[test]
fn any_packet_to_postgresql_may_be_the_last() {
    crate::test_database::run(TestDatabase::postgres(), any_packet_may_be_the_last);
}

#[cfg(feature = "postgres-tests")]
async fn any_packet_may_be_the_last(database: Arc<TestDatabase>) {
    use crate::cutting_proxy::{CutPoint, CuttingProxy};

    // Only some packets by default. `PIECES_APART=1` tries all, in a few minutes.
    let apart = std::env::var("PIECES_APART").map_or(5, |text| text.parse().unwrap());
    let store = database.open().await;
    for (cut, begin) in [(CutPoint::Before, 1), (CutPoint::Behind, 1 + apart / 2)] {
        let mut admitted = 0;
        for number in (begin..).step_by(apart) {
            // Opening is not part of the scenario: it reads the schema and is retried as a whole.
            let wire = CuttingProxy::to(database.server(), usize::MAX, cut).await;
            let opened = Store::open(&database.url_by(wire.address)).await.unwrap();
            opened.close().await;
            let before = wire.sent();
            let wire = CuttingProxy::to(database.server(), before + number, cut).await;
            let first = Store::open(&database.url_by(wire.address)).await.unwrap();
            // Messages are lost only by the cut.
            let (_, calls) = scenario_over(&database, &store, &first, 0, MessageFate::Lost).await;
            admitted += calls;
            first.close().await;
            if wire.sent() < before + number {
                assert!(number > 60, "only {number} packets were sent");
                break;
            }
        }
        assert!(admitted > 0, "{cut:?}");
        let (proofs, _) = store.verify().await.unwrap();
        for proof in proofs {
            assert!(proof.violations.is_empty(), "{cut:?}: {proof:?}");
        }
    }
    store.close().await;
}
