//! `kumi top`: the microprocesses of the machine, live.
//!
//! Three parts: the model (state, in `model` and `known`, and effects of keys, in `keys`), the view
//! (display), and the loop in this file, which handles keys, query results and signals. Each of
//! these comes from a separate kernel thread over one channel.

pub(crate) mod answer;
mod cells;
mod histogram;
mod keys;
mod known;
mod look;
mod message;
mod model;
#[cfg(test)]
mod model_tests;
pub(crate) mod once;
mod options;
pub(crate) mod rates;
mod screen;
mod settings;
#[cfg(test)]
mod simulated;
mod view;
#[cfg(test)]
mod view_tests;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_machine::client::Machine;
use kumihimo_resource::id::Id;
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::emulate_default_handler;

use keys::Wish;
use message::{Message, Order};
use model::{Mode, Model, Panel};
use screen::Screen;
use settings::Stored;

use crate::ask::machines::Where;
use crate::ask::{self, Place};

#[derive(clap::Args)]
pub struct Args {
    /// Time between two updates, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    every: u64,
    #[command(flatten)]
    shown: options::Shown,
    #[command(flatten)]
    on: Where,
}

/// How the program ends.
enum End {
    /// On request.
    Asked,
    /// By this signal.
    Signal(i32),
}

/// End after the loss of the terminal: by SIGHUP, even if the kernel does not send that signal.
const GONE: End = End::Signal(SIGHUP);

/// Time for which the end of the program waits for the address spaces whose exact accounting it
/// turned on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs until a key or a signal ends the program. A signal ends it with the signal's default
/// action; the loss of the terminal, like SIGHUP.
pub fn run(args: Args) -> Result<ExitCode, String> {
    args.shown.check_sort()?;
    if args.shown.is_printed() {
        return once::run(&args.shown, &args.on);
    }
    args.shown.check_live()?;
    let machine = match args.shown.spaces.first() {
        // The screen has the address spaces of one machine.
        Some(first) if args.shown.spaces.iter().all(|at| at.machine == first.machine) => {
            args.on.of(first)?.machine
        }
        Some(_) => return Err("name address spaces of one machine, or add --once".to_owned()),
        None => args.on.one()?.machine,
    };
    let Some(only) = narrow(&machine, &args.shown)? else { return Ok(ExitCode::FAILURE) };
    let stored = Stored::read();
    let mut model = Model::of(stored.settings);
    args.shown.filter.clone_into(&mut model.filter);
    model.exact = args.shown.exact;
    model.is_narrow = only.is_some();
    model.said = stored.complaint.clone().map(|complaint| (complaint, true));
    args.shown.replace(&mut model.settings);
    if args.shown.histograms {
        model.mode = Mode::Panel(Panel::Histograms, 0);
    }
    let initial = model.settings;
    let (to, messages) = mpsc::channel();
    let screen = Screen::take()?;
    let begun = begin(machine, only, Duration::from_millis(args.every), &to);
    let orders = begun.map_err(|e| format!("cannot create a kernel thread: {e}"))?;
    if model.exact {
        let _ = orders.send(Order::Exact(true));
    }
    let end = until_the_end(screen, &messages, &orders, &mut model);
    finish(&messages, orders);
    if let Err(why) = stored.write(initial, model.settings) {
        ask::complain(&why);
    }
    match end {
        End::Asked => Ok(ExitCode::SUCCESS),
        End::Signal(signal) => {
            emulate_default_handler(signal).map_err(|e| e.to_string())?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// IDs by number of the address spaces to show; `None` for all.
type Only = Option<BTreeMap<u16, Id>>;

/// Finds the address spaces that were named. `None` if one of them was not found, which is then
/// reported.
fn narrow(machine: &Machine, shown: &options::Shown) -> Result<Option<Only>, String> {
    if shown.spaces.is_empty() {
        return Ok(Some(None));
    }
    let places: Vec<Place> = shown.spaces.iter().map(|at| at.of).collect();
    let (found, mut whole) = ask::neighbours(machine, &places)?;
    let mut only = BTreeMap::new();
    for (_, described) in ask::each(found, |(place, neighbour)| ask::space_at(neighbour, *place)) {
        match described {
            Ok(space) => drop(only.insert(space.id.location().space(), space.id)),
            Err(trouble) => {
                ask::complain(&trouble);
                whole = false;
            }
        }
    }
    Ok(whole.then_some(Some(only)))
}

fn begin(
    machine: Machine,
    only: Only,
    every: Duration,
    to: &Sender<Message>,
) -> std::io::Result<Sender<Order>> {
    screen::watch(to)?;
    screen::keys(to)?;
    let (orders, ordered) = mpsc::channel();
    let to = to.clone();
    thread::Builder::new().name("looks".to_owned()).spawn(move || {
        let _last = Last(to.clone());
        look::run(machine, only, every, &ordered, &to);
    })?;
    Ok(orders)
}

/// Lets the querying thread undo what it changed, and waits for its end.
fn finish(messages: &Receiver<Message>, orders: Sender<Order>) {
    drop(orders);
    let begun = Instant::now();
    while let Ok(message) = messages.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
        if matches!(message, Message::Blind) {
            return;
        }
    }
}

/// Reports the end of the querying thread, also after a panic.
struct Last(Sender<Message>);

impl Drop for Last {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Blind);
    }
}

fn until_the_end(
    mut screen: Screen,
    messages: &Receiver<Message>,
    orders: &Sender<Order>,
    model: &mut Model,
) -> End {
    let mut wanted = Vec::new();
    loop {
        if screen.draw(model).is_err() {
            return GONE;
        }
        let now = model.wanted();
        if now != wanted {
            wanted = now;
            // If the thread has ended, it has sent `Blind`.
            let _ = orders.send(Order::Want(wanted.clone()));
        }
        // All pending messages are processed before the next drawing.
        let Ok(first) = messages.recv() else { return End::Asked };
        for message in std::iter::once(first).chain(messages.try_iter()) {
            let going_on = match message {
                Message::Key(key) => match model.key(key) {
                    Some(Wish::End) => return End::Asked,
                    Some(Wish::Order(order)) => {
                        let _ = orders.send(order);
                        Ok(())
                    }
                    Some(Wish::Stop) => screen.stop(),
                    Some(Wish::Redraw) => screen.redraw(),
                    None => Ok(()),
                },
                Message::Look(look) => {
                    model.look(look);
                    Ok(())
                }
                Message::Told(said, refused) => {
                    model.told(said, refused);
                    Ok(())
                }
                Message::Backtrace(id, text) => {
                    model.show_stack(id, text);
                    Ok(())
                }
                Message::Found(found) => {
                    model.found(found);
                    Ok(())
                }
                Message::Resized => Ok(()),
                Message::Continued => screen.retake(),
                Message::Signal(signal) => return End::Signal(signal),
                Message::Gone => return GONE,
                Message::Blind => return End::Asked,
            };
            if going_on.is_err() {
                return GONE;
            }
        }
    }
}
