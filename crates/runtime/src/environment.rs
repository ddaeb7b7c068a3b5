//! Settings that the environment may make in the program's place: variables that begin with
//! `KUMI_`.

use std::io;
use std::num::NonZero;

use kumihimo_arbiter::share::Share;
use kumihimo_batch::Policy as BatchPolicy;
use kumihimo_events::bpf;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means as Preemption;
use kumihimo_events::source::Kind as Events;
use kumihimo_events::watchdog::Distrust;
use kumihimo_queue::Design;
use kumihimo_resource::locking::Locking;

use crate::config::{DEFAULT_DESIGN, MAX_VPS};

pub(crate) fn vps() -> io::Result<usize> {
    match std::env::var("KUMI_VPS") {
        Ok(text) => text.parse().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("KUMI_VPS={text}: a number of virtual processors is wanted"),
            )
        }),
        Err(_) => Ok(std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_VPS)),
    }
}

pub(crate) fn design() -> io::Result<Design> {
    match std::env::var("KUMI_QUEUE") {
        Ok(text) => Design::from_name(&text).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("KUMI_QUEUE={text}: ring, locked or steal is wanted"),
            )
        }),
        Err(_) => Ok(DEFAULT_DESIGN),
    }
}

pub(crate) fn batch() -> io::Result<BatchPolicy> {
    match std::env::var("KUMI_BATCH") {
        Ok(text) => text.parse().map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("KUMI_BATCH: {why}"))
        }),
        Err(_) => Ok(BatchPolicy::default()),
    }
}

pub(crate) fn locking() -> io::Result<Option<Locking>> {
    match std::env::var("KUMI_LOCKING") {
        Ok(text) => text.parse().map(Some).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("KUMI_LOCKING: {why}"))
        }),
        Err(_) => Ok(None),
    }
}

pub(crate) fn share() -> io::Result<Option<Share>> {
    match std::env::var("KUMI_SHARE") {
        Ok(text) => text.parse().map(Some).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("KUMI_SHARE: {why}"))
        }),
        Err(_) => Ok(None),
    }
}

/// Asked where one would be opened.
pub(crate) fn uring_is_off() -> bool {
    std::env::var_os("KUMI_URING").is_some_and(|off| off == "off")
}

/// What the event source itself would ask: told here also where another source would be tried
/// instead.
pub(crate) fn bpf() -> io::Result<()> {
    match bpf::Way::asked() {
        Ok(_) => Ok(()),
        Err(why) => Err(io::Error::new(io::ErrorKind::InvalidInput, why)),
    }
}

pub(crate) fn events() -> io::Result<Option<Events>> {
    match std::env::var("KUMI_EVENTS") {
        Ok(text) => Events::from_name(&text).map(Some).ok_or_else(|| {
            let text = format!("KUMI_EVENTS={text}: bpf, perf, watch or off is wanted");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        }),
        Err(_) => Ok(None),
    }
}

pub(crate) fn kernel_threads() -> io::Result<Option<Limit>> {
    const NAME: &str = "KUMI_KERNEL_THREADS";
    let Ok(text) = std::env::var(NAME) else { return Ok(None) };
    match text.parse() {
        Ok(threads) if (1..=bpf::MOST_SLOTS as usize).contains(&threads) => {
            Ok(Some(Limit::asked(threads, NAME)))
        }
        _ => {
            let text = format!(
                "{NAME}={text}: a number of kernel threads is wanted, 1 to {}",
                bpf::MOST_SLOTS
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

pub(crate) fn preemption() -> io::Result<Option<Preemption>> {
    match std::env::var("KUMI_PREEMPT") {
        Ok(text) => Preemption::from_name(&text).map(Some).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("KUMI_PREEMPT={why}"))
        }),
        Err(_) => Ok(None),
    }
}

pub(crate) fn sticky() -> io::Result<bool> {
    match std::env::var("KUMI_STICKY") {
        Ok(text) if text == "on" => Ok(true),
        Ok(text) if text == "off" => Ok(false),
        Ok(text) => {
            let text = format!("KUMI_STICKY={text}: on or off is wanted");
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        Err(_) => Ok(true),
    }
}

pub(crate) fn distrust() -> io::Result<Option<Distrust>> {
    match std::env::var("KUMI_WATCHDOG") {
        Ok(text) => Distrust::from_name(&text).map(Some).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("KUMI_WATCHDOG={why}"))
        }),
        Err(_) => Ok(None),
    }
}
