//! `iceoryx2`: requests and responses in its shared memory, into which the client writes each
//! payload. Each caller is a kernel thread with its own client; one kernel thread serves all.
//! `placement=spin`: both sides poll; `scheduled`: both wait for iceoryx2's events, one for all
//! requests, and one for the replies of each caller.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use iceoryx2::config::Config;
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::client::Client;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::prelude::{FileName, Path, SemanticString, SignalHandlingMode, ipc};
use iceoryx2::service::port_factory::{event, request_response};
use kumihimo_bench_kit::rpc::{Answer, Plan, Side, by_threads, fail, serve, until_told};

/// Maximum number of callers. With 1,024 callers, of which each has a node, connecting alone
/// exceeds the time limit.
const MOST: usize = 64;
/// Interval at which the server checks whether to end.
const LOOK: Duration = Duration::from_millis(100);

/// Number and sum of a payload.
type Sum = [u64; 2];

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled", "spin"])?;
    if plan.callers > MOST {
        return Err(format!(
            "refused: iceoryx2 supports at most {MOST} callers here, with a node and three ports each"
        ));
    }
    match plan.side {
        Side::Server => {
            let over = Arc::new(AtomicBool::new(false));
            let (its_plan, told) = (plan.clone(), over.clone());
            let server = thread::spawn(move || {
                if let Err(why) = answer(&its_plan, &told) {
                    fail(&why);
                }
            });
            until_told();
            over.store(true, Relaxed);
            // Dropping the server removes its shared memory.
            server.join().map_err(|_| "the server panicked".to_owned())
        }
        Side::Client => by_threads(plan, Ok, |n, payload| call(plan, *n, payload)),
    }
}

fn said<E: Debug>(what: &str) -> impl Fn(E) -> String + '_ {
    move |e| format!("{what}: {e:?}")
}

/// A node with private files.
fn node(plan: &Plan) -> Result<Node<ipc::Service>, String> {
    let mut config = Config::default();
    let place = plan.place.to_string_lossy();
    let own = plan.place.file_name().unwrap_or_default().to_string_lossy();
    config.global.set_root_path(&Path::new(place.as_bytes()).map_err(said("its directory"))?);
    config.global.prefix =
        FileName::new(format!("{own}_").as_bytes()).map_err(said("its prefix"))?;
    let node =
        NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled);
    node.create::<ipc::Service>().map_err(said("a node"))
}

fn sums(
    plan: &Plan,
    node: &Node<ipc::Service>,
) -> Result<request_response::PortFactory<ipc::Service, [u8], (), Sum, ()>, String> {
    let name = "sums".try_into().map_err(said("a name"))?;
    let service = node.service_builder(&name).request_response::<[u8], Sum>();
    let service = service.max_clients(plan.callers).max_nodes(plan.callers + 1).max_servers(1);
    service.open_or_create().map_err(said("the service"))
}

fn event(
    plan: &Plan,
    node: &Node<ipc::Service>,
    name: &str,
) -> Result<event::PortFactory<ipc::Service>, String> {
    let name = name.try_into().map_err(said("a name"))?;
    let event = node.service_builder(&name).event().max_notifiers(plan.callers).max_listeners(1);
    event.max_nodes(plan.callers + 1).open_or_create().map_err(said("an event"))
}

fn answered(n: usize) -> String {
    format!("answered/{n}")
}

fn answer(plan: &Plan, over: &AtomicBool) -> Result<(), String> {
    let node = node(plan)?;
    let server = sums(plan, &node)?.server_builder().create().map_err(said("the server"))?;
    let asked =
        event(plan, &node, "asked")?.listener_builder().create().map_err(said("a listener"))?;
    let tell = |n| {
        event(plan, &node, &answered(n))?.notifier_builder().create().map_err(said("a notifier"))
    };
    let tell = (0..plan.callers).map(tell).collect::<Result<Vec<_>, String>>()?;
    let spin = plan.placement == "spin";
    println!("ready");
    while !over.load(Relaxed) {
        if !spin {
            asked.timed_wait(|_| {}, LOOK).map_err(said("waiting"))?;
        }
        while let Some(request) = server.receive().map_err(said("receive"))? {
            let Answer { number, sum } = serve(request.payload(), plan.check);
            let caller = Caller::of(request.payload());
            request.send_copy([number, sum]).map_err(said("answer"))?;
            if !spin {
                tell.get(caller)
                    .ok_or("a request of an unknown caller")?
                    .notify()
                    .map_err(said("notify"))?;
            }
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// Ports of one caller, used only by its kernel thread.
struct Caller {
    client: Client<ipc::Service, [u8], (), Sum, ()>,
    ask: Notifier<ipc::Service>,
    answered: Listener<ipc::Service>,
    _node: Node<ipc::Service>,
}

impl Caller {
    fn new(plan: &Plan, n: usize) -> Result<Caller, String> {
        let node = node(plan)?;
        let client = sums(plan, &node)?.client_builder().initial_max_slice_len(plan.bytes).create();
        let ask = event(plan, &node, "asked")?.notifier_builder().create();
        let answered = event(plan, &node, &answered(n))?.listener_builder().create();
        Ok(Caller {
            client: client.map_err(said("a client"))?,
            ask: ask.map_err(said("a notifier"))?,
            answered: answered.map_err(said("a listener"))?,
            _node: node,
        })
    }

    /// Index of the caller, from the payload's first word.
    fn of(payload: &[u8]) -> usize {
        payload.first_chunk().map_or(usize::MAX, |word| (u64::from_ne_bytes(*word) >> 40) as usize)
    }

    fn call(&self, payload: &[u8], spin: bool) -> Result<Answer, String> {
        let request = self.client.loan_slice_uninit(payload.len()).map_err(said("loan"))?;
        let pending = request.write_from_slice(payload).send().map_err(said("send"))?;
        if !spin {
            self.ask.notify().map_err(said("notify"))?;
        }
        loop {
            if let Some(response) = pending.receive().map_err(said("receive"))? {
                let [number, sum] = *response.payload();
                return Ok(Answer { number, sum });
            }
            if spin {
                std::hint::spin_loop();
            } else {
                self.answered.blocking_wait(|_| {}).map_err(said("waiting"))?;
            }
        }
    }
}

thread_local! {
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

fn call(plan: &Plan, n: usize, payload: &[u8]) -> Result<Answer, String> {
    CALLER.with_borrow_mut(|caller| {
        let caller = match caller {
            Some(caller) => caller,
            None => caller.insert(Caller::new(plan, n)?),
        };
        caller.call(payload, plan.placement == "spin")
    })
}
