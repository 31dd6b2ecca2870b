//! Periodic budgets are never exceeded, by concurrent calls or at the change of the period.

use canon::{Micros, Money};
use ledger::{
    Budget, BudgetPeriod, Clock as _, HoldRecord, HoldTicket, KeyBalance, LedgerEntry, MemoryDisk,
    OpenCalls, OverBudget, TestClock,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cluster::run;

const TEN_SECONDS: Micros = Micros::from_secs(10);
/// Ten seconds before midnight.
const EVENING: Micros = Micros::from_days(20_000).saturating_sub(TEN_SECONDS);

fn held(id: u32) -> Arc<HoldRecord> {
    Arc::new(HoldRecord {
        request_id: format!("r{id}"),
        key_id: "k".to_owned(),
        account_id: "a".to_owned(),
        at: Micros::ZERO,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        stream: false,
        price_version: "1".to_owned(),
        lease: None,
        ..HoldRecord::default()
    })
}

/// Reserves money as the gateway does: from the budget first, then from the key's balance.
fn hold(
    (book, balance, budget): (&Arc<OpenCalls>, &Arc<KeyBalance>, &Budget),
    at: Micros,
    id: u32,
    full: Money,
    least: Money,
) -> Result<HoldTicket, OverBudget> {
    let share = budget.reserve(at, full, least)?;
    let ticket =
        run(book.hold(balance, held(id), share.amount(), least).unwrap().written()).unwrap();
    Ok(ticket.with_share(share))
}

fn costing(ticket: HoldTicket, nanos: i64) {
    ticket.settle(LedgerEntry { cost: Money::from_nanos(nanos), ..LedgerEntry::default() });
}

fn book(at: Micros) -> (Arc<TestClock>, Arc<OpenCalls>) {
    let clock = Arc::new(TestClock::at(at));
    let passed: Arc<dyn ledger::Clock> = Arc::clone(&clock) as _;
    let opened = OpenCalls::open(passed, Arc::new(MemoryDisk::default())).unwrap();
    (clock, opened.book)
}

#[test]
fn a_call_is_charged_in_the_period_in_which_it_was_admitted() {
    let (clock, book) = book(EVENING);
    let balance = KeyBalance::new("k", None, Money::ZERO);
    let budget =
        Budget::new(Money::from_nanos(100), BudgetPeriod::Day, Money::from_nanos(20), clock.now());
    let (all, least) = (Money::from_nanos(60), Money::from_nanos(60));
    let from = (&book, &balance, &*budget);
    let over_midnight = hold(from, clock.now(), 1, all, least).unwrap();
    let OverBudget { left, resets } = hold(from, clock.now(), 2, all, least).unwrap_err();
    assert_eq!((left, resets), (Money::from_nanos(20), EVENING + TEN_SECONDS));
    assert_eq!(balance.status().held, Money::from_nanos(60), "the refused call has no hold");

    clock.pass(TEN_SECONDS);
    let today = budget.status(clock.now());
    assert_eq!(today.money.remaining(), Some(Money::from_nanos(100)), "a new day, a new budget");
    costing(over_midnight, 50);
    assert_eq!(budget.status(clock.now()).money, today.money, "it is charged to the day before");
    assert_eq!(balance.status().spent, Money::from_nanos(50), "the key pays for it all the same");
    costing(hold(from, clock.now(), 3, all, least).unwrap(), 60);
    assert_eq!(budget.status(clock.now()).money.spent, Money::from_nanos(60));
}

#[test]
fn the_smaller_of_balance_and_budget_decides_and_no_reservation_stays() {
    let (clock, book) = book(EVENING);
    let balance = KeyBalance::new("k", None, Money::ZERO);
    let budget = Budget::new(Money::from_nanos(40), BudgetPeriod::Month, Money::ZERO, clock.now());
    let money = || budget.status(clock.now()).money;
    let lowered = hold(
        (&book, &balance, &budget),
        clock.now(),
        1,
        Money::from_nanos(60),
        Money::from_nanos(10),
    )
    .unwrap();
    assert_eq!(
        (lowered.amount(), balance.status().held),
        (Money::from_nanos(40), Money::from_nanos(40))
    );
    assert!(budget.reserve(clock.now(), Money::from_nanos(60), Money::from_nanos(10)).is_err());
    drop(lowered);
    assert_eq!((balance.status().held, money().held), (Money::ZERO, Money::ZERO));

    // The key had less, so the budget reserves no more than that.
    let share = budget.reserve(clock.now(), Money::from_nanos(40), Money::from_nanos(10)).unwrap();
    let least = Money::from_nanos(15);
    let pending = book.hold(&balance, held(2), least, least).unwrap();
    let ticket = run(pending.written()).unwrap().with_share(share);
    assert_eq!(money().held, least);
    costing(ticket, 5);
    assert_eq!((money().held, money().spent), (Money::ZERO, Money::from_nanos(5)));

    // A call that another limit refuses keeps no reservation.
    drop(budget.reserve(clock.now(), Money::from_nanos(20), Money::from_nanos(20)).unwrap());
    assert_eq!(money().held, Money::ZERO);
}

#[test]
fn concurrent_calls_never_exceed_a_budget() {
    const CALLERS: u32 = 16;
    let (clock, book) = book(EVENING);
    let balance = KeyBalance::new("k", None, Money::ZERO);
    let budget =
        Budget::new(Money::from_nanos(1_000), BudgetPeriod::Week, Money::ZERO, clock.now());
    let admitted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (book, balance, budget, clock, admitted) =
                (&book, &balance, &budget, &clock, &admitted);
            scope.spawn(move || {
                for call in 0..50 {
                    let id = caller * 1_000 + call;
                    let ten = Money::from_nanos(10);
                    let from = (book, balance, &**budget);
                    if let Ok(ticket) = hold(from, clock.now(), id, ten, ten) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                        costing(ticket, 10);
                    }
                    let money = budget.status(clock.now()).money;
                    assert!(money.spent.saturating_add(money.held) <= Money::from_nanos(1_000));
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), 100, "the whole budget and no more");
    assert_eq!(balance.status().spent, Money::from_nanos(1_000));
}
