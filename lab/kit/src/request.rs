//! The command line of a contender.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Parameters of one run of a contender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Name of the benchmark.
    pub bench: String,
    /// Number of virtual processors, worker threads, or cores. At least 1.
    pub vps: usize,
    /// `full`, `lean`, or empty if the contender has no variants.
    pub variant: String,
    /// Run-queue design, or empty.
    pub queue: String,
    keys: BTreeMap<String, String>,
}

/// Reason why a command line is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRequest(String);

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadRequest {}

impl Request {
    /// Parses a command line (without the program's name).
    ///
    /// # Errors
    /// If no benchmark is named, an option lacks its value or is unknown, or `--vps` is not a
    /// number of at least 1.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, BadRequest> {
        let mut request = Request { vps: 1, ..Request::default() };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            if let Some(option) = arg.strip_prefix("--") {
                let value =
                    args.next().ok_or_else(|| BadRequest(format!("--{option} needs a value")))?;
                match option {
                    "vps" | "workers" => {
                        request.vps = value.parse().ok().filter(|&n| n > 0).ok_or_else(|| {
                            BadRequest(format!("--{option} {value}: not a number of at least 1"))
                        })?;
                    }
                    "variant" => request.variant = value,
                    "queue" => request.queue = value,
                    _ => return Err(BadRequest(format!("--{option}: unknown option"))),
                }
            } else if let Some((key, value)) = arg.split_once('=') {
                request.keys.insert(key.to_owned(), value.to_owned());
            } else if request.bench.is_empty() {
                request.bench = arg;
            } else {
                return Err(BadRequest(format!("{arg}: only one benchmark is allowed")));
            }
        }
        if request.bench.is_empty() {
            return Err(BadRequest("no benchmark named".to_owned()));
        }
        Ok(request)
    }

    /// The value of `key`, if given.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    /// The value of `key` as a `T`, or `default` if it is not given.
    ///
    /// # Panics
    /// If the value is invalid: a benchmark must not run with another value than requested.
    #[must_use]
    pub fn value<T: FromStr>(&self, key: &str, default: T) -> T {
        match self.get(key) {
            None => default,
            Some(text) => text.parse().unwrap_or_else(|_| panic!("{key}={text}: invalid value")),
        }
    }

    /// Returns whether `part` of the benchmark is requested. Without a request, all parts are.
    #[must_use]
    pub fn wants(&self, part: &str) -> bool {
        self.get("part").is_none_or(|p| p.split(',').any(|p| p == part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, BadRequest> {
        Request::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn every_part_of_a_request_is_parsed() {
        let r = parse("sieve --vps 2 --variant lean --queue ring part=primes700 n=7").unwrap();
        assert_eq!((r.bench.as_str(), r.vps), ("sieve", 2));
        assert_eq!((r.variant.as_str(), r.queue.as_str()), ("lean", "ring"));
        assert!(r.wants("primes700") && !r.wants("primes2000"));
        assert_eq!(r.value("n", 0usize), 7);
        assert_eq!(r.value("m", 3usize), 3);
    }

    #[test]
    fn request_without_parts_names_all_parts() {
        let r = parse("null-fork").unwrap();
        assert!(r.wants("sequential") && r.wants("bulk"));
        assert_eq!(r.vps, 1);
    }

    #[test]
    fn invalid_requests_are_refused() {
        for line in
            ["", "yield --vps 0", "yield --vps", "yield --vps x", "yield --speed 1", "yield yield"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
