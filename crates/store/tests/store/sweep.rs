//! Every single message of a node to the store fails once, in every way it can: it is lost, its
//! answer is lost, it comes twice. The cap holds throughout, and no call is lost or doubled.

use std::sync::Arc;

use canon::{Money, Usage};
use ledger::{
    Ask, Bank, BankError, Book, Closed, Entry, GiveBack, Granted, Held, KeyStanding, MemoryDisk,
    Micros, Node, Progress, Purse, Report, Settled, Teller, TestClock, Ticket, Tidings,
};
use std::sync::Mutex;
use store::{KeyRecord, Store};

use crate::on_both;
use crate::place::Place;
use crate::samples::{account, entry, id, key};

on_both!(every_message_to_the_store_may_fail_once);

const CAP: i64 = 1_500;

#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    AnswerLost,
    Twice,
}

/// Which message fails, and how many there were.
#[derive(Debug)]
struct Weather {
    number: usize,
    count: usize,
    fate: Fate,
}

/// The line between a node and the store.
#[derive(Clone)]
struct Line {
    store: Store,
    weather: Arc<Mutex<Weather>>,
}

impl Line {
    async fn carry<T, F: Future<Output = Result<T, BankError>> + Send>(
        &self,
        message: impl Fn() -> F + Send,
    ) -> Result<T, BankError> {
        let fate = {
            let mut weather = self.weather.lock().unwrap();
            weather.count += 1;
            (weather.count == weather.number).then_some(weather.fate)
        };
        match fate {
            None => message().await,
            Some(Fate::Lost) => Err(BankError::Away("lost".to_owned())),
            Some(Fate::AnswerLost) => {
                drop(message().await);
                Err(BankError::Away("its answer is lost".to_owned()))
            }
            Some(Fate::Twice) => {
                drop(message().await);
                message().await
            }
        }
    }
}

impl Bank for Line {
    async fn enter(&self, id: &str) -> Result<Node, BankError> {
        self.carry(|| Bank::enter(&self.store, id)).await
    }

    async fn leave(&self, node: &Node) -> Result<(), BankError> {
        self.carry(|| Bank::leave(&self.store, node)).await
    }

    async fn grant(&self, ask: &Ask) -> Result<Granted, BankError> {
        self.carry(|| Bank::grant(&self.store, ask)).await
    }

    async fn tend(&self, report: &Report) -> Result<Tidings, BankError> {
        self.carry(|| Bank::tend(&self.store, report)).await
    }

    async fn take_back(&self, back: &GiveBack) -> Result<(), BankError> {
        self.carry(|| Bank::take_back(&self.store, back)).await
    }

    async fn post(&self, settled: &[Settled]) -> Result<usize, BankError> {
        self.carry(|| Bank::post(&self.store, settled)).await
    }

    async fn standing(&self, key_id: &str, node: &Node) -> Result<Option<KeyStanding>, BankError> {
        self.carry(|| Bank::standing(&self.store, key_id, node)).await
    }

    async fn close_gone(&self, now: Micros) -> Result<Closed, BankError> {
        self.carry(|| Bank::close_gone(&self.store, now)).await
    }
}

/// A machine on which a node may run, with a disk that stays.
struct Machine {
    line: Line,
    name: String,
    clock: Arc<TestClock>,
    disk: Arc<MemoryDisk>,
    purse: Arc<Purse>,
    key: KeyRecord,
    admitted: Vec<String>,
}

impl Machine {
    async fn try_start(&mut self) -> Result<Teller<Line>, BankError> {
        let opened = Book::open(self.clock.clone(), self.disk.clone()).unwrap();
        self.purse = Purse::new(&self.key.id, self.key.cap, Money::ZERO);
        Teller::open(opened, self.line.clone(), self.clock.clone(), &self.name).await
    }

    /// Starts; only one message fails, so the second try works.
    async fn start(&mut self) -> Teller<Line> {
        match self.try_start().await {
            Ok(teller) => teller,
            Err(_) => {
                self.disk = Arc::new(self.disk.after_crash());
                self.try_start().await.unwrap()
            }
        }
    }

    async fn call(&mut self, teller: &Teller<Line>) -> Option<(String, Ticket)> {
        let request_id = id();
        let held = Held {
            request_id: request_id.clone(),
            key_id: self.key.id.clone(),
            account_id: self.key.account_id.clone(),
            at: 0,
            amount: Money::ZERO,
            dialect: "chat".to_owned(),
            model: "m".to_owned(),
            stream: true,
            price_version: "p".to_owned(),
            lease: None,
        };
        let (full, least) = (Money::nanos(100), Money::nanos(10));
        let ticket = teller.hold(&self.purse, Arc::new(held), full, least).await.ok()?;
        self.admitted.push(request_id.clone());
        Some((request_id, ticket))
    }

    fn settle(&self, call: Option<(String, Ticket)>, cost: i64) {
        if let Some((request_id, ticket)) = call {
            let done = entry(&request_id, &self.key, cost, 50);
            ticket.settle(Entry { price_version: "p".to_owned(), ..done });
        }
    }

    /// A second of work; what fails is done in the next one.
    async fn work(&mut self, teller: &Teller<Line>) {
        let (first, second) = (self.call(teller).await, self.call(teller).await);
        if let Some((_, ticket)) = &first {
            let usage = Usage { input: 3, output: 2, ..Usage::default() };
            let cost = Money::nanos(20);
            ticket.progress(Progress { lane: "l".to_owned(), usage, cost });
        }
        self.clock.pass(1_200_000);
        drop(teller.tend().await);
        self.settle(first, 40);
        drop(teller.post().await);
        self.settle(second, 130);
        drop(teller.standing(&self.purse).await);
        drop(teller.close_gone().await);
    }

    /// The cap holds, and the key's words are its sums.
    async fn holds(&self) {
        let totals = self.line.store.lease_totals().await.unwrap();
        for total in totals.iter().filter(|total| total.key_id == self.key.id) {
            assert_eq!(total.leased, total.leases, "{total:?}");
            assert!(total.spent.as_nanos() + total.leased.as_nanos() <= CAP, "{total:?}");
        }
    }
}

/// A day in the life of two nodes, of which the first meets that weather; how many messages it
/// sent.
async fn day(place: &Place, store: &Store, number: usize, fate: Fate) -> usize {
    let (weather, _) = day_of(place, store, store, number, fate).await;
    weather
}

/// The same, with a way of its own to the store for the first one.
async fn day_of(
    place: &Place,
    store: &Store,
    of_first: &Store,
    number: usize,
    fate: Fate,
) -> (usize, usize) {
    let owner = account(&id());
    store.add_account(&owner).await.unwrap();
    let key = KeyRecord { cap: Some(Money::nanos(CAP)), ..key(&owner.id) };
    store.add_key(&key).await.unwrap();
    let machine = |number, store: &Store| {
        let weather = Arc::new(Mutex::new(Weather { number, count: 0, fate }));
        Machine {
            line: Line { store: store.clone(), weather },
            name: id(),
            clock: Arc::new(TestClock::at(1_000)),
            disk: Arc::default(),
            purse: Purse::new(&key.id, key.cap, Money::ZERO),
            key: key.clone(),
            admitted: vec![],
        }
    };
    // The second one's line never fails: there is no message of that number.
    let (mut one, mut two) = (machine(number, of_first), machine(0, store));
    let (first, second) = (one.start().await, two.start().await);
    one.work(&first).await;
    two.work(&second).await;
    two.holds().await;
    one.work(&first).await;
    two.holds().await;
    // The first dies in the middle of a call, and a minute passes.
    let open = one.call(&first).await;
    one.clock.pass(1_200_000);
    drop(first.tend().await);
    one.disk = Arc::new(one.disk.after_crash());
    std::mem::forget(open);
    drop(first);
    place.meddle("UPDATE leases SET expires = expires - 60000000").await;
    place.meddle("UPDATE nodes SET seen = seen - 60000000").await;
    second.tend().await.unwrap();
    two.work(&second).await;
    two.holds().await;
    let first = one.start().await;
    one.work(&first).await;
    two.holds().await;
    two.work(&second).await;
    two.holds().await;
    for (machine, teller) in [(&one, &first), (&two, &second)] {
        for _ in 0..3 {
            machine.clock.pass(1_200_000);
            drop(teller.tend().await);
            drop(teller.post().await);
        }
        if teller.leave().await.is_err() {
            teller.leave().await.unwrap();
        }
    }
    two.holds().await;
    for request_id in one.admitted.iter().chain(&two.admitted) {
        let found = store.entry(request_id).await.unwrap();
        let entry = found.expect("every admitted call is on the books");
        assert!(entry.cost <= Money::nanos(100), "{entry:?}");
    }
    let sent = one.line.weather.lock().unwrap().count;
    (sent, one.admitted.len())
}

async fn every_message_to_the_store_may_fail_once(place: Arc<Place>) {
    let store = place.open().await;
    for fate in [Fate::Lost, Fate::AnswerLost, Fate::Twice] {
        let mut swept = 0;
        for number in 1.. {
            let count = day(&place, &store, number, fate).await;
            swept = number;
            if number > count {
                break;
            }
        }
        assert!(swept > 15, "only {swept} messages were sent");
        let (proofs, _) = store.prove().await.unwrap();
        for proof in proofs {
            assert!(proof.broken.is_empty(), "{fate:?}: {proof:?}");
        }
        // What a lost answer left leased runs out and is closed by whoever comes.
        place.meddle("UPDATE leases SET expires = expires - 90000000000").await;
        store.close_gone(1).await.unwrap();
        let left = store.lease_totals().await.unwrap();
        assert!(left.iter().all(|total| total.leased == Money::ZERO), "{fate:?}: {left:?}");
    }
    store.close().await;
}

#[cfg(feature = "postgres-tests")]
#[test]
fn any_piece_on_the_way_to_postgresql_may_be_the_last() {
    crate::place::run(Place::postgres(), any_piece_may_be_the_last);
}

#[cfg(feature = "postgres-tests")]
async fn any_piece_may_be_the_last(place: Arc<Place>) {
    use crate::cut::{Cut, Wire};

    // Some of them as a rule; `PIECES_APART=1` is all, in a few minutes.
    let apart = std::env::var("PIECES_APART").map_or(5, |text| text.parse().unwrap());
    let store = place.open().await;
    for (cut, begin) in [(Cut::Before, 1), (Cut::Behind, 1 + apart / 2)] {
        let mut admitted = 0;
        for number in (begin..).step_by(apart) {
            // Opening is not of the day: it looks at the schema, and is tried again as a whole.
            let wire = Wire::to(place.server(), usize::MAX, cut).await;
            let opened = Store::open(&place.url_by(wire.address)).await.unwrap();
            opened.close().await;
            let before = wire.sent();
            let wire = Wire::to(place.server(), before + number, cut).await;
            let first = Store::open(&place.url_by(wire.address)).await.unwrap();
            // No message of the bank's is lost but by the cut.
            let (_, calls) = day_of(&place, &store, &first, 0, Fate::Lost).await;
            admitted += calls;
            first.close().await;
            if wire.sent() < before + number {
                assert!(number > 60, "only {number} pieces were sent");
                break;
            }
        }
        assert!(admitted > 0, "{cut:?}");
        let (proofs, _) = store.prove().await.unwrap();
        for proof in proofs {
            assert!(proof.broken.is_empty(), "{cut:?}: {proof:?}");
        }
    }
    store.close().await;
}
