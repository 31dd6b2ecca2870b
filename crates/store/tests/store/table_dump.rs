//! Copies of a PostgreSQL database as rows, and databases that are filled with one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use canon::Money;
use store::{DumpSink, DumpSource, DumpedTable, KeyRecord, Store, StoreError};

use crate::samples::{account, entry, id, key};
use crate::test_database::{TestDatabase, run};

/// A copy in memory.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct MemoryDump(VecDeque<(DumpedTable, Vec<Vec<u8>>)>);

impl DumpSink for MemoryDump {
    fn begin_table(&mut self, table: &DumpedTable) -> io::Result<()> {
        self.0.push_back((table.clone(), Vec::new()));
        Ok(())
    }

    fn add_rows(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.back_mut().unwrap().1.push(bytes.to_vec());
        Ok(())
    }
}

/// Hands out a copy, in small pieces.
struct MemorySource {
    dump: MemoryDump,
    rows: VecDeque<Vec<u8>>,
    /// Number of pieces after which it fails.
    fails_after: usize,
}

impl DumpSource for MemorySource {
    fn next_table(&mut self) -> io::Result<Option<DumpedTable>> {
        let Some((table, rows)) = self.dump.0.pop_front() else { return Ok(None) };
        self.rows = rows.concat().chunks(7).map(<[u8]>::to_vec).collect();
        Ok(Some(table))
    }

    fn next_rows(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.fails_after == 0 {
            return Err(io::Error::other("the disk is gone"));
        }
        self.fails_after -= 1;
        Ok(self.rows.pop_front())
    }
}

fn source(dump: &MemoryDump, fails_after: usize) -> MemorySource {
    MemorySource { dump: dump.clone(), rows: VecDeque::new(), fails_after }
}

async fn dump(store: &Store) -> (i64, MemoryDump) {
    let mut dump = MemoryDump::default();
    let schema = store.dump_tables(&mut dump).await.unwrap();
    (schema, dump)
}

async fn a_copy_fills_an_empty_database_and_equals_it(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("name with \t tab, \n line end, \\ backslash and \u{2764}");
    store.add_account(&owner).await.unwrap();
    let record = KeyRecord { cap: Some(Money::from_nanos(1_000)), ..key(&owner.id) };
    store.add_key(&record).await.unwrap();
    let calls: Vec<_> = (0..50).map(|_| entry(&id(), &record, 3, 5)).collect();
    store.post(&calls).await.unwrap();
    let (schema, copy) = dump(&store).await;
    assert!(copy.0.len() > 30, "{} tables", copy.0.len());

    run_beside(async |other: Arc<TestDatabase>| {
        // A failure in the middle leaves it empty.
        let broken = Store::load_tables(&other.url(), schema, &mut source(&copy, 40)).await;
        assert!(broken.unwrap_err().to_string().contains("the disk is gone"));
        Store::require_empty(&other.url()).await.unwrap();
        let future = Store::load_tables(&other.url(), 9_999, &mut source(&copy, 0)).await;
        assert!(matches!(future, Err(StoreError::Newer { found: 9_999, .. })));

        Store::load_tables(&other.url(), schema, &mut source(&copy, usize::MAX)).await.unwrap();
        let filled = other.open().await;
        assert_eq!(dump(&filled).await, (schema, copy.clone()));
        // It goes on: counters and triggers work.
        let more: Vec<_> = (0..5).map(|_| entry(&id(), &record, 3, 5)).collect();
        assert_eq!(filled.post(&more).await.unwrap(), 5);
        assert_eq!(filled.post(&calls).await.unwrap(), 0, "they are known");
        let (proofs, count) = filled.verify().await.unwrap();
        assert_eq!(count, 55);
        assert!(proofs.iter().all(|proof| proof.violations.is_empty()), "{proofs:?}");
        other.try_execute_raw("DELETE FROM call_ids").await.unwrap_err();
        filled.close().await;
        let full = Store::load_tables(&other.url(), schema, &mut source(&copy, usize::MAX)).await;
        assert!(full.unwrap_err().to_string().contains("make an empty one"));
    })
    .await;
    store.close().await;
}

/// Runs a test with a second database.
async fn run_beside(test: impl AsyncFn(Arc<TestDatabase>)) {
    let other = Arc::new(TestDatabase::postgres());
    other.prepare().await;
    test(other.clone()).await;
    other.clear().await;
}

#[test]
fn postgres_copy() {
    run(TestDatabase::postgres(), a_copy_fills_an_empty_database_and_equals_it);
}
