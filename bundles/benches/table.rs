//! How fast bundles are, against what people would do otherwise: `scripts/bench` runs it and prints the table of
//! docs/performance.md. Ours and theirs run in turn, and each figure is the median of the ratios of neighbours, so that
//! a machine that grows slower makes both slower.
//!
//! In: the programs of this machine as data, skopeo, pigz, a registry (target/parts), the container engine. Out: a
//! table. Not here: a verdict; a machine that is busy gives other figures, and the load is printed with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a measurement that fails is none
#![allow(clippy::print_stdout, clippy::print_stderr)] // its output is what it is for
#![allow(missing_docs, unreachable_pub)]

#[allow(dead_code)] // the tests use more of it
#[path = "../src/store/tests/registry.rs"]
mod registry;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mesh_bundles::SILENT;
use mesh_bundles::archive::{FileMode, Limits};
use mesh_bundles::config::{Config, Facts};
use mesh_bundles::depot::Depot;
use mesh_bundles::entries::{Entry, Source};
use mesh_bundles::image::worn;
use mesh_bundles::pack::{Layer, pack_entries};
use mesh_bundles::store::{Options, PlainHttp, Publication, Store, StoreAddress};
use mesh_engine::{Engine, Environment, endpoint};
use mesh_protocol::id::{Digest, System};
use registry::{Registry, parts};

/// How much is packed.
const AMOUNT: u64 = 100_000_000;
const NAME: &str = "bench";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "child", operation, ref rest @ ..] => child(operation, rest),
        _ => table(&Place::new(), rounds()),
    }
}

fn rounds() -> usize {
    std::env::var("MESH_BENCH_ROUNDS").ok().map_or(5, |rounds| rounds.parse().unwrap())
}

/// Whether an operation prints its peak memory: what is measured in milliseconds must not.
const PEAK: &str = "MESH_BENCH_PEAK";

/// One operation in a process of its own.
fn child(operation: &str, rest: &[&str]) {
    // As `mesh bundle` and `mesh image` have it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = |address: &str| {
        let address = StoreAddress::parse(address, PlainHttp::LoopbackOnly).unwrap();
        Store::new(address, &Options::default()).unwrap()
    };
    match (operation, rest) {
        ("publish", [address, archive, config]) => {
            let config: Config = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
            let name = Path::new(archive).file_name().unwrap().to_str().unwrap();
            let digest: Digest = format!("sha256:{name}").parse().unwrap();
            let archive = Path::new(archive);
            let size = archive.metadata().unwrap().len();
            let publication = Publication { archive, digest: &digest, size, config: &config, created: None };
            runtime.block_on(store(address).publish(&publication, SILENT)).unwrap();
        }
        ("fetch", [address, digest, folder]) => {
            let (digest, folder) = (digest.parse().unwrap(), Path::new(folder));
            let archive = folder.join("archive");
            let repository = NAME.parse().unwrap();
            let fetching = store(address);
            let fetching = fetching.fetch(&repository, &digest, &archive, AMOUNT, SILENT);
            runtime.block_on(fetching).unwrap();
            let depot = Depot::open(&folder.join("depot")).unwrap();
            depot.unpack(&digest, &archive, Limits::default()).unwrap();
        }
        // As `mesh image build` does it: packed, and given to the engine without a file or a client of it in between.
        ("image", [program, layer, reference]) => {
            let connecting = runtime.spawn(async {
                let endpoint = endpoint::resolve(None, &Environment::of_this_process()).unwrap();
                Engine::connect(&endpoint).await.unwrap()
            });
            let layer = Path::new(layer);
            let source = Source::File { path: program.into(), mode: FileMode::Program };
            let entries = vec![Entry { path: "program".parse().unwrap(), source }];
            let cores = std::thread::available_parallelism().unwrap().get();
            let to = layer.to_path_buf();
            let packing = runtime.spawn_blocking(move || pack_entries(entries, &to, cores, SILENT).unwrap());
            runtime.block_on(async {
                let (packed, engine) = tokio::join!(packing, connecting);
                let (packed, engine) = (packed.unwrap(), engine.unwrap());
                let image = worn(packed.at(layer), System::of_this_program(), reference).unwrap();
                let open = || async { Ok(image.stream().unwrap()) };
                engine.load_image(open).await.unwrap();
            });
        }
        other => panic!("{other:?}"),
    }
    if std::env::var_os(PEAK).is_some() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        println!("{}", peak.trim().trim_end_matches(" kB"));
    }
}

/// What is measured with.
struct Place {
    folder: tempfile::TempDir,
    data: PathBuf,
    entries: Vec<Entry>,
    bytes: u64,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mut found = Vec::new();
        for from in [parts(), "/usr/bin".into(), "/usr/sbin".into(), "/usr/lib".into()] {
            programs(&from, &mut found);
        }
        found.sort();
        let (mut bytes, mut entries) = (0, Vec::new());
        for (number, from) in found.iter().enumerate() {
            if bytes >= AMOUNT {
                break;
            }
            let name = format!("{number:04}");
            bytes += std::fs::copy(from, data.join(&name)).unwrap();
            let source = Source::File { path: data.join(&name), mode: FileMode::Program };
            entries.push(Entry { path: name.parse().unwrap(), source });
        }
        Self { folder, data, entries, bytes }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pack(&self, output: &Path, workers: usize) -> Layer {
        pack_entries(self.entries.clone(), output, workers, SILENT).unwrap()
    }

    fn fresh(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        let _none = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// With a cache that knows nothing of earlier runs.
    fn skopeo(&self, home: &Path, arguments: &[&str]) -> Command {
        let _ = self;
        let root = parts().join("skopeo/usr");
        let libraries: Vec<_> =
            std::fs::read_dir(root.join("lib")).unwrap().map(|found| found.unwrap().path()).collect();
        let mut command = Command::new(root.join("bin/skopeo"));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap()).env("HOME", home);
        command.args(["--insecure-policy", "copy", "--quiet"]).args(arguments);
        command
    }
}

/// Programs and libraries of a megabyte and more.
fn programs(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(found) = std::fs::read_dir(folder) else { return };
    for found in found.filter_map(Result::ok) {
        let (path, Ok(kind)) = (found.path(), found.file_type()) else { continue };
        if kind.is_dir() {
            programs(&path, into);
        } else if kind.is_file() && found.metadata().is_ok_and(|found| found.len() >= 1_000_000) {
            let mut begin = [0; 4];
            let read = std::fs::File::open(&path)
                .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin));
            if read.is_ok() && &begin == b"\x7fELF" {
                into.push(path);
            }
        }
    }
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn own(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("child").args(arguments);
    command
}

/// Its peak memory, in KiB.
fn ours(arguments: &[&str]) -> u64 {
    let said = run(own(arguments).env(PEAK, "1"));
    String::from_utf8(said).unwrap().trim().parse().unwrap()
}

/// What came before is on the disk by then: nobody pays for what somebody else has written.
fn timed(work: impl FnOnce()) -> Duration {
    rustix::fs::sync();
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// The processor time of this process and of those that it waited for: what a busy machine changes little.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // proc(5): behind the name come the fields from the third on; these are 14 to 17, in hundredths of a second.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_ascii_whitespace().skip(11).take(4).map(|field| field.parse::<f64>().unwrap());
    ticks.sum::<f64>() / 100.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Rounds of ours and theirs in turn.
#[derive(Default)]
struct Compared {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Compared {
    fn add(&mut self, ours: Duration, theirs: Duration) {
        self.ours.push(ours.as_secs_f64());
        self.theirs.push(theirs.as_secs_f64());
    }

    fn row(self, what: &str, against: &str, aim: &str, more: &str) {
        // Ratios only: seconds are a machine's, and of a moment.
        let ratio = median(self.theirs.iter().zip(&self.ours).map(|(theirs, ours)| theirs / ours).collect());
        let decimals = if ratio < 2.0 { 2 } else { 1 };
        println!("| {what} | {against} | {aim} | **{ratio:.decimals$} x** | {more} |");
    }
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().to_owned()
}

fn table(place: &Place, rounds: usize) {
    let cores = std::thread::available_parallelism().unwrap().get();
    println!(
        "{cores} cores, {:.1} MB in {} programs, {rounds} rounds, load at the beginning {}\n",
        place.bytes as f64 / 1e6,
        place.entries.len(),
        load()
    );
    println!("| what | against | aim | ratio | |\n|---|---|---|---|---|");
    let layer = packing(place, rounds, cores);
    let archive = place.at(layer.digest.hex());
    place.pack(&archive, cores);
    storing(place, rounds, &layer, &archive);
    image(place, rounds);
    println!("\nload at the end {}", load());
}

fn packing(place: &Place, rounds: usize, cores: usize) -> Layer {
    let output = place.at("packed");
    let pipe = |compress: &str| {
        let script = format!("set -o pipefail; tar c . | {compress} | tee >(wc -c >&2) | sha256sum");
        let plain = format!("set -o pipefail; tar c . | {compress} | sha256sum");
        (script, plain)
    };
    let bash = |script: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", script]).current_dir(&place.data);
        bash
    };
    let pigz = format!("{} -6", parts().join("pigz/usr/bin/pigz").display());
    let layer = place.pack(&output, cores);
    for workers in 1..=3 {
        assert_eq!(place.pack(&output, workers), layer, "the bytes depend on the number of workers");
    }
    for (compress, name, aim) in [("gzip -6", "gzip -6", "4.5 x"), (pigz.as_str(), "pigz -6", "2 x")] {
        let (counting, plain) = pipe(compress);
        let counted = bash(&counting).stderr(Stdio::piped()).output().unwrap();
        let size: f64 = String::from_utf8(counted.stderr).unwrap().trim().parse().unwrap();
        let mut compared = Compared::default();
        let (mut ours_worked, mut theirs_worked) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let begin = processor();
            let ours = timed(|| drop(place.pack(&output, cores)));
            let between = processor();
            compared.add(ours, timed(|| drop(run(&mut bash(&plain)))));
            ours_worked.push(between - begin);
            theirs_worked.push(processor() - between);
        }
        let difference = (layer.size as f64 / size - 1.0) * 100.0;
        let more = format!(
            "size {difference:+.2} %, the same bytes with 1, 2 and 3 threads; {:.1} times less processor time",
            median(theirs_worked) / median(ours_worked)
        );
        compared.row("pack, with both digests", &format!("`tar c . \\| {name} \\| sha256sum`"), aim, &more);
    }
    layer
}

fn storing(place: &Place, rounds: usize, layer: &Layer, archive: &Path) {
    let entrypoint = layer.files[0].path.clone();
    let facts = Facts {
        name: NAME.parse().unwrap(),
        version: "1.0".to_owned(),
        system: System::of_this_program(),
        entrypoint,
    };
    let config = place.at("config.json");
    std::fs::write(&config, Config::new(facts, layer).unwrap().to_bytes()).unwrap();
    let (archive, config) = (archive.to_str().unwrap(), config.to_str().unwrap());
    let tag = format!("1.0-{}", System::of_this_program().dashed());
    let at = |registry: &Registry| format!("docker://{}/{NAME}:{tag}", registry.address);

    // What skopeo copies from.
    let filled = Registry::start();
    ours(&["publish", &filled.address.to_string(), archive, config]);
    let copy = place.fresh("copy");
    let from = format!("dir:{}", copy.display());
    run(&mut place.skopeo(&copy, &["--src-tls-verify=false", &at(&filled), &from]));

    let [mut first, mut again, mut both_again, mut fetch] = std::array::from_fn(|_| Compared::default());
    let (mut published, mut fetched) = (0, 0);
    for _ in 0..rounds {
        let (one, other) = (Registry::start(), Registry::start());
        let address = one.address.to_string();
        let home = place.fresh("home");
        let publishing = ["publish", &address, archive, config];
        let target = at(&other);
        let push = || drop(run(&mut place.skopeo(&home, &["--dest-tls-verify=false", &from, &target])));
        let publish = timed(|| published = published.max(ours(&publishing)));
        let copy = timed(push);
        first.add(publish, copy);
        // Short, and so more often.
        for _ in 0..5 {
            let unchanged = timed(|| drop(run(&mut own(&publishing))));
            again.add(unchanged, copy);
            both_again.add(unchanged, timed(push));
        }

        let (into, theirs, home) = (place.fresh("fetched"), place.fresh("theirs"), place.fresh("home"));
        let digest = layer.digest.as_str();
        let get = || ours(&["fetch", &address, digest, into.to_str().unwrap()]);
        let pull = || {
            let target = format!("dir:{}", theirs.display());
            run(&mut place.skopeo(&home, &["--src-tls-verify=false", &at(&other), &target]));
            let unpacked = place.fresh("unpacked");
            run(Command::new("tar").arg("xzf").arg(theirs.join(layer.digest.hex())).current_dir(unpacked));
        };
        fetch.add(timed(|| fetched = fetched.max(get())), timed(pull));
    }
    let peak = |kilobytes: u64| format!("peak memory {:.1} MB", kilobytes as f64 * 1024.0 / 1e6);
    first.row(
        "publish to a loopback registry, and read back",
        "`skopeo copy`",
        "faster; < 30 MB",
        &peak(published),
    );
    let unchanged = "publish it again, unchanged";
    again.row(unchanged, "`skopeo copy` as above", "5 x; 3 requests", "no blob byte, 3 requests (tested)");
    both_again.row(unchanged, "`skopeo copy` again, unchanged", "", "both find it there");
    let against = "`skopeo copy` and `tar xzf`";
    fetch.row("fetch, verify, unpack, sync", against, "faster; < 30 MB", &peak(fetched));
}

/// Stands for the controller: a program of its size, in an image with nothing else.
fn image(place: &Place, rounds: usize) {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/mesh").join(System::of_this_program().dashed());
    let program = Some(program.join("mesh-controller")).filter(|program| program.is_file());
    let program = program.unwrap_or_else(|| parts().join("nats-server/usr/sbin/nats-server"));
    let context = place.fresh("context");
    std::fs::copy(&program, context.join("program")).unwrap();
    std::fs::write(context.join("Dockerfile"), "FROM scratch\nCOPY program /program\nLABEL a=b\n").unwrap();
    let docker = |arguments: &[&str]| {
        let mut docker = Command::new("docker");
        docker.env("DOCKER_BUILDKIT", "0").args(arguments);
        docker
    };
    let references = [
        format!("mesh-bench/ours:{}", std::process::id()),
        format!("mesh-bench/theirs:{}", std::process::id()),
    ];
    let mut ids = std::collections::BTreeSet::new();
    let mut compared = Compared::default();
    for _ in 0..rounds {
        let (packed, layer) = (context.join("program"), place.at("layer"));
        let ours = timed(|| {
            ours(&["image", packed.to_str().unwrap(), layer.to_str().unwrap(), &references[0]]);
        });
        let id = run(&mut docker(&["image", "inspect", "--format", "{{.Id}}", &references[0]]));
        ids.insert(id);
        let theirs = timed(|| {
            run(&mut docker(&[
                "build",
                "--quiet",
                "--no-cache",
                "--tag",
                &references[1],
                context.to_str().unwrap(),
            ]));
        });
        compared.add(ours, theirs);
        for reference in &references {
            run(&mut docker(&["image", "rm", "--force", reference]));
        }
    }
    let size = program.metadata().unwrap().len() as f64 / 1e6;
    let more = format!("{size:.1} MB, {} id in {rounds} builds", ids.len());
    compared.row("an image, built and in the engine", "`docker build`", "2 x; one id", &more);
}
