//! `dbus`: D-Bus by zbus, through a separate `dbus-daemon`. All callers share one connection.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kumihimo_bench_kit::rpc::{Answer, Check, Plan, Side, serve, until_told};
use serde_bytes::{ByteBuf, Bytes};
use zbus::Connection;
use zbus::connection::Builder;

use crate::futures::{Call, by_futures, runtime};
use crate::while_;

const NAME: &str = "org.example.Sums";
const PATH: &str = "/org/example/Sums";

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    match plan.side {
        Side::Server => server(plan),
        Side::Client => by_futures(plan, async || {
            let builder =
                Builder::address(address(plan).as_str()).method_timeout(Duration::from_secs(60));
            Ok(Client(builder.build().await.map_err(while_("connect"))?))
        }),
    }
}

fn address(plan: &Plan) -> String {
    format!("unix:path={}", plan.place.join("bus").display())
}

fn server(plan: &Plan) -> Result<(), String> {
    let mut daemon = daemon(plan)?;
    let (tell, told) = std::sync::mpsc::channel();
    let (runtime, check, address) = (runtime(plan)?, plan.check, address(plan));
    std::thread::spawn(move || {
        runtime.block_on(async {
            let serving = Builder::address(address.as_str())
                .serve_at(PATH, Sums(check))
                .name(NAME)
                .build()
                .await;
            let is_there = serving.is_ok();
            _ = tell.send(serving.as_ref().map(|_| ()).map_err(while_("the bus")));
            if is_there {
                std::future::pending::<()>().await;
            }
        });
    });
    let served = told.recv().map_err(|_| "the server has ended".to_owned()).flatten();
    if served.is_ok() {
        // The daemon's CPU time counts as the server's.
        println!("ready {}", daemon.id());
        until_told();
    }
    _ = daemon.kill();
    _ = daemon.wait();
    served.map(|()| std::process::exit(0))
}

/// Starts a daemon that accepts only its own user and ends with this process.
fn daemon(plan: &Plan) -> Result<Child, String> {
    let configuration = plan.place.join("bus.conf");
    let text = format!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"
 \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">
<busconfig>
  <listen>{}</listen>
  <policy context=\"default\"><allow send_destination=\"*\"/><allow eavesdrop=\"false\"/><allow own=\"*\"/></policy>
  <limit name=\"max_incoming_bytes\">1000000000</limit>
  <limit name=\"max_outgoing_bytes\">1000000000</limit>
  <limit name=\"max_message_size\">134217728</limit>
  <limit name=\"max_replies_per_connection\">50000</limit>
</busconfig>
",
        address(plan)
    );
    std::fs::write(&configuration, text).map_err(while_("its configuration"))?;
    let mut command = Command::new("dbus-daemon");
    command.args(["--nofork", "--print-address", "--config-file"]).arg(configuration);
    // The daemon warns that its limit on descriptors is low.
    let log = File::create(plan.place.join("bus.log")).map_err(while_("its log"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // SAFETY: prctl(2) is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut daemon = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            "refused: dbus-daemon is not installed (Debian: apt-get install dbus-daemon)".to_owned()
        }
        _ => format!("dbus-daemon: {e}"),
    })?;
    let mut said = String::new();
    let output = daemon.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut said).map_err(while_("dbus-daemon"))?;
    if said.is_empty() {
        _ = daemon.kill();
        _ = daemon.wait();
        return Err(format!(
            "dbus-daemon ended at once; see {}",
            plan.place.join("bus.log").display()
        ));
    }
    Ok(daemon)
}

struct Sums(Check);

#[zbus::interface(name = "org.example.Sums")]
impl Sums {
    fn sum(&self, payload: ByteBuf) -> (u64, u64) {
        let Answer { number, sum } = serve(&payload, self.0);
        (number, sum)
    }
}

#[derive(Clone)]
struct Client(Connection);

impl Call for Client {
    async fn call(&mut self, payload: &[u8]) -> Result<Answer, String> {
        let reply =
            self.0.call_method(Some(NAME), PATH, Some(NAME), "Sum", &Bytes::new(payload)).await;
        let (number, sum) =
            reply.and_then(|reply| reply.body().deserialize()).map_err(while_("the call"))?;
        Ok(Answer { number, sum })
    }
}
