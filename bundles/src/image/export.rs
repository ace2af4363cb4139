//! Several images in one docker-archive: all that a genesis without network needs, in one file.
//!
//! In: images that were assembled. Out: an archive that every engine loads, the same bytes for the same images; and what
//! images an archive has. Not here: the engine; and archives of other tools beyond reading their list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use mesh_protocol::id::Digest;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

use super::{BUNDLE_LABEL, ImageArchive, ImageError, LAYER_LABEL, PROGRAM_LABEL};
use crate::archive::padding;
use crate::files::Beside;
use crate::gunzip::Gunzip;
use crate::manifest::canonical;
use crate::path::{BundlePath, PathFault};
use crate::ustar::{self, BLOCK, Type};

/// A list of images and their configurations are a few kilobytes.
const MAX_DOCUMENT: u64 = 1 << 20;
const MAX_ENTRIES: usize = 10_000;
/// What a stream reads at once, and how much of that waits.
const PORTION: usize = 256 << 10;
const AHEAD: usize = 4;
const MANIFEST: &str = "manifest.json";

/// One image in `manifest.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// A docker-archive of some images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Bytes(Vec<u8>),
    /// A layer's file of `packed` bytes, in this form, which has `size` bytes.
    Layer {
        path: PathBuf,
        packed: u64,
        size: u64,
        form: Form,
    },
}

/// How a layer is in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is packed: what travels, or is kept.
    Packed,
    /// As the tar that is in it: an engine undoes the compression on one processor, in a quarter of the time that a load
    /// takes; here it is undone beside what the engine does.
    Plain,
}

/// An image in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedImage {
    /// The digest of its configuration.
    pub id: Digest,
    /// Its names.
    pub references: Vec<String>,
    /// The bundle that it is, if it is one.
    pub bundle: Option<Digest>,
    /// The program that it was assembled around, if it was.
    pub program: Option<String>,
    /// Its layer, where it says so: one of ours does.
    pub layer: Option<Digest>,
}

impl Export {
    /// An archive of these images, in this order. A layer that two have is in it once.
    ///
    /// # Errors
    /// When a name cannot be in an archive, which no digest is.
    pub fn new<'a>(images: impl IntoIterator<Item = &'a ImageArchive>) -> Result<Self, ImageError> {
        Self::with(images, Form::Packed)
    }

    pub(super) fn with<'a>(
        images: impl IntoIterator<Item = &'a ImageArchive>,
        form: Form,
    ) -> Result<Self, ImageError> {
        let images: Vec<_> = images.into_iter().collect();
        let listed: Vec<_> = images
            .iter()
            .map(|image| Listed {
                config: config_name(image),
                repo_tags: Some(vec![image.reference.clone()]),
                layers: vec![layer_name(image, form)],
            })
            .collect();
        let mut segments = Vec::new();
        let mut bytes = Vec::new();
        put_file(&mut bytes, MANIFEST, &canonical(&listed))?;
        let mut done = BTreeSet::new();
        for image in images {
            if done.insert(&image.id) {
                put_file(&mut bytes, &config_name(image), &image.config)?;
            }
            if done.insert(&image.layer) {
                let packed = image.layer_size;
                let size = if form == Form::Packed { packed } else { image.unpacked_size };
                bytes.extend(ustar::encode(&layer_name(image, form).parse()?, Type::File, 0o644, size, ""));
                segments.push(Segment::Bytes(std::mem::take(&mut bytes)));
                segments.push(Segment::Layer { path: image.layer_path.clone(), packed, size, form });
                bytes.resize(padding(size), 0);
            }
        }
        bytes.extend(ustar::END);
        segments.push(Segment::Bytes(bytes));
        Ok(Self { segments })
    }

    /// Its length.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.segments.iter().map(Segment::size).sum()
    }

    /// The archive, as a stream.
    ///
    /// # Errors
    /// When a layer's file cannot be opened, or has another length than when it was packed.
    fn reader(&self) -> Result<Box<dyn Read + Send>, ImageError> {
        let mut whole: Box<dyn Read + Send> = Box::new(io::empty());
        for segment in &self.segments {
            whole = Box::new(whole.chain(segment.open()?));
        }
        Ok(whole)
    }

    /// The archive, for whoever must not wait for a disk: an engine is sent it without a file of it in between, which
    /// would be written and synced only to be read once.
    ///
    /// # Errors
    /// When a layer's file cannot be opened, or has another length than when it was packed.
    pub(super) fn stream(&self) -> Result<impl AsyncRead + Send + use<>, ImageError> {
        let mut reader = self.reader()?;
        let (portions, mut waiting) = mpsc::channel(AHEAD);
        tokio::task::spawn_blocking(move || {
            loop {
                let mut portion = Vec::with_capacity(PORTION);
                let read = reader.by_ref().take(PORTION as u64).read_to_end(&mut portion);
                let is_end = matches!(read, Ok(0) | Err(_));
                // Who wants no more is gone.
                if portions.blocking_send(read.map(|_| Bytes::from(portion))).is_err() || is_end {
                    return;
                }
            }
        });
        Ok(StreamReader::new(stream::poll_fn(move |context| waiting.poll_recv(context))))
    }

    /// The archive, as a file: whole, or not there.
    ///
    /// # Errors
    /// When a layer cannot be read, or the file not written.
    pub fn write_to(&self, output: &Path) -> Result<(), ImageError> {
        let failed = |source| ImageError::File { path: output.to_path_buf(), source };
        let mut reader = self.reader()?;
        let mut file = Beside::create(output).map_err(failed)?;
        io::copy(&mut reader, file.as_file()).map_err(failed)?;
        file.commit().map_err(failed)
    }
}

impl Segment {
    fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Layer { size, .. } => *size,
        }
    }

    fn open(&self) -> Result<Box<dyn Read + Send>, ImageError> {
        let (path, packed, size, form) = match self {
            Self::Bytes(bytes) => return Ok(Box::new(Cursor::new(bytes.clone()))),
            Self::Layer { path, packed, size, form } => (path, *packed, *size, *form),
        };
        let unread = |source| ImageError::File { path: path.clone(), source };
        let file = File::open(path).map_err(unread)?;
        let found = file.metadata().map_err(unread)?.len();
        if found != packed {
            return Err(ImageError::LayerChanged { path: path.clone(), found, expected: packed });
        }
        let source: Box<dyn Read + Send> = match form {
            Form::Packed => Box::new(file),
            Form::Plain => Box::new(Unpacking(Gunzip::new(file, size))),
        };
        Ok(Box::new(Exactly { source, left: size }))
    }
}

/// The tar in a layer's file.
struct Unpacking(Gunzip<File>);

impl Read for Unpacking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(io::Error::other)
    }
}

/// As many bytes as the header before them says, or an error.
struct Exactly<R> {
    source: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        let wrong = || io::Error::other("a layer's file is not what it was when it was packed");
        self.left = self.left.checked_sub(count as u64).ok_or_else(wrong)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(wrong());
        }
        Ok(count)
    }
}

fn config_name(image: &ImageArchive) -> String {
    format!("{}.json", image.id.hex())
}

fn layer_name(image: &ImageArchive, form: Form) -> String {
    match form {
        Form::Packed => format!("{}.tar.gz", image.layer.hex()),
        Form::Plain => format!("{}.tar", image.diff_id.hex()),
    }
}

fn put_file(tar: &mut Vec<u8>, name: &str, content: &[u8]) -> Result<(), PathFault> {
    let name: BundlePath = name.parse()?;
    let size = content.len() as u64;
    tar.extend(ustar::encode(&name, Type::File, 0o644, size, ""));
    tar.extend(content);
    tar.resize(tar.len() + padding(size), 0);
    Ok(())
}

/// The images in an archive of ours, or of another tool that writes plain ustar; nothing of it is unpacked.
///
/// # Errors
/// When it is none.
pub fn list(archive: &Path) -> Result<Vec<ListedImage>, ImageError> {
    let fault = |what: &str| ImageError::Archive { path: archive.to_path_buf(), what: what.to_owned() };
    let failed = |source| ImageError::File { path: archive.to_path_buf(), source };
    let mut file = File::open(archive).map_err(failed)?;
    let places = places(&mut file).map_err(|what| fault(&what))?;
    let mut document = |name: &str| {
        let (at, size) = places.get(name).ok_or_else(|| fault(&format!("it has no {name}")))?;
        if *size > MAX_DOCUMENT {
            return Err(fault(&format!("{name} has {size} bytes, expected at most {MAX_DOCUMENT}")));
        }
        file.seek(SeekFrom::Start(*at)).map_err(failed)?;
        let mut bytes = Vec::new();
        file.by_ref().take(*size).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    };
    #[derive(Deserialize)]
    struct Config {
        config: Option<Labels>,
    }
    #[derive(Deserialize)]
    struct Labels {
        #[serde(rename = "Labels")]
        labels: Option<BTreeMap<String, String>>,
    }
    let listed: Vec<Listed> = serde_json::from_slice(&document(MANIFEST)?)
        .map_err(|error| fault(&format!("{MANIFEST}: {error}")))?;
    let mut images = Vec::new();
    for Listed { config, repo_tags, layers } in listed {
        let bytes = document(&config)?;
        let parsed: Config =
            serde_json::from_slice(&bytes).map_err(|error| fault(&format!("{config}: {error}")))?;
        if let Some(missing) = layers.iter().find(|layer| !places.contains_key(*layer)) {
            return Err(fault(&format!("it has no {missing}")));
        }
        let labels = parsed.config.and_then(|config| config.labels).unwrap_or_default();
        images.push(ListedImage {
            id: Digest::of(&bytes),
            references: repo_tags.unwrap_or_default(),
            bundle: labels.get(BUNDLE_LABEL).and_then(|digest| digest.parse().ok()),
            program: labels.get(PROGRAM_LABEL).cloned(),
            layer: layer_of(&labels),
        });
    }
    Ok(images)
}

/// The layer of an image of ours, by its labels; none of another.
#[must_use]
pub fn layer_of(labels: &BTreeMap<String, String>) -> Option<Digest> {
    labels.get(BUNDLE_LABEL).or_else(|| labels.get(LAYER_LABEL))?.parse().ok()
}

/// Where each file of a tar is, and how long.
fn places(file: &mut File) -> Result<BTreeMap<String, (u64, u64)>, String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut places = BTreeMap::new();
    let mut at = 0;
    for number in 1..=MAX_ENTRIES {
        let mut block = [0; BLOCK];
        file.seek(SeekFrom::Start(at))
            .and_then(|_| file.read_exact(&mut block))
            .map_err(|_| "it is cut off")?;
        if block.iter().all(|b| *b == 0) {
            return Ok(places);
        }
        let header = ustar::decode(&block).map_err(|fault| format!("entry {number}: {fault}"))?;
        let begin = at + BLOCK as u64;
        at = begin + header.size + padding(header.size) as u64;
        if at > length {
            return Err("it is cut off".to_owned());
        }
        if header.kind == Type::File {
            let name =
                String::from_utf8(header.name).map_err(|_| format!("entry {number}: a name not UTF-8"))?;
            places.insert(name, (begin, header.size));
        }
    }
    Err(format!("it has more than {MAX_ENTRIES} entries"))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::image::worn;
    use crate::testing::{a_bundle, packed};

    #[test]
    fn several_images_are_one_archive_and_a_shared_layer_is_in_it_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let [one, two] = ["one", "two"].map(|name| packed(a_bundle(name, "1"), &at(name)));
        let image = |packed: &crate::pack::Packed, name: &str, reference: &str| {
            worn(packed.at(&at(name)), packed.config.system, reference).unwrap()
        };
        let images = [
            image(&one, "one", "mesh/one:1"),
            image(&two, "two", "mesh/two:1"),
            image(&one, "one", "mesh/same:1"),
        ];
        let export = Export::new(&images).unwrap();
        export.write_to(&at("images.tar")).unwrap();
        let bytes = std::fs::read(at("images.tar")).unwrap();
        assert_eq!(bytes.len() as u64, export.size());
        let listed = list(&at("images.tar")).unwrap();
        let shown: Vec<_> = listed.iter().map(|image| (&image.id, image.references[0].as_str())).collect();
        assert_eq!(
            shown,
            [(&images[0].id, "mesh/one:1"), (&images[1].id, "mesh/two:1"), (&images[0].id, "mesh/same:1")]
        );
        assert_eq!(
            (listed[1].bundle.as_ref(), listed[1].layer.as_ref()),
            (Some(&two.digest), Some(&two.digest))
        );
        assert_eq!(listed[1].program, None);
        let output = std::process::Command::new("tar").arg("-tf").arg(at("images.tar")).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 5);
    }

    #[tokio::test]
    async fn a_stream_has_the_tar_that_is_in_the_layer_and_a_layer_that_is_another_by_now_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let one = packed(a_bundle("one", "1.0"), &at("one"));
        let image = worn(one.at(&at("one")), one.config.system, "mesh/one:1").unwrap();
        let mut streamed = Vec::new();
        image.stream().unwrap().read_to_end(&mut streamed).await.unwrap();
        std::fs::write(at("streamed"), &streamed).unwrap();
        let listed = &list(&at("streamed")).unwrap()[0];
        assert_eq!((&listed.id, listed.layer.as_ref()), (&image.id, Some(&one.digest)));
        let places = places(&mut File::open(at("streamed")).unwrap()).unwrap();
        let (begin, size) = places[&format!("{}.tar", one.diff_id.hex())];
        let [begin, end] = [begin, begin + size].map(|at| usize::try_from(at).unwrap());
        assert_eq!(Digest::of(&streamed[begin..end]), one.diff_id);

        // As long as it was, and another.
        let mut other = std::fs::read(at("one")).unwrap();
        let middle = other.len() / 2;
        other[middle..].fill(0);
        std::fs::write(at("one"), &other).unwrap();
        image.stream().unwrap().read_to_end(&mut streamed).await.unwrap_err();
        std::fs::write(at("one"), b"shorter").unwrap();
        let changed = image.stream().err().unwrap();
        assert!(matches!(changed, ImageError::LayerChanged { found: 7, .. }), "{changed}");
        let changed = Export::new([&image]).unwrap().write_to(&at("out")).unwrap_err();
        assert!(matches!(changed, ImageError::LayerChanged { found: 7, .. }), "{changed}");
        assert!(!at("out").exists());
    }

    #[test]
    fn a_source_with_less_or_more_than_it_should_have_is_an_error() {
        let read = |has: usize, left| {
            let mut exactly = Exactly { source: Cursor::new(vec![7; has]), left };
            Read::read_to_end(&mut exactly, &mut Vec::new())
        };
        assert_eq!(read(1000, 1000).unwrap(), 1000);
        read(999, 1000).unwrap_err();
        read(1001, 1000).unwrap_err();
    }

    #[test]
    fn what_is_no_archive_of_images_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("images.tar");
        let said = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            match list(&file).unwrap_err() {
                ImageError::Archive { what, .. } => what,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(said(b""), "it is cut off");
        assert_eq!(said(&[0; 1024]), "it has no manifest.json");
        assert!(said(&[7; 1024]).starts_with("entry 1: "));
        let mut tar = Vec::new();
        put_file(&mut tar, MANIFEST, br#"[{"Config":"c.json","Layers":[]}]"#).unwrap();
        assert_eq!(said(&tar[..600]), "it is cut off");
        tar.extend(ustar::END);
        assert_eq!(said(&tar), "it has no c.json");
    }
}
