//! Targets of attacks: the delay of others with an attack, relative to that without.

use super::Goal::AtMost;
use super::{Figure, Pick, full, ratio};

macro_rules! others {
    ($of:literal, $attack:literal) => {
        ratio(
            "hostile",
            Pick {
                keys: &[("of", $of), ("attack", $attack), ("under", "attack")],
                ..full("others_p99")
            },
            Pick {
                keys: &[("of", $of), ("attack", $attack), ("under", "peace")],
                ..full("others_p99")
            },
            AtMost(3.0),
        )
    };
}

pub const FIGURES: &[Figure] = &[
    others!("gate", "linger"),
    others!("control", "linger"),
    others!("kv", "keys"),
    others!("kv", "mget"),
    others!("kv", "flushall"),
    others!("kv", "del"),
    others!("kv", "publish"),
];
