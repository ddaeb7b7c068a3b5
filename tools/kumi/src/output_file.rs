//! Files that a command writes: a complete file replaces an existing one, or nothing does.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use kumihimo_config::named_file;

/// Has `write` write the file. An existing file is replaced only by a complete one; a pipe or a
/// device is written to.
pub(crate) fn replace(
    output: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), String>,
) -> Result<(), String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| format!("{path}: {e}")
    };
    let write = |file: File| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush().map_err(failed(output))
    };
    if named_file::is_stream(output) {
        let file = named_file::open(output, OpenOptions::new().write(true));
        return file.map_err(failed(output)).and_then(write);
    }
    let mut target = output.to_owned();
    let mut mode = None;
    if output.symlink_metadata().is_ok() {
        // What may be there is what may be written to.
        let there =
            named_file::open(output, OpenOptions::new().write(true)).and_then(|f| f.metadata());
        mode = Some(there.map_err(failed(output))?.permissions());
        target = output.canonicalize().map_err(failed(output))?;
    }
    let (file, part) = named_file::create_beside(&target, ".part").map_err(failed(&target))?;
    let done = write(file).and_then(|()| {
        mode.map_or(Ok(()), |mode| std::fs::set_permissions(&part, mode)).map_err(failed(&part))?;
        std::fs::rename(&part, &target).map_err(failed(output))
    });
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    done
}
