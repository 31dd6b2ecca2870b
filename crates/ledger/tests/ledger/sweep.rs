//! Every single call to the bank and to the disk fails once, in every way it can.

use ledger::{Disk, MemoryDisk};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::vault::{Fate, Weather};
use crate::world::World;

/// A day in the life of two nodes; the first one has that disk and that weather.
fn day(world: &mut World, disk: Option<Arc<dyn Disk>>) {
    match disk {
        Some(disk) => {
            world.start_on(0, disk);
        }
        None => {
            world.start(0);
        }
    }
    assert!(world.start(1));
    let work = |world: &mut World, which: usize, rounds: usize| {
        for round in 0..rounds {
            world.call(which, 0, 100, 10);
            world.call(which, 0, 100, 10);
            world.call(which, 1, 100, 10);
            world.progress(which, 0, 20);
            world.pass(1_200_000);
            world.tend(which);
            world.settle(which, 0, 40 + round as i64);
            world.post(which);
            world.settle(which, 1, 130);
            world.close_gone(which);
            world.finish(which);
            world.check();
        }
    };
    work(world, 0, 3);
    work(world, 1, 2);
    world.pass(2_000_000);
    work(world, 0, 2);
    world.kill(0);
    world.check();
    world.pass(45_000_000);
    work(world, 1, 2);
    if !world.start(0) {
        // What kept it from starting is over by now.
        assert!(world.start(0));
    }
    work(world, 0, 2);
}

fn world() -> World {
    World::new(2, &[Some(1_500), None])
}

#[test]
fn every_message_to_the_bank_may_fail_once() {
    let fates = [
        Fate { lost: true, ..Fate::default() },
        Fate { lost: true, late: true, ..Fate::default() },
        Fate { answer_lost: true, ..Fate::default() },
        Fate { twice: true, ..Fate::default() },
        Fate { twice: true, answer_lost: true, ..Fate::default() },
    ];
    for fate in fates {
        let mut swept = 0;
        for number in 1.. {
            let mut world = world();
            let weather = world.machines[0].weather.clone();
            *weather.lock() = Weather::Nth { number, count: 0, fate };
            day(&mut world, None);
            let count = match &*weather.lock() {
                Weather::Nth { count, .. } => *count,
                Weather::Fine | Weather::Cut | Weather::Rough(_) => 0,
            };
            world.wind_up();
            swept = number;
            if number > count {
                break;
            }
        }
        assert!(swept > 30, "only {swept} messages were sent");
    }
}

/// A disk whose call with that number fails, and all that follow for as long as it is to stay so.
struct Flaky {
    inner: Arc<MemoryDisk>,
    from: usize,
    lasts: usize,
    count: Arc<AtomicUsize>,
}

impl Flaky {
    fn ask(&self) -> io::Result<&MemoryDisk> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if (self.from..self.from + self.lasts).contains(&number) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(&self.inner)
    }
}

impl Disk for Flaky {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.ask()?.append(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.ask()?.sync()
    }

    fn begin(&self) -> io::Result<u64> {
        self.ask()?.begin()
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        self.ask()?.segments()
    }

    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        self.ask()?.read(segment)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.ask()?.remove(segment)
    }
}

#[test]
fn every_call_to_the_disk_may_fail_once_or_for_a_while() {
    for lasts in [1, 2, 7] {
        let mut swept = 0;
        for from in 1.. {
            let mut world = world();
            let count = Arc::new(AtomicUsize::new(0));
            let inner = world.machines[0].memory.clone();
            let flaky = Flaky { inner, from, lasts, count: count.clone() };
            day(&mut world, Some(Arc::new(flaky)));
            world.wind_up();
            swept = from;
            if from > count.load(Ordering::Relaxed) {
                break;
            }
        }
        assert!(swept > 20, "only {swept} calls were made");
    }
}
