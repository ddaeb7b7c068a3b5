//! Resource interface (P3). Everything that an address space manages is a *resource* with five
//! operations, registered in one [`table`], where all locking takes place.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! - [`id`]: 64-bit ids, unique on the machine.
//! - [`serials`]: allocation of ids, which are never reused.
//! - [`names`]: the name tree.
//! - [`locking`]: the locking design, chosen at start.
//! - [`slots`]: the management table of a kind whose resources are values.
//! - [`chunks`]: an array indexed by slot.
//!
//! An implementation of [`Row`](table::Row) defines a kind:
//!
//! ```
//! use std::any::Any;
//! use kumihimo_resource::id::{Kind, Location, Serial};
//! use kumihimo_resource::locking::Locking;
//! use kumihimo_resource::names::Name;
//! use kumihimo_resource::serials::Generations;
//! use kumihimo_resource::slots::Slots;
//! use kumihimo_resource::table::{Error, Row, Table, Usage};
//!
//! const WORD: Kind = Kind::FIRST_OWN;
//! static WORDS: Slots<String> = Slots::new();
//!
//! struct Words(Generations);
//!
//! impl Row for Words {
//!     fn kind(&self) -> Kind {
//!         WORD
//!     }
//!     fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
//!         let word = order.downcast_ref::<&str>().copied().unwrap_or_default().to_owned();
//!         WORDS.open(Locking::Vp, &self.0, 0, word).map_err(|_| Error::Full(WORD))
//!     }
//!     fn usage(&self, each: &mut dyn FnMut(Usage)) {
//!         WORDS.for_each(|serial, word| {
//!             each(Usage { serial, owner: None, state: format!("holds {word}") })
//!         });
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let location = Location::new(12).expect("0 to 4095");
//! let table = Table::new(location, Generations::unclaimed(), Locking::Vp);
//! table.define(Box::leak(Box::new(Words(Generations::unclaimed()))))?;
//! let id = table.open(WORD, &mut "hello")?;
//! assert_eq!(id.to_string(), "12.kind16.0.0");
//! table.name(&Name::new(WORD, "greeting")?, id)?;
//! assert_eq!(table.names().find(&Name::parse("/kind16/greeting")?)?, id);
//! assert!(matches!(table.close(id), Err(Error::Unsupported(..))), "words do not end");
//! # Ok(())
//! # }
//! ```
//!
//! In a program, [`table::table`] returns the table, to which the runtime adds its rows.
//! `kumihimo::resource` re-exports the parts that programs need.
#![forbid(unsafe_code)]

pub mod chunks;
pub mod id;
pub mod locking;
pub mod names;
mod operation;
mod row;
pub mod serials;
pub mod slots;
pub mod table;
