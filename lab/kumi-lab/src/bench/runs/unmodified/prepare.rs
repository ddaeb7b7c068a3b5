//! Data, configuration and command line of each server.

mod apache;
mod java;
mod mariadb;

use std::path::PathBuf;
use std::process::Command;

use super::command::under;
use super::setup::{Prepared, Setup, source};
use crate::bench::contender::installed::installed;
use crate::bench::contender::{Trouble, output_on, own_cores};
use crate::bench::load::requests::protocol::Protocol;
use crate::bench::plan::unmodified::{POOL, Program};

/// The protocol of a server.
pub fn protocol(program: Program) -> Protocol {
    match program {
        Program::Mariadb => Protocol::Mysql,
        Program::Apache | Program::Python => Protocol::Http,
        Program::Memcached => Protocol::Memcached,
        Program::Redis => Protocol::Redis,
        _ => Protocol::Echo,
    }
}

/// Prepares a server that listens on `port` of 127.0.0.1.
pub fn server(
    setup: &Setup,
    program: Program,
    runtime: &'static str,
    port: u16,
    connections: usize,
) -> Result<Prepared, Trouble> {
    let folder = || setup.folder(program.name());
    let port_text = port.to_string();
    match program {
        Program::Mariadb => {
            let options = mariadb::Options { port, connections, pool: runtime == POOL };
            mariadb::prepare(setup, runtime, &options)
        }
        Program::Apache => apache::prepare(setup, runtime, port, connections),
        Program::Java => {
            java::prepare(setup.java.get_or_init(|| java::find(setup)), setup, runtime, port)
        }
        Program::Python => {
            let mut command = under(runtime, &python()?)?;
            command.arg(source("http_server.py")).arg(port_text);
            Ok(Prepared { command, folder: folder()?, remarks: String::new() })
        }
        Program::Memcached => {
            let path = installed("memcached", "apt-get install memcached")?;
            let mut command = under(runtime, &path)?;
            command.args(["-l", "127.0.0.1", "-U", "0", "-p", &port_text]);
            if rustix::process::geteuid().is_root() {
                command.args(["-u", "root"]);
            }
            Ok(Prepared { command, folder: folder()?, remarks: String::new() })
        }
        Program::Redis => {
            let path = installed("redis-server", "apt-get install redis-server")?;
            let mut command = under(runtime, &path)?;
            let folder = folder()?;
            command.args(["--bind", "127.0.0.1", "--port", &port_text]);
            command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&folder);
            Ok(Prepared { command, folder, remarks: String::new() })
        }
        Program::CEcho => {
            let mut command = under(runtime, &setup.compiled("echo")?)?;
            command.arg(port_text);
            Ok(Prepared { command, folder: folder()?, remarks: String::new() })
        }
        Program::Xz | Program::Locks | Program::Threads => {
            Err(format!("{} is no server", program.name()).into())
        }
    }
}

/// The interpreter itself: on the PATH may be a script that selects one.
fn python() -> Result<PathBuf, Trouble> {
    let found = installed("python3", "apt-get install python3")?;
    let mut command = Command::new(found);
    command.args(["-c", "import sys; print(sys.executable)"]);
    Ok(PathBuf::from(output_on(&own_cores(), &mut command)?.trim()))
}
