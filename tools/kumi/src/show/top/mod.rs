//! `kumi top`: the microprocesses of the machine, live.
//!
//! Three parts: the model (state and effects of keys), the view (display), and the loop in this
//! file, which handles keys, query results and signals. Each of these comes from a separate kernel
//! thread over one channel.

mod look;
mod model;
#[cfg(test)]
mod model_tests;
mod once;
mod rates;
mod screen;
mod view;
#[cfg(test)]
mod view_tests;

use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use crossterm::event::KeyEvent;
use kumihimo_machine::client::Machine;
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::emulate_default_handler;

use look::Order;
use model::{Model, Wanted, Wish};
use screen::Screen;

use crate::ask::Whose;

#[derive(clap::Args)]
pub struct Args {
    /// Time between two updates, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    every: u64,
    #[command(flatten)]
    shown: once::Shown,
    #[command(flatten)]
    whose: Whose,
}

/// Messages to the main loop.
enum Message {
    Key(KeyEvent),
    Resized,
    Look(model::Look),
    /// Result of a request; true if it failed.
    Told(String, bool),
    /// A signal that ends the program.
    Signal(i32),
    /// The program was stopped and continues.
    Continued,
    /// The terminal is gone.
    Gone,
    /// The querying thread has ended.
    Blind,
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

/// Runs until a key or a signal ends the program. A signal ends it with the signal's default
/// action; the loss of the terminal, like SIGHUP.
pub fn run(args: Args) -> Result<ExitCode, String> {
    if args.shown.is_printed() {
        return once::run(&args.shown, &args.whose);
    }
    args.shown.check_live()?;
    let machine = args.whose.machine()?;
    let (to, messages) = mpsc::channel();
    let screen = Screen::take()?;
    let begun = begin(machine, Duration::from_millis(args.every), &to);
    let orders = begun.map_err(|e| format!("cannot create a kernel thread: {e}"))?;
    match until_the_end(screen, &messages, &orders) {
        End::Asked => Ok(ExitCode::SUCCESS),
        End::Signal(signal) => {
            emulate_default_handler(signal).map_err(|e| e.to_string())?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn begin(
    machine: Machine,
    every: Duration,
    to: &Sender<Message>,
) -> std::io::Result<Sender<Order>> {
    screen::watch(to)?;
    screen::keys(to)?;
    let (orders, ordered) = mpsc::channel();
    let to = to.clone();
    thread::Builder::new().name("looks".to_owned()).spawn(move || {
        let _last = Last(to.clone());
        look::run(machine, every, &ordered, &to);
    })?;
    Ok(orders)
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
    messages: &mpsc::Receiver<Message>,
    orders: &Sender<Order>,
) -> End {
    let mut model = Model::default();
    let mut wanted = Wanted::default();
    loop {
        if screen.draw(&mut model).is_err() {
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
                    Some(Wish::Act(id, action)) => {
                        let _ = orders.send(Order::Act(id, action));
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
