//! Budgets of a period: never passed, by many at once and over the change of the period.

use canon::Money;
use ledger::{
    Book, Budget, Clock as _, Entry, Held, MemoryDisk, OverBudget, Period, Purse, TestClock, Ticket,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const DAY: i64 = 86_400_000_000;
/// Ten seconds before a midnight.
const EVENING: i64 = 20_000 * DAY - 10_000_000;

fn held(id: u32) -> Arc<Held> {
    Arc::new(Held {
        request_id: format!("r{id}"),
        key_id: "k".to_owned(),
        account_id: "a".to_owned(),
        at: 0,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        stream: false,
        price_version: "1".to_owned(),
        lease: None,
    })
}

/// A hold as the flow takes it: of the budget first, then of the purse.
fn hold(
    (book, purse, budget): (&Arc<Book>, &Arc<Purse>, &Budget),
    at: i64,
    id: u32,
    full: Money,
    least: Money,
) -> Result<Ticket, OverBudget> {
    let share = budget.take(at, full, least)?;
    let ticket = book.hold(purse, held(id), share.amount(), least).unwrap();
    Ok(ticket.with(share))
}

fn costing(ticket: Ticket, nanos: i64) {
    ticket.settle(Entry { cost: Money::nanos(nanos), ..Entry::default() });
}

fn book(at: i64) -> (Arc<TestClock>, Arc<Book>) {
    let clock = Arc::new(TestClock::at(at));
    let passed: Arc<dyn ledger::Clock> = Arc::clone(&clock) as _;
    let opened = Book::open(passed, Arc::new(MemoryDisk::default())).unwrap();
    (clock, opened.book)
}

#[test]
fn a_call_is_charged_in_the_period_in_which_it_was_admitted() {
    let (clock, book) = book(EVENING);
    let purse = Purse::new("k", None, Money::ZERO);
    let budget = Budget::new(Money::nanos(100), Period::Day, Money::nanos(20), clock.now());
    let (all, least) = (Money::nanos(60), Money::nanos(60));
    let from = (&book, &purse, &*budget);
    let over_midnight = hold(from, clock.now(), 1, all, least).unwrap();
    let OverBudget { left, resets } = hold(from, clock.now(), 2, all, least).unwrap_err();
    assert_eq!((left, resets), (Money::nanos(20), EVENING + 10_000_000));
    assert_eq!(purse.standing().held, Money::nanos(60), "the refused call holds nothing");

    clock.pass(10_000_000);
    let today = budget.standing(clock.now());
    assert_eq!(today.money.remaining(), Some(Money::nanos(100)), "a new day, a new budget");
    costing(over_midnight, 50);
    assert_eq!(budget.standing(clock.now()).money, today.money, "it was yesterday's call");
    assert_eq!(purse.standing().spent, Money::nanos(50), "but the key has paid for it");
    costing(hold(from, clock.now(), 3, all, least).unwrap(), 60);
    assert_eq!(budget.standing(clock.now()).money.spent, Money::nanos(60));
}

#[test]
fn the_smaller_of_purse_and_budget_decides_and_nothing_stays_set_aside() {
    let (clock, book) = book(EVENING);
    let purse = Purse::new("k", None, Money::ZERO);
    let budget = Budget::new(Money::nanos(40), Period::Month, Money::ZERO, clock.now());
    let money = || budget.standing(clock.now()).money;
    let lowered =
        hold((&book, &purse, &budget), clock.now(), 1, Money::nanos(60), Money::nanos(10)).unwrap();
    assert_eq!((lowered.amount(), purse.standing().held), (Money::nanos(40), Money::nanos(40)));
    assert!(budget.take(clock.now(), Money::nanos(60), Money::nanos(10)).is_err());
    drop(lowered);
    assert_eq!((purse.standing().held, money().held), (Money::ZERO, Money::ZERO));

    // The purse had less: the budget sets aside no more than that.
    let share = budget.take(clock.now(), Money::nanos(40), Money::nanos(10)).unwrap();
    let least = Money::nanos(15);
    let ticket = book.hold(&purse, held(2), least, least).unwrap().with(share);
    assert_eq!(money().held, least);
    costing(ticket, 5);
    assert_eq!((money().held, money().spent), (Money::ZERO, Money::nanos(5)));

    // A call that is refused elsewhere leaves nothing behind.
    drop(budget.take(clock.now(), Money::nanos(20), Money::nanos(20)).unwrap());
    assert_eq!(money().held, Money::ZERO);
}

#[test]
fn many_at_once_never_pass_a_budget() {
    const CALLERS: u32 = 16;
    let (clock, book) = book(EVENING);
    let purse = Purse::new("k", None, Money::ZERO);
    let budget = Budget::new(Money::nanos(1_000), Period::Week, Money::ZERO, clock.now());
    let admitted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (book, purse, budget, clock, admitted) =
                (&book, &purse, &budget, &clock, &admitted);
            scope.spawn(move || {
                for call in 0..50 {
                    let id = caller * 1_000 + call;
                    let ten = Money::nanos(10);
                    let from = (book, purse, &**budget);
                    if let Ok(ticket) = hold(from, clock.now(), id, ten, ten) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                        costing(ticket, 10);
                    }
                    let money = budget.standing(clock.now()).money;
                    assert!(money.spent.saturating_add(money.held) <= Money::nanos(1_000));
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), 100, "all of it, and not a call more");
    assert_eq!(purse.standing().spent, Money::nanos(1_000));
}
