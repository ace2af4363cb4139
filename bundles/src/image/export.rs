//! Several images in one docker-archive: all that a genesis without network needs, in one file.
//!
//! In: images that were assembled. Out: an archive that every engine loads, the same bytes for the same images; and what
//! images an archive has. Not here: the engine; and archives of other tools beyond reading their list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use mesh_protocol::id::Digest;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{BUNDLE_LABEL, ImageArchive, ImageError, LAYER_LABEL, PROGRAM_LABEL};
use crate::archive::padding;
use crate::files::Beside;
use crate::manifest::canonical;
use crate::path::{BundlePath, PathFault};
use crate::ustar::{self, BLOCK, Type};

/// A list of images and their configurations are a few kilobytes.
const MAX_DOCUMENT: u64 = 1 << 20;
const MAX_ENTRIES: usize = 10_000;
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
    File { path: PathBuf, size: u64 },
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
        let images: Vec<_> = images.into_iter().collect();
        let listed: Vec<_> = images
            .iter()
            .map(|image| Listed {
                config: config_name(image),
                repo_tags: Some(vec![image.reference.clone()]),
                layers: vec![layer_name(image)],
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
                let size = image.layer_size;
                bytes.extend(ustar::encode(&layer_name(image).parse()?, Type::File, 0o644, size, ""));
                segments.push(Segment::Bytes(std::mem::take(&mut bytes)));
                segments.push(Segment::File { path: image.layer_path.clone(), size });
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
        let size = |segment: &Segment| match segment {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::File { size, .. } => *size,
        };
        self.segments.iter().map(size).sum()
    }

    /// The archive, as a stream.
    ///
    /// # Errors
    /// When a layer's file cannot be opened.
    pub fn reader(&self) -> io::Result<impl Read + Send + use<>> {
        let mut whole: Box<dyn Read + Send> = Box::new(io::empty());
        for segment in &self.segments {
            whole = match segment {
                Segment::Bytes(bytes) => Box::new(whole.chain(Cursor::new(bytes.clone()))),
                Segment::File { path, size } => Box::new(whole.chain(File::open(path)?.take(*size))),
            };
        }
        Ok(whole)
    }

    /// The archive, for whoever must not wait for a disk: an engine is sent it without a file of it in between, which
    /// would be written and synced only to be read once.
    ///
    /// # Errors
    /// When a layer's file cannot be opened, or has another length than when it was packed.
    pub async fn stream(&self) -> Result<impl AsyncRead + Send + use<>, ImageError> {
        let mut whole: Pin<Box<dyn AsyncRead + Send>> = Box::pin(tokio::io::empty());
        for segment in &self.segments {
            whole = match segment {
                Segment::Bytes(bytes) => Box::pin(whole.chain(Cursor::new(bytes.clone()))),
                Segment::File { path, size } => {
                    let unread = |source| ImageError::File { path: path.clone(), source };
                    let layer = tokio::fs::File::open(path).await.map_err(unread)?;
                    let found = layer.metadata().await.map_err(unread)?.len();
                    if found != *size {
                        return Err(ImageError::LayerChanged { path: path.clone(), found, expected: *size });
                    }
                    Box::pin(whole.chain(layer.take(*size)))
                }
            };
        }
        Ok(whole)
    }

    /// The archive, as a file: whole, or not there.
    ///
    /// # Errors
    /// When a layer cannot be read, or the file not written.
    pub fn write_to(&self, output: &Path) -> Result<(), ImageError> {
        let failed = |source| ImageError::File { path: output.to_path_buf(), source };
        let mut file = Beside::create(output).map_err(failed)?;
        for segment in &self.segments {
            match segment {
                Segment::Bytes(bytes) => {
                    io::copy(&mut Cursor::new(bytes), file.as_file()).map_err(failed)?;
                }
                Segment::File { path, size } => {
                    let unread = |source| ImageError::File { path: path.clone(), source };
                    let mut layer = File::open(path).map_err(unread)?.take(*size);
                    let found = io::copy(&mut layer, file.as_file()).map_err(failed)?;
                    if found != *size {
                        return Err(ImageError::LayerChanged { path: path.clone(), found, expected: *size });
                    }
                }
            }
        }
        file.commit().map_err(failed)
    }
}

fn config_name(image: &ImageArchive) -> String {
    format!("{}.json", image.id.hex())
}

fn layer_name(image: &ImageArchive) -> String {
    format!("{}.tar.gz", image.layer.hex())
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
        let mut streamed = Vec::new();
        Read::read_to_end(&mut export.reader().unwrap(), &mut streamed).unwrap();
        assert!(streamed == bytes);
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
    async fn a_stream_has_the_same_bytes_and_a_layer_that_is_another_by_now_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one");
        let one = packed(a_bundle("one", "1.0"), &file);
        let export = Export::new([&worn(one.at(&file), one.config.system, "mesh/one:1").unwrap()]).unwrap();
        let (mut whole, mut streamed) = (Vec::new(), Vec::new());
        Read::read_to_end(&mut export.reader().unwrap(), &mut whole).unwrap();
        export.stream().await.unwrap().read_to_end(&mut streamed).await.unwrap();
        assert!(streamed == whole);
        std::fs::write(&file, b"shorter").unwrap();
        let changed = export.stream().await.err().unwrap();
        assert!(matches!(changed, ImageError::LayerChanged { found: 7, .. }), "{changed}");
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
