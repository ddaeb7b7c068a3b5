//! Apache with one small file: the module `worker`, a thread per connection, or `event`.

use std::path::Path;

use crate::bench::contender::Trouble;
use crate::bench::contender::installed::installed;
use crate::bench::load::requests::protocol::BODY;
use crate::bench::plan::unmodified::EVENT;
use crate::bench::runs::unmodified::command::under;
use crate::bench::runs::unmodified::setup::{Prepared, Setup};

const HOW: &str = "apt-get install apache2";
/// Folders of the modules in distributions.
const MODULES: [&str; 3] =
    ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules"];
/// Threads of `event`, which serve all connections in turn. It closes persistent connections when
/// it has fewer than there are requests at a time.
const EVENT_THREADS: usize = 256;
/// Connections beside those of the load, for example that of the start.
const OTHERS: usize = 100;

/// Writes the configuration and the file that is served.
pub fn prepare(
    setup: &Setup,
    runtime: &'static str,
    port: u16,
    connections: usize,
) -> Result<Prepared, Trouble> {
    let server = installed("httpd", HOW).or_else(|_| installed("apache2", HOW))?;
    let modules = MODULES
        .iter()
        .map(Path::new)
        .find(|folder| folder.is_dir())
        .ok_or_else(|| Trouble::Refused(format!("no folder of Apache's modules ({HOW})")))?;
    let folder = setup.folder("apache")?;
    let files = folder.join("files");
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    std::fs::create_dir(&files).map_err(|e| format!("{}: {e}", files.display()))?;
    write(&files.join("index.html"), BODY)?;
    let configuration = folder.join("configuration");
    write(&configuration, &text(&folder, modules, runtime == EVENT, port, connections))?;
    let mut command = under(runtime, &server)?;
    command.arg("-f").arg(&configuration).arg("-DFOREGROUND");
    Ok(Prepared { command, folder, remarks: String::new() })
}

fn text(folder: &Path, modules: &Path, is_event: bool, port: u16, connections: usize) -> String {
    let (folder, modules) = (folder.display(), modules.display());
    let room = connections + OTHERS;
    let (module, threads) = if is_event { ("event", EVENT_THREADS) } else { ("worker", room) };
    let mut text = format!(
        "ServerRoot {folder}\n\
         LoadModule mpm_{module}_module {modules}/mod_mpm_{module}.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         LoadModule dir_module {modules}/mod_dir.so\n\
         Listen 127.0.0.1:{port}\n\
         ListenBacklog 4096\n\
         ServerName localhost\n\
         DocumentRoot {folder}/files\n\
         DirectoryIndex index.html\n\
         PidFile {folder}/pid\n\
         ErrorLog {folder}/error.log\n\
         KeepAlive On\n\
         MaxKeepAliveRequests 0\n\
         KeepAliveTimeout 600\n\
         Timeout 600\n\
         StartServers 1\n\
         ServerLimit 1\n\
         ThreadLimit {threads}\n\
         ThreadsPerChild {threads}\n\
         MaxRequestWorkers {threads}\n\
         MinSpareThreads 1\n\
         MaxSpareThreads {threads}\n"
    );
    if is_event {
        // The limit on connections is (factor + 1) * threads.
        text += &format!("AsyncRequestWorkerFactor {}\n", room.div_ceil(threads));
    }
    if rustix::process::geteuid().is_root() {
        text += "User nobody\nGroup nogroup\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_modules_have_room_for_all_connections() {
        let of = |is_event| text(Path::new("/f"), Path::new("/m"), is_event, 1, 8_000);
        assert!(of(false).contains("ThreadsPerChild 8100\n") && !of(false).contains("Async"));
        let event = of(true);
        assert!(event.contains("ThreadsPerChild 256\n"), "{event}");
        assert!(event.contains("AsyncRequestWorkerFactor 32\n"), "{event}");
    }
}
