//! Answers of one WebSocket that are not stored. Its next calls continue them.

use access::limits::{BufferPermit, RateLimiter};
use config::GateLimits;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use store::StoredResponse;

/// Answers that a connection remembers: one for every stream that it may have.
const MAX_ANSWERS: usize = 33;

/// Answers of one connection that are not stored. The oldest are forgotten first: a client that is told
/// `previous_response_not_found` sends its whole conversation.
pub(crate) struct ConnectionAnswers {
    limiter: Arc<RateLimiter>,
    gate: GateLimits,
    answers: Mutex<VecDeque<RecentAnswer>>,
}

struct RecentAnswer {
    answer: Arc<StoredResponse>,
    /// Memory of the answer. It is not memory of the key, whose calls would be refused because of idle
    /// connections.
    permit: BufferPermit,
}

impl ConnectionAnswers {
    pub(crate) fn new(limiter: Arc<RateLimiter>, gate: GateLimits) -> Self {
        Self { limiter, gate, answers: Mutex::default() }
    }

    /// Remembers an answer if there is memory for it.
    pub(crate) fn put(&self, answer: StoredResponse) {
        let bytes = (answer.request.len() + answer.reply.len()) as u64;
        let mut answers = self.answers.lock();
        answers.retain(|recent| recent.answer.id != answer.id);
        let held = |answers: &VecDeque<RecentAnswer>| -> u64 {
            answers.iter().map(|recent| recent.permit.held()).sum()
        };
        while answers.len() >= MAX_ANSWERS || held(&answers) + bytes > self.gate.body {
            if answers.pop_front().is_none() {
                return;
            }
        }
        // Half of the memory stays free for bodies.
        if self.limiter.buffered_bytes() + bytes > self.gate.buffered / 2 {
            return;
        }
        let permit = self.limiter.buffer_permit(&Arc::default(), &self.gate);
        if permit.grow(bytes).is_ok() {
            answers.push_back(RecentAnswer { answer: Arc::new(answer), permit });
        }
    }

    /// Returns an answer of this connection.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<StoredResponse>> {
        let answers = self.answers.lock();
        let found = answers.iter().rev().find(|recent| recent.answer.id == id);
        found.map(|recent| Arc::clone(&recent.answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Micros;
    use ledger::SystemClock;

    fn answer(id: &str, bytes: usize) -> StoredResponse {
        StoredResponse {
            id: id.to_owned(),
            account_id: "ada".to_owned(),
            key_id: None,
            request: "x".repeat(bytes),
            reply: String::new(),
            created: Micros::default(),
            expires: Micros::default(),
        }
    }

    #[test]
    fn the_oldest_answers_are_forgotten_and_their_memory_is_freed() {
        let limiter = Arc::new(RateLimiter::new(Arc::new(SystemClock), None));
        let gate = GateLimits {
            body: 100,
            buffered: 240,
            buffered_per_key: 240,
            free_rpm: 1,
            free_running: 1,
            public_rpm: 1,
            public_running: 1,
        };
        let answers = ConnectionAnswers::new(Arc::clone(&limiter), gate);
        answers.put(answer("a", 60));
        answers.put(answer("b", 30));
        assert!(answers.get("a").is_some() && answers.get("b").is_some());
        answers.put(answer("c", 20));
        assert!(answers.get("a").is_none() && answers.get("b").is_some());
        answers.put(answer("d", 101));
        assert!(answers.get("d").is_none(), "larger than a body");
        assert_eq!(limiter.buffered_bytes(), 0, "and what made room for it is gone");
        for number in 0..200 {
            answers.put(answer(&number.to_string(), 1));
        }
        assert_eq!(limiter.buffered_bytes(), MAX_ANSWERS as u64);
        let other = ConnectionAnswers::new(Arc::clone(&limiter), gate);
        other.put(answer("e", 90));
        assert!(other.get("e").is_none(), "half of the memory is for bodies");
        drop(answers);
        other.put(answer("e", 90));
        assert!(other.get("e").is_some());
    }
}
