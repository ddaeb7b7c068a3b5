//! Commands that concern the server.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use kumihimo::sync::atomic::Ordering::Relaxed;

use crate::commands::client::REDIS_VERSION;
use crate::commands::{SYNTAX, no_subcommand};
use crate::data::databases::DATABASES;
use crate::data::glob;
use crate::log::Sync;
use crate::protocol::request::{Args, MAX_BULK};
use crate::session::{After, Answer, Session, wrong_arity};

/// `CONFIG GET pattern ...`
pub fn config(session: &mut Session, args: Args<'_>) -> Answer {
    if !args.at(1).eq_ignore_ascii_case(b"get") {
        return Err(no_subcommand("CONFIG", args.at(1)));
    }
    if args.len() < 3 {
        return Err(wrong_arity("config|get"));
    }
    let settings = &session.server.settings;
    let log = session.server.databases.shared.log.get();
    let sync = match settings.sync {
        Sync::Always => "always",
        Sync::Everysec => "everysec",
        Sync::No => "no",
    };
    let all = [
        ("appendfsync", sync.to_owned()),
        ("appendonly", if log.is_some() { "yes" } else { "no" }.to_owned()),
        ("client-query-buffer-limit", (1_u64 << 30).to_string()),
        ("databases", DATABASES.to_string()),
        ("maxclients", settings.max_connections.to_string()),
        ("maxmemory", settings.max_memory.to_string()),
        ("maxmemory-clients", settings.client_memory.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", session.server.port().to_string()),
        ("proto-max-bulk-len", MAX_BULK.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
        (
            "unixsocket",
            settings.unix.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ),
    ];
    let mut seen = HashSet::new();
    let mut found: Vec<(Cow<'_, str>, &str)> = Vec::new();
    for pattern in args.from(2) {
        let lower = pattern.to_ascii_lowercase();
        let literal = !pattern.iter().any(|b| b"*?[".contains(b));
        for (name, value) in all.iter().filter(|(name, _)| glob::matches(&lower, name.as_bytes())) {
            // A name without pattern characters is repeated in the spelling of the request.
            let shown =
                if literal { String::from_utf8_lossy(pattern) } else { Cow::Borrowed(*name) };
            if seen.insert(shown.clone()) {
                found.push((shown, value));
            }
        }
    }
    session.reply.map(found.len());
    for (name, value) in found {
        session.reply.bulk(name.as_bytes());
        session.reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// `INFO [section ...]`
pub fn info(session: &mut Session, args: Args<'_>) -> Answer {
    let wanted = |section: &str| {
        args.len() == 1
            || args.from(1).any(|name| {
                [section, "all", "default", "everything"]
                    .iter()
                    .any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
            })
    };
    let mut text = String::new();
    for (section, write) in SECTIONS {
        if wanted(&section.to_ascii_lowercase()) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{gap}# {section}\r\n");
            for (key, value) in write(session) {
                let _ = write!(text, "{key}:{value}\r\n");
            }
        }
    }
    session.reply.verbatim(&text);
    Ok(())
}

type Lines = Vec<(String, String)>;
type Section = (&'static str, fn(&Session) -> Lines);

const SECTIONS: [Section; 6] = [
    ("Server", about_server),
    ("Clients", about_clients),
    ("Memory", about_memory),
    ("Persistence", about_log),
    ("Stats", about_stats),
    ("Keyspace", about_keys),
];

fn lines<const N: usize>(lines: [(&str, String); N]) -> Lines {
    lines.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn about_server(session: &Session) -> Lines {
    let server = &session.server;
    let up = session.now.saturating_sub(server.since) / 1000;
    let runtime = kumihimo::runtime::metrics();
    lines([
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("kumihimo_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("virtual_processors", runtime.map_or(0, |runtime| runtime.vps.len()).to_string()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", server.port().to_string()),
        ("uptime_in_seconds", up.to_string()),
        ("uptime_in_days", (up / 86400).to_string()),
    ])
}

fn about_clients(session: &Session) -> Lines {
    let server = &session.server;
    let clients = server.clients.all();
    let blocked = clients.iter().filter(|client| client.blocked.load(Relaxed)).count();
    lines([
        ("connected_clients", clients.len().to_string()),
        ("maxclients", server.settings.max_connections.to_string()),
        ("blocked_clients", blocked.to_string()),
    ])
}

fn about_memory(session: &Session) -> Lines {
    let server = &session.server;
    let shared = &server.databases.shared;
    lines([
        ("used_memory", (shared.memory() + server.budget.used()).to_string()),
        ("mem_clients_normal", server.budget.used().to_string()),
        ("used_memory_peak", shared.peak().to_string()),
        ("used_memory_rss", crate::server::resident().unwrap_or(0).to_string()),
        ("maxmemory", server.settings.max_memory.to_string()),
        ("maxmemory_policy", "noeviction".to_owned()),
    ])
}

fn about_log(session: &Session) -> Lines {
    let log = session.server.databases.shared.log.get();
    lines([
        ("loading", "0".to_owned()),
        ("aof_enabled", u8::from(log.is_some()).to_string()),
        (
            "aof_last_write_status",
            if log.is_some_and(|log| log.is_failing()) { "err" } else { "ok" }.to_owned(),
        ),
    ])
}

fn about_stats(session: &Session) -> Lines {
    let server = &session.server;
    let (came, refused) = server.clients.counts();
    let (channels, patterns) = server.channels.counts();
    let commands = server.stats.commands.load(Relaxed) + session.uncounted;
    lines([
        ("total_connections_received", (came + refused).to_string()),
        ("total_commands_processed", commands.to_string()),
        ("rejected_connections", refused.to_string()),
        ("expired_keys", server.databases.shared.expired.load(Relaxed).to_string()),
        ("evicted_keys", "0".to_owned()),
        ("pubsub_channels", channels.to_string()),
        ("pubsub_patterns", patterns.to_string()),
    ])
}

fn about_keys(session: &Session) -> Lines {
    let mut all = Vec::new();
    for number in 0..DATABASES {
        let (mut keys, mut expiring, mut times) = (0, 0, 0_u128);
        for shard in session.databases().lock_whole(number).shards() {
            let (count, sum) = shard.expiring();
            (keys, expiring, times) = (keys + shard.len(), expiring + count, times + sum);
        }
        if keys > 0 {
            let average = if expiring == 0 { 0 } else { (times / expiring as u128) as u64 };
            let left = average.saturating_sub(session.now);
            all.push((
                format!("db{number}"),
                format!("keys={keys},expires={expiring},avg_ttl={left}"),
            ));
        }
    }
    all
}

/// `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE]`
pub fn shutdown(session: &mut Session, args: Args<'_>) -> Answer {
    for word in args.from(1) {
        match word.to_ascii_lowercase().as_slice() {
            // The log is always written to its end. The server has no other state to save.
            b"nosave" | b"save" | b"now" | b"force" => {}
            b"abort" => return Err("No shutdown in progress.".into()),
            _ => return Err(SYNTAX),
        }
    }
    session.after = After::Drop;
    session.server.stop();
    Ok(())
}
