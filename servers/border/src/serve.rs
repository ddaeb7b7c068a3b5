//! The process of the border: reads the configuration, takes its place in the run-time directory,
//! and serves until a signal.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kumihimo::gate::ErrorKind;
use kumihimo_machine::border::Place;
use kumihimo_machine::client::Machine;
use kumihimo_machine::directory::Directory;
use ring::rand::{SecureRandom, SystemRandom};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::calls::near;
use crate::config::{self, Config, default_folder};
use crate::control::Control;
use crate::engine::{Engine, Grpc};
use crate::local;
use crate::peers::Peers;
use crate::tls::Tls;

/// Number of kernel threads that serve. More would not help: a border moves bytes.
const WORKERS: usize = 2;

/// Options of `kumi border`.
#[derive(clap::Args)]
pub struct Options {
    /// Folder with border.conf and the certificates; ~/.config/kumihimo/border by default
    #[arg(long, value_name = "DIR", global = true)]
    pub config: Option<PathBuf>,
    /// Where to listen, instead of the address in border.conf
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
}

impl Options {
    /// Returns the folder of the configuration.
    ///
    /// # Errors
    /// Returns a line if there is no default.
    pub fn folder(&self) -> Result<PathBuf, String> {
        self.config.clone().map_or_else(default_folder, Ok)
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// A line about what is wrong with the configuration, the certificates, the run-time directory or
/// the address.
pub fn run(options: &Options) -> Result<(), String> {
    let folder = options.folder()?;
    let config = Config::read(&folder)?;
    // Without certificates there is no listener, on loopback neither: other users reach that.
    let tls = Tls::load(&config::files(&folder))?;
    let name = tls
        .own()
        .machine()
        .map(str::to_owned)
        .ok_or_else(|| format!("the certificate of {} has no name of a machine", tls.own()))?;
    if config.peers.iter().any(|peer| peer.name == name) {
        return Err(format!("this machine is {name}, as one of the peers in {}", config::FILE));
    }
    let directory = Directory::mine().map_err(|e| e.to_string())?;
    let machine = Machine::at(directory.path()).map_err(|e| e.to_string())?;
    let place = Place::take(directory, random()?).map_err(|e| e.to_string())?;
    let random = random()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("kumi-border")
        .enable_all()
        .build()
        .map_err(|e| format!("the border's kernel threads: {e}"))?;
    let listen = options.listen.or(config.listen);
    let served =
        runtime.block_on(serve(Border { name, tls, config, listen, machine, place, random }));
    // Tasks of connections hold nothing that outlives them.
    runtime.shutdown_background();
    served
}

/// What a border needs to serve.
struct Border {
    name: String,
    tls: Tls,
    config: Config,
    listen: Option<SocketAddr>,
    machine: Machine,
    place: Place,
    /// Distinguishes the calls of this process.
    random: u64,
}

/// Returns random bits.
fn random() -> Result<u64, String> {
    let mut random = [0; 8];
    SystemRandom::new().fill(&mut random).map_err(|_| "the kernel gives no random bytes")?;
    Ok(u64::from_ne_bytes(random))
}

async fn serve(border: Border) -> Result<(), String> {
    let Border { name, tls, config, listen, machine, place, random } = border;
    let identity = tls.own().clone();
    let engine = Arc::new(Grpc::new(Arc::new(tls))?);
    let listener = match listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let bound = match &listener {
        Some(listener) => Some(listener.local_addr().map_err(|e| e.to_string())?),
        None => None,
    };
    // Signals must be caught before the address is printed. Not by Tokio: Cargo would turn its
    // feature for them on in every program of the workspace, whose Tokio runtimes would then have
    // a file in common (`docs/src/reference/limits/run.md`).
    let mut caught = Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("a signal: {e}"))?;
    let (tell, end) = oneshot::channel();
    std::thread::spawn(move || caught.forever().next().map(|_| tell.send(())));
    let epoch = place.epoch();
    let peers = Peers::new(&name, bound, epoch, identity, Arc::clone(&engine) as Arc<dyn Engine>);
    let control = Arc::new(Control::new(machine, peers.hello(), config.allowed));
    let socket = place.listen().map_err(|e| e.to_string())?;
    config.peers.into_iter().for_each(|peer| peers.keep(peer));
    config.discover.into_iter().for_each(|behind| peers.discover(behind));
    let _gate = match near::serve(Arc::clone(&peers), random) {
        Ok(serving) => Some(serving),
        // On a machine without gates, the rest works.
        Err(e) if e.kind() == ErrorKind::Unsupported => None,
        Err(e) => return Err(e.to_string()),
    };
    let listening =
        bound.map_or_else(|| "not listening".to_owned(), |at| format!("listening {at}"));
    say(&format!("machine {name}, epoch {epoch}\n{listening}\n"))?;
    let remote = async {
        match listener {
            Some(listener) => engine.serve(listener, control).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = remote => {}
        served = local::serve(socket, peers) => {
            served.map_err(|e| format!("the border's socket: {e}"))?;
        }
        _ = end => {}
    }
    Ok(())
}

async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{address}: another program listens there: end it, or choose another port")
        }
        _ => format!("{address}: {e}"),
    })
}

/// Prints to standard output. The reader may be a pipe that waits for the address.
fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|e| format!("standard output: {e}"))
}
