//! The wait for bytes of a caller beside other work.
//!
//! The task of a connection wakes for many reasons while a request is served: its provider sent
//! something, a timer fired. The alarm tells whether the socket woke it, so that the socket is asked
//! only then.

use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Tells whether a socket may have something to read.
pub(super) struct ReadAlarm {
    signal: Arc<ReadSignal>,
    /// Waker that sounds the alarm.
    waker: Waker,
}

#[derive(Default)]
struct ReadSignal {
    is_due: AtomicBool,
    task: AtomicWaker,
}

impl Default for ReadAlarm {
    fn default() -> Self {
        let signal = Arc::new(ReadSignal::default());
        Self { waker: Waker::from(Arc::clone(&signal)), signal }
    }
}

impl ReadAlarm {
    /// Makes the next wait ask the socket. Called where another waker may have taken the place of the
    /// alarm at the socket.
    pub(super) fn reset(&self) {
        self.signal.is_due.store(true, Ordering::Release);
    }

    /// Polls a read of the socket if it may have something to read. The task wakes when it has.
    pub(super) fn poll<T>(
        &self,
        cx: &Context<'_>,
        read: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // Registered first, so that no alarm is missed.
        self.signal.task.register(cx.waker());
        if !self.signal.is_due.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let polled = read(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            // The socket keeps a waker only after a read that waits.
            self.reset();
        }
        polled
    }
}

impl Wake for ReadSignal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker;
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_socket_is_asked_once_and_again_after_each_alarm() {
        let alarm = ReadAlarm::default();
        let (task, reads) = (Arc::new(Count(AtomicUsize::new(0))), Cell::new(0));
        let task_waker = Waker::from(Arc::clone(&task));
        let socket = Cell::new(noop_waker());
        let poll = |answer: Poll<()>| {
            alarm.poll(&Context::from_waker(&task_waker), |cx| {
                reads.set(reads.get() + 1);
                socket.set(cx.waker().clone());
                answer
            })
        };
        assert!(poll(Poll::Pending).is_pending());
        assert_eq!(reads.get(), 0, "nobody has asked for a wait yet");
        alarm.reset();
        for _ in 0..3 {
            assert!(poll(Poll::Pending).is_pending());
        }
        assert_eq!(reads.get(), 1);
        socket.replace(noop_waker()).wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1, "the task wakes");
        assert!(poll(Poll::Ready(())).is_ready());
        assert!(poll(Poll::Ready(())).is_ready(), "a read that did not wait is repeated");
        assert_eq!(reads.get(), 3);
        assert!(poll(Poll::Pending).is_pending());
        assert!(poll(Poll::Pending).is_pending());
        assert_eq!(reads.get(), 4);
    }
}
