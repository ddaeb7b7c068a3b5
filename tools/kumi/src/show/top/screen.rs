//! The terminal: taken, and given back however `kumi top` ends.

use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::mpsc::Sender;
use std::thread;

use crossterm::{cursor, event, execute, terminal};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::Message;
use super::model::Model;
use super::view;

/// The terminal while it is ours. Ratatui's own drop would complain on standard error, which may be
/// the terminal that is gone: that panics.
pub struct Screen(ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>);

/// Gives the terminal back. Nothing can be done about one that is gone.
fn give_back() {
    let _ = execute!(stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

fn take() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)
}

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// There is none, or it does not let itself be taken.
    pub fn take() -> Result<Screen, String> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Err(
                "top needs a terminal for its keys and its picture: kumi ps shows the same once"
                    .to_owned(),
            );
        }
        if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
            return Err(
                "top needs a terminal that can do more than TERM=dumb says: kumi ps shows the same once".to_owned()
            );
        }
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            give_back();
            before(what);
        }));
        let no_terminal = |e: io::Error| {
            give_back();
            format!("the terminal: {e}")
        };
        take().map_err(no_terminal)?;
        let screen = Terminal::new(CrosstermBackend::new(stdout())).map_err(no_terminal)?;
        Ok(Screen(ManuallyDrop::new(screen)))
    }

    /// Draws the model, in whatever size the terminal has now.
    ///
    /// # Errors
    /// It is gone.
    pub fn draw(&mut self, model: &mut Model) -> io::Result<()> {
        self.0.draw(|frame| view::draw(frame, model)).map(drop)
    }

    /// Draws all of it at the next time, whatever others wrote there.
    ///
    /// # Errors
    /// It is gone.
    pub fn redraw(&mut self) -> io::Result<()> {
        // Not `clear`: it asks the terminal for its cursor, and would wait for the answer that the
        // kernel thread of the keys reads.
        let size = self.0.size()?;
        self.0.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Stops, as a job of the shell. Returns when it goes on.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn stop(&mut self) -> io::Result<()> {
        give_back();
        emulate_default_handler(SIGTSTP)?;
        self.retake()
    }

    /// After it was stopped: a shell has had the terminal meanwhile.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn retake(&mut self) -> io::Result<()> {
        terminal::disable_raw_mode()?;
        take()?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Says on which signals, and when the terminal is gone. Crossterm's reader does not tell the end
/// of a terminal, but reads on and on.
///
/// # Errors
/// Of sigaction(2), or no kernel thread.
pub fn watch(to: &Sender<Message>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCONT])?;
    let told = to.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let message =
                if signal == SIGCONT { Message::Continued } else { Message::Signal(signal) };
            if told.send(message).is_err() {
                return;
            }
        }
    })?;
    let told = to.clone();
    thread::Builder::new().name("hang-up".to_owned()).spawn(move || {
        let terminal = stdin();
        loop {
            // Without any flag asked for: it wakes for a hang-up or an error, never for a key.
            let mut fds = [PollFd::new(&terminal, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        let _ = told.send(Message::Gone);
    })?;
    Ok(())
}

/// Passes keys and changes of the size on.
///
/// # Errors
/// No kernel thread.
pub fn keys(to: &Sender<Message>) -> io::Result<()> {
    let told = to.clone();
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        loop {
            let message = match event::read() {
                Ok(event::Event::Key(key)) if key.kind != event::KeyEventKind::Release => {
                    Message::Key(key)
                }
                Ok(event::Event::Resize(..)) => Message::Resized,
                Ok(_) => continue,
                Err(_) => Message::Gone,
            };
            let last = matches!(message, Message::Gone);
            if told.send(message).is_err() || last {
                return;
            }
        }
    })?;
    Ok(())
}
