//! Connections of nodes to the store in memory, with faults: a message is lost, its answer is lost, it is
//! duplicated or delayed.

use canon::Micros;
use ledger::{
    ClosedCounts, HeartbeatReply, HeartbeatReport, KeyStatus, LeaseGrant, LeaseRequest,
    LeaseReturn, LeaseStore, LeaseStoreError, MarkRaise, Node, PostedBatch, PostedMark,
    SettledCall, StoreRollback,
};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::memory_store::{Answer, MemoryStore, Message};
use crate::seeded_random::SeededRandom;

/// The faults of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageFate {
    /// Number of times the sender is polled before and after the store acts.
    pub(crate) waits: [usize; 2],
    pub(crate) lost: bool,
    pub(crate) late: bool,
    pub(crate) twice: bool,
    pub(crate) answer_lost: bool,
}

/// Chooses the faults of every message of a node.
#[derive(Debug)]
pub(crate) enum LineFaults {
    Fine,
    /// Nothing arrives.
    Cut,
    /// Requests for money fail, as on a disk without room for a row.
    NoGrants,
    /// Requests for money have no answer, as while another process keeps a lock.
    SilentGrants,
    /// The key of a request for money does not exist.
    UnknownKey,
    /// Faults are random.
    Rough(SeededRandom),
    /// The message with that number has these faults.
    Nth {
        number: usize,
        count: usize,
        fate: MessageFate,
    },
}

impl LineFaults {
    fn fate(&mut self) -> MessageFate {
        match self {
            Self::Fine | Self::NoGrants | Self::SilentGrants | Self::UnknownKey => {
                MessageFate::default()
            }
            Self::Cut => MessageFate { lost: true, ..MessageFate::default() },
            Self::Rough(random) => MessageFate {
                waits: [random.below(3), random.below(3)],
                lost: random.percent(8),
                late: random.percent(30),
                twice: random.percent(5),
                answer_lost: random.percent(8),
            },
            Self::Nth { number, count, fate } => {
                *count += 1;
                if count == number { *fate } else { MessageFate::default() }
            }
        }
    }
}

/// A node's connection to the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreLine {
    pub(crate) store: Arc<Mutex<MemoryStore>>,
    pub(crate) faults: Arc<Mutex<LineFaults>>,
}

async fn wait(times: usize) {
    let mut left = times;
    poll_fn(|_| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

impl StoreLine {
    async fn say(&self, message: Message) -> Result<Answer, LeaseStoreError> {
        let away = || LeaseStoreError::Unreachable("lost".to_owned());
        let fate = self.faults.lock().fate();
        wait(fate.waits[0]).await;
        if fate.lost {
            // A node always waits for the answers to these two.
            let awaited = matches!(message, Message::Enter(_) | Message::Leave(_));
            if fate.late && !awaited {
                self.store.lock().late.push(message);
            }
            return Err(away());
        }
        let answer = self.store.lock().apply(&message);
        if fate.twice {
            drop(self.store.lock().apply(&message));
        }
        wait(fate.waits[1]).await;
        if fate.answer_lost {
            return Err(away());
        }
        answer
    }
}

fn odd<T>(answer: &Answer) -> Result<T, LeaseStoreError> {
    panic!("no answer to that: {answer:?}")
}

impl LeaseStore for StoreLine {
    async fn enter(&self, id: &str) -> Result<Node, LeaseStoreError> {
        match self.say(Message::Enter(id.to_owned())).await? {
            Answer::Node(node) => Ok(node),
            other => odd(&other),
        }
    }

    async fn leave(&self, node: &Node) -> Result<(), LeaseStoreError> {
        self.say(Message::Leave(node.clone())).await.map(drop)
    }

    async fn grant(&self, ask: &LeaseRequest) -> Result<LeaseGrant, LeaseStoreError> {
        let is_silent = match &*self.faults.lock() {
            LineFaults::NoGrants => {
                return Err(LeaseStoreError::Unreachable("the disk is full".to_owned()));
            }
            LineFaults::UnknownKey => {
                return Err(LeaseStoreError::Rejected("there is no such key".to_owned()));
            }
            LineFaults::SilentGrants => true,
            LineFaults::Fine | LineFaults::Cut | LineFaults::Rough(_) | LineFaults::Nth { .. } => {
                false
            }
        };
        if is_silent {
            std::future::pending::<()>().await;
        }
        match self.say(Message::Grant(ask.clone())).await? {
            Answer::LeaseGrant(granted) => Ok(granted),
            other => odd(&other),
        }
    }

    async fn heartbeat(&self, report: &HeartbeatReport) -> Result<HeartbeatReply, LeaseStoreError> {
        match self.say(Message::Heartbeat(report.clone())).await? {
            Answer::HeartbeatReply(tidings) => Ok(tidings),
            other => odd(&other),
        }
    }

    async fn take_back(&self, back: &LeaseReturn) -> Result<(), LeaseStoreError> {
        self.say(Message::TakeBack(*back)).await.map(drop)
    }

    async fn post(
        &self,
        settled: &[SettledCall],
        raise: Option<&MarkRaise>,
    ) -> Result<PostedBatch, LeaseStoreError> {
        match self.say(Message::Post(settled.to_vec(), raise.cloned())).await? {
            Answer::Posted(batch) => Ok(batch),
            other => odd(&other),
        }
    }

    async fn posted_mark(&self, id: &str) -> Result<PostedMark, LeaseStoreError> {
        match self.say(Message::Mark(id.to_owned())).await? {
            Answer::Mark(mark) => Ok(mark),
            other => odd(&other),
        }
    }

    async fn mark_posted(&self, raise: &MarkRaise, posted: i64) -> Result<bool, LeaseStoreError> {
        match self.say(Message::MarkPosted(raise.clone(), posted)).await? {
            Answer::Known(is_known) => Ok(is_known),
            other => odd(&other),
        }
    }

    async fn note_rollback(
        &self,
        _id: &str,
        rollback: StoreRollback,
        is_expected: bool,
    ) -> Result<(), LeaseStoreError> {
        self.say(Message::NoteRollback(rollback, is_expected)).await.map(drop)
    }

    async fn key_status(
        &self,
        key_id: &str,
        node: &Node,
    ) -> Result<Option<KeyStatus>, LeaseStoreError> {
        let store = self.store.lock();
        let held =
            store.holds.values().filter(|(id, call)| *id != node.id && call.held.key_id == key_id);
        let held_elsewhere = held.map(|(_, call)| call.held.amount).sum();
        Ok(store.keys.get(key_id).map(|key| KeyStatus {
            cap: key.cap,
            spent: key.spent,
            held_elsewhere,
            ..KeyStatus::default()
        }))
    }

    async fn close_gone(&self, now: Micros) -> Result<ClosedCounts, LeaseStoreError> {
        match self.say(Message::CloseGone(now)).await? {
            Answer::ClosedCounts(closed) => Ok(closed),
            other => odd(&other),
        }
    }
}
