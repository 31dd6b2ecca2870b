//! Times of orders: when a certificate is renewed, and when a failed order is repeated.

use aws_lc_rs::rand;
use canon::Micros;
use config::CertificateValidity;

/// Delay after the first failure. With it an hour has at most five failures, which is what Let's Encrypt
/// allows (<https://letsencrypt.org/docs/rate-limits/#authorization-failures-per-identifier-per-account>).
const FIRST_DELAY: Micros = Micros::from_secs(120);
/// Longest delay while the listener has a certificate.
const MAX_DELAY: Micros = Micros::from_hours(12);
/// The same while it has none, and nobody can connect.
const MAX_DELAY_WITHOUT: Micros = Micros::from_hours(1);
/// Shortest delay after the authority said that it was asked too often.
const RATE_LIMIT_DELAY: Micros = Micros::from_hours(1);
/// Shortest time between a certificate and the next order, and the same as a divisor of the validity.
const MIN_ORDER_PAUSE: Micros = Micros::from_secs(600);
const ORDER_PAUSE_PART: i64 = 10;
/// Largest random part of a delay, as a divisor.
const JITTER_PART: i64 = 10;
/// Accepted difference between the clock of the authority and that of this node.
const MAX_CLOCK_SKEW: Micros = Micros::from_secs(300);
/// Parts per million.
const MILLION: i64 = 1_000_000;

/// Facts of a failed order that decide when the next one is.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderFailure {
    /// Number of failures in a row before this one.
    pub(super) failures: u32,
    /// True if the listener has a certificate that is still valid.
    pub(super) has_certificate: bool,
    /// True if the authority said that it was asked too often.
    pub(super) is_rate_limited: bool,
}

impl OrderFailure {
    /// Returns the time until the next order: twice as long after each failure, up to a limit, and up to a
    /// tenth more by chance (in parts per million).
    pub(super) fn delay(self, chance: u32) -> Micros {
        let longest = if self.has_certificate { MAX_DELAY } else { MAX_DELAY_WITHOUT };
        let factor = 1_i64.checked_shl(self.failures.min(32)).unwrap_or(i64::MAX);
        let delay = FIRST_DELAY.get().saturating_mul(factor).min(longest.get());
        let delay = if self.is_rate_limited { delay.max(RATE_LIMIT_DELAY.get()) } else { delay };
        let chance = i64::from(chance).min(MILLION);
        Micros::new(delay + delay / JITTER_PART * chance / MILLION)
    }
}

/// Returns the time at which a certificate is renewed: after two thirds of its validity, as Let's Encrypt
/// advises (<https://letsencrypt.org/docs/integration-guide/#when-to-renew>).
fn renewal_time(begins: Micros, ends: Micros) -> Micros {
    let (begins, ends) = (i128::from(begins.get()), i128::from(ends.get()));
    let renewal = begins + (ends - begins).max(0) * 2 / 3;
    // A time between two others fits.
    Micros::new(i64::try_from(renewal).unwrap_or(i64::MAX))
}

/// Returns true if a certificate is valid later than a difference of clocks explains.
pub(super) fn begins_later(validity: CertificateValidity, now: Micros) -> bool {
    validity.begins > now + MAX_CLOCK_SKEW
}

/// Returns the time at which a certificate is due, from the one that is served. Before the first one it is due
/// always, and so it is if only one is there that is not valid yet.
pub(super) fn due_time(
    issued: Option<CertificateValidity>,
    served: Option<CertificateValidity>,
    now: Micros,
) -> Micros {
    match served.filter(|_| issued.is_some()).or(issued) {
        Some(validity) if !begins_later(validity, now) => {
            renewal_time(validity.begins, validity.ends)
        }
        Some(_) | None => Micros::ZERO,
    }
}

/// Returns the time after an issued certificate in which none is ordered, even if the certificate is due: its
/// authority may issue expired ones, and clocks may be wrong.
pub(super) fn order_pause(validity: CertificateValidity) -> Micros {
    let CertificateValidity { begins, ends } = validity;
    let part = ends.get().saturating_sub(begins.get()) / ORDER_PAUSE_PART;
    Micros::new(part.max(MIN_ORDER_PAUSE.get()))
}

/// Returns a random number of parts per million; zero if there is no randomness.
pub(super) fn random_part() -> u32 {
    let mut bytes = [0_u8; 4];
    match rand::fill(&mut bytes) {
        Ok(()) => u32::from_le_bytes(bytes) % 1_000_000,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(failures: u32, has_certificate: bool, is_rate_limited: bool) -> i64 {
        OrderFailure { failures, has_certificate, is_rate_limited }.delay(0).as_secs()
    }

    #[test]
    fn delays_double_up_to_a_limit() {
        let with: Vec<i64> = (0..12).map(|count| delay(count, true, false)).collect();
        assert_eq!(with[..5], [120, 240, 480, 960, 1_920]);
        assert_eq!(with[9..], [43_200, 43_200, 43_200]);
        assert_eq!(delay(u32::MAX, true, false), 43_200);
        assert_eq!(delay(u32::MAX, false, false), 3_600);
        // The limit of Let's Encrypt.
        let first_hour = with.iter().scan(0, |sum, one| {
            *sum += one;
            Some(*sum)
        });
        assert!(first_hour.filter(|at| *at < 3_600).count() < 5);
    }

    #[test]
    fn an_authority_that_was_asked_too_often_is_left_alone() {
        assert_eq!(delay(0, true, true), 3_600);
        assert_eq!(delay(0, false, true), 3_600);
        assert_eq!(delay(20, true, true), 43_200);
    }

    #[test]
    fn chance_adds_at_most_a_tenth() {
        let one = OrderFailure { failures: 0, has_certificate: true, is_rate_limited: false };
        assert_eq!(one.delay(1_000_000).as_secs(), 132);
        assert_eq!(one.delay(u32::MAX).as_secs(), 132);
        assert!((0..100).all(|_| random_part() < 1_000_000));
    }

    #[test]
    fn orders_have_a_pause() {
        let pause = |begins, ends| {
            let (begins, ends) = (Micros::from_secs(begins), Micros::from_secs(ends));
            order_pause(CertificateValidity { begins, ends }).as_secs()
        };
        assert_eq!(pause(0, 90 * 86_400), 9 * 86_400);
        assert_eq!(pause(0, 60), 600);
        assert_eq!(pause(60, 0), 600, "it ends before it begins");
    }

    #[test]
    fn the_served_certificate_decides_when_one_is_due() {
        let of = |begins, ends| {
            let (begins, ends) = (Micros::from_days(begins), Micros::from_days(ends));
            Some(CertificateValidity { begins, ends })
        };
        let due = |issued, served| due_time(issued, served, Micros::from_days(100));
        assert_eq!(due(None, None), Micros::ZERO);
        assert_eq!(due(None, of(90, 180)), Micros::ZERO, "it is of earlier domains");
        assert_eq!(due(of(90, 180), of(90, 180)), Micros::from_days(150));
        // The one in the database is not valid yet, so the one before is served.
        assert_eq!(due(of(200, 290), of(30, 120)), Micros::from_days(90));
        assert_eq!(due(of(200, 290), of(200, 290)), Micros::ZERO, "none is valid");
        // It is in the database, and this node cannot open it.
        assert_eq!(due(of(90, 180), None), Micros::from_days(150));
        let soon = CertificateValidity {
            begins: Micros::from_days(100) + MAX_CLOCK_SKEW,
            ends: Micros::from_days(190),
        };
        assert!(due(Some(soon), Some(soon)) > Micros::from_days(150), "clocks differ a little");
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds() {
        let day = |count| Micros::from_days(count);
        assert_eq!(renewal_time(day(10), day(100)), day(70));
        assert_eq!(renewal_time(day(10), day(10)), day(10));
        assert_eq!(renewal_time(day(10), day(1)), day(10));
        assert!(renewal_time(Micros::new(i64::MIN), Micros::new(i64::MAX)).get() > 0);
    }
}
