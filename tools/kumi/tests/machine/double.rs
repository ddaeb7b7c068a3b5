//! A simulated address space: its microprocesses are rows of a table, served by the real control
//! socket in a temporary run-time directory.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use kumihimo_machine::directory::Directory;
use kumihimo_machine::handler::{
    Action, ControlHandler, Done, Metric, Microprocess, Refused, Resource, Space, State,
};
use kumihimo_machine::space::{Control, Number};
use kumihimo_resource::id::{Id, Kind, Serial};

pub const KUMI: &str = env!("CARGO_BIN_EXE_kumi");

/// A temporary run-time directory.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kumi-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory::own(&path).expect("a run-time directory");
        Folder(path)
    }

    /// A directory that another process has created and will remove.
    pub fn there(path: PathBuf) -> Folder {
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Starts an address space in this directory.
    pub fn space(&self) -> Double {
        self.space_with(|_| {})
    }

    /// Starts an address space whose table is filled by `ready` before the address space becomes
    /// visible.
    pub fn space_with(&self, ready: impl FnOnce(&Table)) -> Double {
        let number = Arc::new(
            Number::take_in(Directory::own(&self.0).expect("it is there")).expect("a number"),
        );
        let table = Arc::new(Table::new(&number));
        ready(&table);
        let answer: Arc<dyn ControlHandler> = table.clone();
        let control = Control::start(number, Arc::downgrade(&answer)).expect("a control socket");
        Double { table, control }
    }

    /// A `kumi` command with this run-time directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(KUMI);
        command.args(args).env("KUMI_DIR", &self.0).env("XDG_CONFIG_HOME", self.config());
        command
    }

    /// The folder with the settings of `kumi` commands.
    pub fn config(&self) -> PathBuf {
        self.0.join("config")
    }

    /// Runs `kumi` and returns its exit code, standard output and standard error.
    pub fn kumi(&self, args: &[&str]) -> (i32, String, String) {
        told(&self.command(args).output().expect("kumi"))
    }
}

pub fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A simulated address space.
pub struct Double {
    pub table: Arc<Table>,
    /// The control socket, served until this value is dropped.
    pub control: Control,
}

/// The contents of the address space, and the requests that it received.
pub struct Table {
    pub number: u16,
    id: Id,
    rows: Mutex<BTreeMap<Id, Microprocess>>,
    resources: Mutex<Vec<Resource>>,
    metrics: Mutex<Vec<Metric>>,
    living: AtomicU64,
    /// Size of its trace in bytes; 0 if it is not traced.
    pub traced: AtomicU64,
    acted: Mutex<Vec<(Id, Action)>>,
    /// Number of requests for metrics, and for a list.
    asked: Mutex<(u64, u64)>,
    told: Condvar,
}

impl Table {
    fn new(number: &Number) -> Table {
        let location = number.location();
        Table {
            number: location.space(),
            id: Id::new(location, Kind::SPACE, Serial::new(0, number.first_generation())),
            rows: Mutex::default(),
            resources: Mutex::default(),
            metrics: Mutex::default(),
            living: AtomicU64::new(u64::MAX),
            traced: AtomicU64::new(0),
            acted: Mutex::default(),
            asked: Mutex::default(),
            told: Condvar::new(),
        }
    }

    /// ID of the address space.
    pub fn id(&self) -> Id {
        self.id
    }

    /// ID of the microprocess in `slot` with this generation.
    pub fn microprocess_id(&self, slot: u32, generation: u32) -> Id {
        Id::new(self.id.location(), Kind::MICROPROCESS, Serial::new(slot, generation))
    }

    /// Adds a microprocess, or changes its state.
    pub fn add(&self, slot: u32, name: &str, state: State) -> Id {
        let id = self.microprocess_id(slot, 1);
        self.put(Microprocess {
            id,
            name: (!name.is_empty()).then(|| name.to_owned()),
            state,
            stopping: false,
            waits_for: None,
            holder: None,
            priority: 32,
            inherited: None,
            vp: 0,
            kernel_thread: None,
            sticky: None,
        });
        id
    }

    pub fn put(&self, row: Microprocess) {
        self.rows.lock().expect("rows").insert(row.id, row);
    }

    pub fn row(&self, id: Id) -> Microprocess {
        self.rows.lock().expect("rows")[&id].clone()
    }

    /// Removes a microprocess.
    pub fn end(&self, id: Id) {
        self.rows.lock().expect("rows").remove(&id);
    }

    pub fn has(&self, resource: Resource) {
        self.resources.lock().expect("resources").push(resource);
    }

    /// Sets a counter.
    pub fn count(&self, name: &str, vp: &str, value: f64) {
        let labels = vec![("vp".to_owned(), vp.to_owned())];
        let help = "Counted.".to_owned();
        let metric =
            Metric { name: name.to_owned(), help, counter: true, samples: vec![(labels, value)] };
        self.metrics.lock().expect("metrics").push(metric);
    }

    /// Sets the reported number of microprocesses, independently of the rows.
    pub fn say_living(&self, living: u64) {
        self.living.store(living, Ordering::Relaxed);
    }

    /// The requests received so far.
    pub fn acted(&self) -> Vec<(Id, Action)> {
        self.acted.lock().expect("acted").clone()
    }

    /// Waits until at least so many requests for metrics and for lists were received. Returns their
    /// numbers.
    pub fn until_asked(&self, metrics: u64, lists: u64) -> (u64, u64) {
        let asked = self.asked.lock().expect("asked");
        *self.told.wait_while(asked, |asked| asked.0 < metrics || asked.1 < lists).expect("asked")
    }

    fn ask(&self, of: impl FnOnce(&mut (u64, u64))) {
        of(&mut self.asked.lock().expect("asked"));
        self.told.notify_all();
    }
}

impl ControlHandler for Table {
    fn space(&self) -> Space {
        let living = match self.living.load(Ordering::Relaxed) {
            u64::MAX => self.rows.lock().expect("rows").len() as u64,
            said => said,
        };
        Space {
            id: self.id,
            pid: std::process::id(),
            program: "/usr/bin/double".to_owned(),
            version: "0.1.0".to_owned(),
            vps: 2,
            living,
            queue: "ring".to_owned(),
            policy: "fixed".to_owned(),
            events: "watch".to_owned(),
            locking: "vp".to_owned(),
            mode: "microprocesses".to_owned(),
            why: None,
            kernel_threads: 3,
            most_kernel_threads: 100,
        }
    }

    fn microprocesses(&self, each: &mut dyn FnMut(Microprocess)) {
        self.rows.lock().expect("rows").values().cloned().for_each(each);
        self.ask(|asked| asked.1 += 1);
    }

    fn microprocess(&self, id: Id) -> Result<Microprocess, Refused> {
        let row = self.rows.lock().expect("rows").get(&id).cloned();
        row.ok_or_else(|| Refused::Stale(format!("{id} has ended")))
    }

    fn resources(&self, kind: Option<Kind>, each: &mut dyn FnMut(Resource)) {
        let all = self.resources.lock().expect("resources");
        all.iter()
            .filter(|row| kind.is_none_or(|kind| row.id.kind() == kind))
            .cloned()
            .for_each(each);
    }

    fn act(&self, id: Id, action: Action) -> Result<Done, Refused> {
        let mut row = self.microprocess(id)?;
        if row.name.as_deref() == Some("fortress") {
            return Err(Refused::Denied(format!("{id} lets nobody steer it")));
        }
        self.acted.lock().expect("acted").push((id, action));
        let done = match action {
            Action::Suspend if row.state == State::Suspended => Done::Already,
            Action::Suspend if row.state == State::Blocked => {
                row.stopping = true;
                Done::OnReturn
            }
            Action::Suspend if row.name.as_deref() == Some("stubborn") => Done::Asked,
            Action::Suspend => {
                row.state = State::Suspended;
                Done::Now
            }
            Action::Resume if row.state != State::Suspended => Done::Already,
            Action::Resume => {
                row.state = State::Runnable;
                Done::Now
            }
            Action::Cancel => {
                self.end(id);
                return Ok(Done::Now);
            }
            Action::Priority(n) if row.priority == n => Done::Already,
            Action::Priority(n) => {
                row.priority = n;
                Done::Now
            }
        };
        self.put(row);
        Ok(done)
    }

    fn backtrace(&self, id: Id) -> Result<String, Refused> {
        let row = self.microprocess(id)?;
        Ok(format!("0: {}::work\n1: main", row.name.unwrap_or_default()))
    }

    fn metrics(&self) -> Vec<Metric> {
        self.ask(|asked| asked.0 += 1);
        self.metrics.lock().expect("metrics").clone()
    }

    fn trace(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match self.traced.load(Ordering::Relaxed) {
            0 => {
                Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "nothing is traced here"))
            }
            bytes => out.write_all(&vec![b'x'; bytes as usize]),
        }
    }
}
