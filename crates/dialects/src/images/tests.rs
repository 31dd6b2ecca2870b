//! Requests and replies of all families.

use super::*;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, GeneratedImage, ImageFamily, ImageSize, MediaSource};
use media::encode_base64;
use serde_json::{Value, json};

/// Header of a PNG with one pixel.
pub(super) fn png(width: u32, height: u32, alpha: bool) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file.extend([8, if alpha { 6 } else { 2 }, 0, 0, 0]);
    file
}

fn read(form: &ImageRequestForm, body: &Value) -> Result<ParsedImageRequest, ApiError> {
    form.read(&Bytes::from(body.to_string()))
}

fn ask(more: Value) -> Value {
    let mut body = json!({ "model": "m", "prompt": "a cat" });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn errors_name_the_invalid_field() {
    let cases = [
        (json!({ "prompt": "" }), "prompt"),
        (json!({ "prompt": 5 }), "prompt"),
        (json!({ "prompt": "x".repeat(32_001) }), "prompt"),
        (json!({ "model": null }), "model"),
        (json!({ "n": 0 }), "n"),
        (json!({ "n": 11 }), "n"),
        (json!({ "n": 1.5 }), "n"),
        (json!({ "n": -1 }), "n"),
        (json!({ "n": "2" }), "n"),
        (json!({ "n": 4_294_967_296_u64 }), "n"),
        (json!({ "quality": "" }), "quality"),
        (json!({ "quality": ["low"] }), "quality"),
        (json!({ "output_format": "svg" }), "output_format"),
        (json!({ "output_format": "PNG" }), "output_format"),
        (json!({ "output_format": "../x" }), "output_format"),
        (json!({ "output_compression": 101 }), "output_compression"),
        (json!({ "background": "red" }), "background"),
        (json!({ "background": "transparent", "output_format": "jpeg" }), "background"),
        (json!({ "moderation": "off" }), "moderation"),
        (json!({ "partial_images": 4 }), "partial_images"),
        (json!({ "partial_images": -1 }), "partial_images"),
        (json!({ "stream": "yes" }), "stream"),
        (json!({ "response_format": "xml" }), "response_format"),
        (json!({ "user": "u".repeat(5_000) }), "user"),
        (json!({ "aspect_ratio": "wide" }), "aspect_ratio"),
        (json!({ "aspect_ratio": "16:9", "size": "1024x1024" }), "aspect_ratio"),
        (json!({ "image": "data:image/png;base64,PHN2Zy8+" }), "image"),
        (json!({ "image": "ftp://x" }), "image"),
        (json!({ "image": [{ "file_id": "f" }] }), "image[0].file_id"),
    ];
    for (more, path) in cases {
        let fault = read(&ImageRequestForm::Generation, &ask(more.clone())).unwrap_err();
        assert_eq!(fault.param(), Some(path), "{more}");
    }
    for size in [
        "0x0",
        "-1x-1",
        "99999x999999",
        "1024",
        "1024x",
        "x1024",
        "1024X1024",
        "1024 x 1024",
        "1024*1024",
        "1e3x1e3",
        "１０２４x１０２４",
        "1024x1024x1024",
        "9K",
        "K",
    ] {
        let fault = read(&ImageRequestForm::Generation, &ask(json!({ "size": size }))).unwrap_err();
        assert_eq!(fault.param(), Some("size"), "{size}");
    }
    let fault = read(&ImageRequestForm::JsonEdit, &ask(json!({}))).unwrap_err();
    assert_eq!(fault.param(), Some("image"));
    for body in ["[]", "5", "{", ""] {
        assert!(ImageRequestForm::Generation.read(&Bytes::from(body)).is_err(), "{body}");
    }
}

#[test]
fn form_and_json_read_the_same() {
    let mut form = multipart::FormWriter::new("x");
    form.text("model", "m");
    form.text("prompt", "a cat");
    form.text("n", "2");
    form.text("stream", "true");
    form.text("response_format", "b64_json");
    let file = png(4, 4, false);
    for name in ["image", "image[]", "image[1]"] {
        form.file(name, "cat.png", "image/png", &file);
    }
    form.file("mask", "mask.png", "image/png", &png(4, 4, true));
    let boundary = "portunus-x".to_owned();
    let body = form.finish();
    let upload = ImageRequestForm::MultipartEdit { boundary };
    let order = upload.read(&body).unwrap();
    let uri = format!("data:image/png;base64,{}", encode_base64(&file));
    let mask = format!("data:image/png;base64,{}", encode_base64(png(4, 4, true)));
    let same = ask(json!({ "n": 2, "stream": true, "response_format": "b64_json",
        "images": [{ "image_url": uri }, { "image_url": { "url": uri } }, uri],
        "mask": { "image_url": mask } }));
    assert_eq!(order.picture, read(&ImageRequestForm::JsonEdit, &same).unwrap().picture);

    let sent = upload.patch(&body, &order, "other").outgoing.body.to_vec();
    let again = upload.read(&Bytes::from(sent)).unwrap().picture;
    assert_eq!((again.model.as_str(), again.delivery), ("other", None));
    assert_eq!(again.inputs, order.picture.inputs);
}

#[test]
fn forms_and_json_have_the_same_rules() {
    let form = |fields: &[(&str, &str)], file: Option<(&str, &[u8])>| {
        let mut form = multipart::FormWriter::new("x");
        fields.iter().for_each(|(name, value)| form.text(name, value));
        if let Some((name, bytes)) = file {
            form.file(name, "x.png", "image/png", bytes);
        }
        ImageRequestForm::MultipartEdit { boundary: "portunus-x".to_owned() }.read(&form.finish())
    };
    let file = png(4, 4, false);
    let good = [("model", "m"), ("prompt", "a")];
    assert!(form(&good, Some(("image", &file))).is_ok());
    assert_eq!(form(&good, None).unwrap_err().param(), Some("image"));
    assert_eq!(form(&good, Some(("image", b"text"))).unwrap_err().param(), Some("image"));
    assert_eq!(form(&good, Some(("photo", &file))).unwrap_err().param(), Some("photo"));
    let twice = [("model", "m"), ("model", "m"), ("prompt", "a")];
    assert_eq!(form(&twice, Some(("image", &file))).unwrap_err().param(), Some("model"));
    let two = [("model", "m"), ("prompt", "a"), ("n", "two")];
    assert_eq!(form(&two, Some(("image", &file))).unwrap_err().param(), Some("n"));
}

#[test]
fn mask_must_fit_the_first_image() {
    let uri = |file: &[u8]| format!("data:image/png;base64,{}", encode_base64(file));
    let judge = |mask: &[u8]| {
        let body = ask(json!({ "images": [{ "image_url": uri(&png(8, 4, false)) }],
            "mask": { "image_url": uri(mask) } }));
        read(&ImageRequestForm::JsonEdit, &body)
            .map(|_| ())
            .map_err(|fault| fault.param().map(str::to_owned))
    };
    assert_eq!(judge(&png(8, 4, true)), Ok(()));
    assert_eq!(judge(&png(8, 4, false)), Err(Some("mask".to_owned())));
    assert_eq!(judge(&png(4, 8, true)), Err(Some("mask".to_owned())));
    let large = json!({ "images": [{ "image_url": uri(&png(65_535, 65_535, false)) }] });
    let fault = read(&ImageRequestForm::JsonEdit, &ask(large)).unwrap_err();
    assert_eq!(fault.param(), Some("image[0]"));
}

#[test]
fn patch_replaces_only_the_model() {
    let body = Bytes::from_static(b"{ \"x\":1,\"prompt\" : \"a\", \"model\":\"m\" }");
    let order = ImageRequestForm::Generation.read(&body).unwrap();
    assert!(order.is_gpt_body());
    let sent = ImageRequestForm::Generation.patch(&body, &order, "up").outgoing;
    assert_eq!(sent.path, "/v1/images/generations");
    assert_eq!(sent.body.to_vec(), b"{ \"x\":1,\"prompt\" : \"a\", \"model\":\"up\" }");
    let named = ask(json!({ "image": "https://x.example/a.png" }));
    assert!(!read(&ImageRequestForm::Generation, &named).unwrap().is_gpt_body());
}

fn written(spoken: ImageProtocol, more: Value) -> (Vec<ImageProviderRequest>, Vec<String>) {
    let order = read(&ImageRequestForm::Generation, &ask(more)).unwrap();
    let (written, losses) = spoken.write(&order.picture, "up", "w").unwrap();
    (written, losses.into_iter().map(|loss| loss.path).collect())
}

fn body_of(written: &ImageProviderRequest) -> Value {
    serde_json::from_slice(&written.outgoing.body.to_vec()).unwrap()
}

#[test]
fn writes_the_request_of_every_family() {
    let (all, losses) =
        written(ImageProtocol::Native, json!({ "size": "2048x2048", "n": 2, "quality": "high" }));
    assert_eq!((all.len(), losses), (2, vec!["quality".to_owned()]));
    assert_eq!(all[0].outgoing.path, "/v1beta/models/up:generateContent");
    assert_eq!(
        body_of(&all[0])["generationConfig"],
        json!({ "responseModalities": ["TEXT", "IMAGE"],
            "imageConfig": { "aspectRatio": "1:1", "imageSize": "2K" } })
    );
    let order = read(&ImageRequestForm::Generation, &ask(json!({ "size": "1000x100" }))).unwrap();
    let fault = ImageProtocol::Native.write(&order.picture, "up", "w").unwrap_err();
    assert_eq!(fault.param(), Some("size"));

    let uri = format!("data:image/png;base64,{}", encode_base64(png(4, 4, false)));
    let (all, losses) = written(
        ImageProtocol::Images(ImageFamily::Seedream),
        json!({ "size": "2K", "n": 3, "image": uri, "seed": 7, "style": "vivid" }),
    );
    assert_eq!(losses, ["style"]);
    assert_eq!(
        body_of(&all[0]),
        json!({ "model": "up", "prompt": "a cat", "image": uri, "size": "2K", "seed": 7,
            "sequential_image_generation": "auto",
            "sequential_image_generation_options": { "max_images": 3 },
            "response_format": "b64_json" })
    );

    let (all, losses) =
        written(ImageProtocol::Images(ImageFamily::Xai), json!({ "size": "1536x1024" }));
    assert_eq!(losses, ["size"]);
    assert_eq!(body_of(&all[0])["aspect_ratio"], "3:2");

    let (all, losses) = written(
        ImageProtocol::Images(ImageFamily::Dashscope),
        json!({ "size": "512x768", "n": 2 }),
    );
    assert!(losses.is_empty());
    assert_eq!(body_of(&all[0])["parameters"], json!({ "size": "512*768", "n": 2 }));
    assert_eq!(all[0].headers, [("x-dashscope-async", "enable")]);

    let (all, _) =
        written(ImageProtocol::Images(ImageFamily::Flux), json!({ "size": "512x768", "n": 2 }));
    assert_eq!((all.len(), all[0].outgoing.path.as_str()), (2, "/v1/up"));
    assert_eq!(body_of(&all[1]), json!({ "prompt": "a cat", "width": 512, "height": 768 }));

    let (all, _) =
        written(ImageProtocol::Images(ImageFamily::Predictions), json!({ "aspect_ratio": "16:9" }));
    assert_eq!(all[0].outgoing.path, "/v1/models/up/predictions");
    assert_eq!(body_of(&all[0])["input"], json!({ "prompt": "a cat", "aspect_ratio": "16:9" }));

    let (all, losses) =
        written(ImageProtocol::Images(ImageFamily::Gpt), json!({ "image": uri, "n": 2 }));
    assert!(losses.is_empty());
    let boundary = boundary(all[0].content_type.as_deref().unwrap()).unwrap().unwrap();
    let sent = Bytes::from(all[0].outgoing.body.to_vec());
    let again = ImageRequestForm::MultipartEdit { boundary }.read(&sent).unwrap().picture;
    assert_eq!((again.count, again.inputs.len()), (2, 1));
    assert_eq!(again.size, ImageSize::Auto);
}

#[test]
fn reads_task_states() {
    let read =
        |family, body: Value| ImageProtocol::Images(family).read(body.to_string().as_bytes());
    let later = |path: &str| Ok(ImageAnswer::Pending(path.to_owned()));
    assert_eq!(
        read(ImageFamily::Seedream, json!({ "id": "t1", "status": "pending" })),
        later("/v1/images/generations/t1")
    );
    assert_eq!(
        read(
            ImageFamily::Dashscope,
            json!({ "output": { "task_id": "a-1", "task_status": "PENDING" } })
        ),
        later("/api/v1/tasks/a-1")
    );
    let url = "https://api.eu.bfl.ai/v1/get_result?id=1";
    assert_eq!(read(ImageFamily::Flux, json!({ "id": "1", "polling_url": url })), later(url));
    assert_eq!(
        read(
            ImageFamily::Predictions,
            json!({ "id": "1", "status": "starting", "urls": { "get": url } })
        ),
        later(url)
    );
    for id in ["../x", "..", "a b", "a?b", ""] {
        assert!(
            read(ImageFamily::Seedream, json!({ "id": id, "status": "queued" })).is_err(),
            "{id}"
        );
    }
    let link = "https://x.example/a.png";
    let made = |answer: Result<ImageAnswer, ApiError>| match answer.unwrap() {
        ImageAnswer::Finished(pictures) => pictures.images,
        ImageAnswer::Pending(path) => panic!("still to be asked at {path}"),
    };
    let there = GeneratedImage::Image {
        source: MediaSource::Url { url: link.to_owned(), mime: None },
        revised: None,
        size: None,
    };
    let failed =
        GeneratedImage::Failed { code: "DataInspectionFailed".to_owned(), say: "no".to_owned() };
    let results = json!({ "output": { "task_status": "SUCCEEDED", "results":
        [{ "url": link }, { "code": "DataInspectionFailed", "message": "no" }] } });
    assert_eq!(made(read(ImageFamily::Dashscope, results)), [there.clone(), failed]);
    let ready = json!({ "status": "Ready", "result": { "sample": link } });
    assert_eq!(made(read(ImageFamily::Flux, ready)), std::slice::from_ref(&there));
    let output = json!({ "status": "succeeded", "output": [link] });
    assert_eq!(made(read(ImageFamily::Predictions, output)), [there]);
    let fault = read(ImageFamily::Flux, json!({ "status": "Content Moderated" })).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::ContentPolicy);
    let fault =
        read(ImageFamily::Predictions, json!({ "status": "failed", "error": "x" })).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::Unavailable);
}

#[test]
fn rejects_data_that_is_not_an_image() {
    let body = json!({ "data": [{ "b64_json": encode_base64(b"<svg/>") }] });
    let fault =
        ImageProtocol::Images(ImageFamily::Gpt).read(body.to_string().as_bytes()).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::Unavailable);
    let body = json!({ "error": { "message": "no", "type": "invalid_request_error" } });
    let fault =
        ImageProtocol::Images(ImageFamily::Gpt).read(body.to_string().as_bytes()).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::InvalidRequest);
}

#[test]
fn too_many_input_images_are_refused_before_their_end_is_read() {
    for name in ["images", "image"] {
        let urls = [r#""https://x.example/a.png""#; 17].join(",");
        let body = Bytes::from(format!(r#"{{"{name}":[{urls},}}"#));
        let fault = ImageRequestForm::JsonEdit.read(&body).unwrap_err();
        assert_eq!(fault.message(), format!("`{name}` must have at most 16 items"));
        assert_eq!(fault.param(), Some(name));
    }
}
