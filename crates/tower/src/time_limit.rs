//! [`TimeoutHeader`]: how long a client is ready to wait, as a header of its request says.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// How the value of a header says a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutFormat {
    /// As `grpc-timeout` does: at most eight digits and a unit, `H`, `M`, `S`, `m`, `u` or `n`.
    Grpc,
    /// Whole milliseconds.
    Millis,
    /// Whole seconds.
    Seconds,
}

impl TimeoutFormat {
    /// The duration; none for a value that is not one.
    pub fn parse(self, value: &[u8]) -> Option<Duration> {
        match self {
            TimeoutFormat::Millis => number(value).map(Duration::from_millis),
            TimeoutFormat::Seconds => number(value).map(Duration::from_secs),
            TimeoutFormat::Grpc => {
                let (unit, digits) = value.split_last()?;
                if digits.len() > 8 {
                    return None;
                }
                let n = number(digits)?;
                Some(match unit {
                    b'H' => Duration::from_secs(n * 3600),
                    b'M' => Duration::from_secs(n * 60),
                    b'S' => Duration::from_secs(n),
                    b'm' => Duration::from_millis(n),
                    b'u' => Duration::from_micros(n),
                    b'n' => Duration::from_nanos(n),
                    _ => return None,
                })
            }
        }
    }
}

/// Digits and nothing else; a number that does not fit is the largest.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |n: u64, digit: &u8| n.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

/// A header that says how long the client waits.
#[derive(Clone, Debug)]
pub(crate) struct TimeoutHeader {
    pub(crate) name: HeaderName,
    pub(crate) format: TimeoutFormat,
    /// However long the client would wait.
    pub(crate) most: Duration,
}

impl TimeoutHeader {
    /// None without the header, and if its value says no duration.
    pub(crate) fn limit(&self, headers: &HeaderMap) -> Option<Duration> {
        let value = headers.get(&self.name)?;
        let asked = self.format.parse(value.as_bytes())?;
        Some(asked.min(self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_a_duration_or_nothing() {
        let grpc = |value: &str| TimeoutFormat::Grpc.parse(value.as_bytes());
        assert_eq!(grpc("2S"), Some(Duration::from_secs(2)));
        assert_eq!(
            grpc("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3600))
        );
        assert_eq!(grpc("1M"), Some(Duration::from_secs(60)));
        assert_eq!(grpc("250m"), Some(Duration::from_millis(250)));
        assert_eq!(grpc("250u"), Some(Duration::from_micros(250)));
        assert_eq!(grpc("0n"), Some(Duration::ZERO));
        for bad in [
            "",
            "S",
            "5",
            "5s",
            "-5S",
            "+5S",
            " 5S",
            "5 S",
            "123456789S",
            "1.5S",
            "5S,5S",
        ] {
            assert_eq!(grpc(bad), None, "{bad:?}");
        }
        assert_eq!(TimeoutFormat::Grpc.parse(b"\xff\xfeS"), None);
        let millis = |value: &str| TimeoutFormat::Millis.parse(value.as_bytes());
        assert_eq!(millis("1500"), Some(Duration::from_millis(1500)));
        assert_eq!(
            millis(&"9".repeat(40)),
            Some(Duration::from_millis(u64::MAX))
        );
        for bad in ["", "1.5", "-1", "1e3", "0x10", "NaN", "１"] {
            assert_eq!(millis(bad), None, "{bad:?}");
        }
        assert_eq!(
            TimeoutFormat::Seconds.parse(b"3"),
            Some(Duration::from_secs(3))
        );
    }
}
