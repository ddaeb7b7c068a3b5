//! Inputs with which the corpora began.

use std::path::Path;

/// Commands that reach each group of commands of the key-value server.
const COMMANDS: &str = "SET a 1\nSET b x EX 100\nSET c y PX 1\nSET a 2 NX GET\nSET a 2 XX KEEPTTL\n\
    GET a\nINCR a\nINCRBY a 5\nDECR a\nDECRBY a 3\nAPPEND a z\nSTRLEN a\nSETNX d 1\nMSET e 1 f 2\n\
    MGET a b nil\nLPUSH l 1 2 3\nRPUSH l 4\nLPOP l\nRPOP l 2\nLRANGE l 0 -1\nLLEN l\nBLPOP l 0\n\
    BRPOP l none 0.01\nEXPIRE a 10\nPEXPIRE a 1 NX\nEXPIREAT a 1\nPEXPIREAT b 99999999999999 GT\n\
    TTL b\nPTTL b\nPERSIST b\nTYPE l\nKEYS *\nKEYS [a-c]?\\\\x*\nSCAN 0 MATCH * COUNT 3 TYPE list\n\
    DBSIZE\nDEL a b\nEXISTS a a\nSELECT 3\nFLUSHALL ASYNC\nPUBLISH ch m\nSUBSCRIBE ch\n\
    UNSUBSCRIBE\nPSUBSCRIBE c*\nPUNSUBSCRIBE\nPING\nECHO hi\nAUTH secret\nHELLO 3\nQUIT\n\
    CLIENT LIST\nCLIENT SETNAME me\nCLIENT INFO\nCLIENT ID\nCLIENT KILL ID 1\nCOMMAND DOCS get\n\
    COMMAND INFO get\nCOMMAND COUNT\nCONFIG GET *\nINFO\nSHUTDOWN\nNOTHING x\n\"quo\\x41\" 'b\\'' c";

const ASKED: &str = r#"{"protocol":1,"ask":"space"}
{"protocol":1,"ask":"microprocesses"}
{"protocol":1,"ask":"microprocess","id":"1.microprocess.0.1"}
{"protocol":1,"ask":"resources","kind":"timer"}
{"protocol":1,"ask":"resources"}
{"protocol":1,"ask":"act","id":"1.microprocess.0.1","action":{"priority":3}}
{"protocol":1,"ask":"act","id":"1.microprocess.0.1","action":"suspend"}
{"protocol":1,"ask":"backtrace","id":"1.microprocess.1.1"}
{"protocol":1,"ask":"metrics"}
{"protocol":1,"ask":"trace"}
{"protocol":2,"ask":"space"}
"#;

const ANSWERS: [&str; 10] = [
    r#"{"id":"1.space.0.0","pid":1,"program":"p","version":"0","vps":2,"living":3,"queue":"ring","policy":"fifo","events":"off","locking":"vp"}
{"end":1}
"#,
    r#"{"id":"1.microprocess.0.1","name":"n","state":"waiting","stopping":true,"waits_for":"m","priority":3,"inherited":4,"vp":0,"kernel_thread":7,"sticky":"s"}
{"end":1}
"#,
    "{\"error\":{\"kind\":\"stale\",\"message\":\"gone\"}}\n",
    r#"{"id":"1.timer.0.1","owner":"1.microprocess.0.1","state":"armed","names":["/timer/x"]}
{"end":1}
"#,
    "{\"done\":\"now\"}\n{\"end\":1}\n",
    "{\"text\":\"main\\n\"}\n{\"end\":1}\n",
    "{\"name\":\"m\",\"help\":\"h\",\"counter\":true,\"samples\":[[[[\"k\",\"v\"]],1.5]]}\n{\"end\":1}\n",
    "{\"bytes\":5}\nhello{\"bytes\":0}\n{\"end\":2}\n",
    "{\"protocol\":1,\"version\":\"0.1.0\",\"space\":12}\n",
    "{\"end\":0}\n",
];

const VALUES: [(u8, &str); 16] = [
    (0, "4"),
    (1, "perf"),
    (2, "signal=10"),
    (3, "100"),
    (4, "160k"),
    (4, "1GB"),
    (5, "/tmp/x.%p"),
    (6, "/run/x"),
    (7, "none"),
    (8, "50.5%,20ms,hard"),
    (9, "report=200"),
    (10, "SIGRTMIN+3"),
    (11, "tls=donor,guard=mprotect,batch=fixed:3,uring=off,trace_buffer=1024,queue=ring"),
    (11, "fsbase=arch_prctl,dlopen=listed,locking=vp,bpf=switch,sticky=on,tls=,,x=y=z"),
    (8, "18446744073709551615us"),
    (11, "tls=clone,tls=donor,unknown=1,batch"),
];

/// The first inputs of a target. Others begin with random bytes.
#[must_use]
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let lines = || COMMANDS.lines();
    let resp = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let all = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), all.collect::<String>())
    };
    let inline: String = lines().map(|line| format!("{line}\r\n")).collect();
    let arrays: String = lines().map(resp).collect();
    let with = |first: &[u8], rest: &str| [first, rest.as_bytes()].concat();
    match target {
        "kv_requests" => vec![with(&[0, 7], &inline), with(&[1, 0], &arrays[..300])],
        "kv_commands" => {
            let mut all: Vec<_> = lines().map(|line| with(&[0], &format!("{line}\r\n"))).collect();
            all.push(with(&[1], &arrays));
            all.push(with(&[2], &inline));
            all
        }
        "kv_log" => {
            let of = |from: usize, to: usize| {
                lines().skip(from).take(to - from).map(resp).collect::<String>().into_bytes()
            };
            vec![of(0, 5), of(6, 10), of(15, 19), [of(23, 29), vec![0; 9]].concat(), of(37, 39)]
        }
        "control_requests" => {
            let mut all: Vec<_> = ASKED.lines().map(|line| format!("{line}\n").into()).collect();
            all.push(ASKED.into());
            all
        }
        "control_answers" => {
            (0..16).map(|how| with(&[how], ANSWERS[usize::from(how) % 10])).collect()
        }
        "config" => VALUES.iter().map(|(which, value)| with(&[*which], value)).collect(),
        "link_records" => handshakes(),
        "ext2" => images(),
        "unwind" => tables(),
        _ => Vec::new(),
    }
}

/// Records of the handshake: hello, welcome, refusal.
fn handshakes() -> Vec<Vec<u8>> {
    let record = |kind: u8, rest: &[u8]| {
        let fields = [&[1; 8][..], &[4, 0, 0, 0, 0, 1, 0, 0, 1], &[7; 20], &[3]].concat();
        let body =
            if kind == 3 { Vec::new() } else { [&[u8::from(kind == 1)], &fields[..]].concat() };
        [&[0][..], b"KUMI\x01\x00", &[kind], &body, rest].concat()
    };
    vec![record(1, b"\x00\x04gate"), record(2, b"\x00"), record(3, b"\x03\x02\x00no")]
}

/// The images that the tests of the stores replay.
fn images() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../servers/proof/corpus");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read(file.path()).ok()).collect()
}

/// Unwind tables: a search table, and the frames of one function at 0x1000. See the target for the
/// bytes in front.
fn tables() -> Vec<Vec<u8>> {
    // Version 1, `zR`, code alignment 1, data alignment -8, return address 16, encoding pcrel
    // sdata4; CFA rsp+8, return address at cfa-8.
    let cie = [0_u8, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    let programs: [&[u8]; 5] = [
        &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0, 0, 0, 0, 0, 0, 0],
        &[0x0f, 3, 0x77, 8, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x10, 6, 3, 0x76, 0, 0x06, 0x0a, 0x0e, 32, 0x0b, 0, 0, 0, 0, 0],
        &[0x0f, 3, 0x2f, 0xfd, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x0e, 8, 0x16, 16, 2, 0x77, 0, 0x12, 7, 0x7f, 0, 0, 0, 0, 0],
    ];
    let of = |program: &[u8]| {
        let (tables, header) = (0x2_0000_i64, 20_i64);
        let mut frames = (cie.len() as u32).to_le_bytes().to_vec();
        frames.extend(cie);
        let entry = frames.len() as i64;
        frames.extend((13 + program.len() as u32).to_le_bytes());
        frames.extend((entry as u32 + 4).to_le_bytes());
        let here = tables + header + frames.len() as i64;
        frames.extend(((0x1000 - here) as i32).to_le_bytes());
        frames.extend(0x1000_u32.to_le_bytes());
        frames.push(0);
        frames.extend(program);
        frames.extend([0; 4]);
        let mut segment = vec![1, 0x1b, 3, 0x3b];
        segment.extend(((header - 4) as i32).to_le_bytes());
        segment.extend(1_u32.to_le_bytes());
        segment.extend(((0x1000 - tables) as i32).to_le_bytes());
        segment.extend(((header + entry) as i32).to_le_bytes());
        segment.extend(frames);
        // Interrupted at offset 8, with the frame pointer 16 bytes up; a table of 20 bytes, and a
        // stack of 64.
        let stack: Vec<u8> = [0x1004_u64, 0x7f00_0000_0020, 0x1008, 0, 0x1010, 0, 0x1020, 0]
            .map(u64::to_le_bytes)
            .concat();
        let mut input = vec![0];
        input.extend(0xc000_0000_u32.to_le_bytes());
        input.extend([8, 0, 16, 0, 20, 0, 64, 0]);
        [input, stack, segment].concat()
    };
    let mut all: Vec<Vec<u8>> = programs.into_iter().map(of).collect();
    all.push(b"\x030 0x5 0x7f 0x2000 0x0 0x0 0x0 0x7ffc10 0x7f4c2e\n".to_vec());
    all.push([&[2_u8][..], &[0x11; 300]].concat());
    all
}
