"""Pictures with the official clients: made, edited, streamed, in every family and every format."""

import base64
import io
import urllib.request

import openai
import pytest
from google.genai import types
from PIL import Image

EVERYWHERE = pytest.mark.parametrize("name", ["demo-image", "simulated-image"])


def opened(data):
    """A picture in base64, decoded to its last pixel."""
    picture = Image.open(io.BytesIO(base64.b64decode(data)))
    picture.load()
    return picture


def file_of(picture):
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


@EVERYWHERE
@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_a_picture_has_the_size_and_format_asked_for(client, name, kind):
    made = client.images.generate(
        model=name, prompt="A lighthouse at dawn", size="256x128", output_format=kind,
        quality="low", n=2,
    )
    assert (made.size, made.output_format, made.quality) == ("256x128", kind, "low")
    assert made.background == "opaque" and made.created > 0
    assert len(made.data) == 2
    for one in made.data:
        picture = opened(one.b64_json)
        assert (picture.size, picture.format) == ((256, 128), kind.upper())
    usage = made.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens_details.text_tokens == usage.input_tokens


@EVERYWHERE
def test_an_edit_keeps_what_its_mask_covers(client, name):
    red = Image.new("RGBA", (128, 128), (255, 0, 0, 255))
    mask = red.copy()
    mask.paste((0, 0, 0, 0), (0, 0, 128, 64))
    made = client.images.edit(
        model=name, prompt="A sky", size="128x128",
        image=("red.png", file_of(red), "image/png"), mask=("mask.png", file_of(mask), "image/png"),
    )
    picture = opened(made.data[0].b64_json).convert("RGB")
    assert picture.getpixel((2, 124)) == (255, 0, 0)
    assert picture.getpixel((2, 10)) != (255, 0, 0)
    assert made.usage.input_tokens_details.image_tokens > 0


@EVERYWHERE
def test_several_pictures_go_into_one_edit(client, name):
    files = [
        (f"{at}.png", file_of(Image.new("RGB", (32, 32), colour)), "image/png")
        for at, colour in enumerate(["red", "blue"])
    ]
    made = client.images.edit(model=name, prompt="Both", size="128x128", image=files)
    assert opened(made.data[0].b64_json).size == (128, 128)


@EVERYWHERE
def test_a_stream_shows_drafts_and_ends_with_the_picture(client, name):
    events = list(
        client.images.generate(
            model=name, prompt="A gull", size="128x128", stream=True, partial_images=2
        )
    )
    partial, completed = "image_generation.partial_image", "image_generation.completed"
    assert [event.type for event in events] == [partial, partial, completed]
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    assert all(opened(event.b64_json).size == (128, 128) for event in events)
    assert events[-1].usage.output_tokens > 0
    red = file_of(Image.new("RGB", (64, 64), "red"))
    edited = list(
        client.images.edit(
            model=name, prompt="A gull", size="128x128", stream=True, image=("r.png", red)
        )
    )
    assert [event.type for event in edited] == ["image_edit.completed"]


@pytest.mark.parametrize("name", ["demo-image-native", "demo-image-url", "simulated-image-url"])
def test_other_families_come_through_the_same_door(client, name):
    made = client.images.generate(
        model=name, prompt="A harbour", response_format="b64_json", size="1024x1024"
    )
    assert opened(made.data[0].b64_json).size == (1024, 1024)
    (event,) = client.images.generate(model=name, prompt="A harbour", stream=True)
    assert event.type == "image_generation.completed"
    assert opened(event.b64_json).size == (1024, 1024)


@pytest.mark.parametrize("name", ["demo-image", "demo-image-url", "simulated-image-url"])
def test_links_are_the_gateways_own(client, url, name):
    made = client.images.generate(
        model=name, prompt="A pier", response_format="url", size="128x128"
    )
    link = made.data[0].url
    assert link.startswith(url)
    with urllib.request.urlopen(link, timeout=30) as answer:
        assert answer.headers["content-type"] == "image/png"
        assert Image.open(io.BytesIO(answer.read())).size == (128, 128)


def test_what_a_task_has_to_be_polled_for_is_simply_there(client):
    made = client.images.generate(
        model="simulated-image-url", prompt="Large", size="2K", response_format="b64_json"
    )
    assert opened(made.data[0].b64_json).size == (2048, 2048)


def test_what_a_model_does_not_make_is_refused_with_what_it_does(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.images.generate(model="demo-image", prompt="x", size="100x100")
    assert refused.value.param == "size" and "1024x1024" in refused.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        client.images.generate(model="demo-image", prompt="something forbidden")
    assert "safety" in refused.value.message
    with pytest.raises(openai.NotFoundError) as refused:
        client.images.generate(model="demo-chat", prompt="x")
    assert "chat model" in refused.value.message


def test_native_image_output(gemini):
    config = types.GenerateContentConfig(
        response_modalities=["TEXT", "IMAGE"],
        image_config=types.ImageConfig(aspect_ratio="16:9"),
    )
    red = types.Part.from_bytes(
        data=file_of(Image.new("RGB", (64, 64), "red")), mime_type="image/png"
    )
    for contents in ["A red boat", ["A red boat", red]]:
        reply = gemini.models.generate_content(
            model="demo-image-native", contents=contents, config=config
        )
        text, picture = reply.parts
        assert text.text and picture.as_image()
        assert Image.open(io.BytesIO(picture.inline_data.data)).size == (1376, 768)
        assert reply.usage_metadata.candidates_token_count > 1000
    pieces = gemini.models.generate_content_stream(
        model="demo-image-native", contents="A red boat", config=config
    )
    data = [part.inline_data for piece in pieces for part in piece.parts or [] if part.inline_data]
    assert len(data) == 1 and Image.open(io.BytesIO(data[0].data)).size == (1376, 768)


def test_pictures_in_chat_and_responses(client):
    answer = client.chat.completions.create(
        model="demo-image-native",
        messages=[{"role": "user", "content": "A red boat"}],
        extra_body={"modalities": ["image", "text"], "image_config": {"aspect_ratio": "2:3"}},
    )
    (image,) = answer.choices[0].message.images
    assert opened(image["image_url"]["url"].split(",")[1]).size == (832, 1248)
    answer = client.responses.create(model="demo-image-native", input="A red boat")
    (call,) = [item for item in answer.output if item.type == "image_generation_call"]
    assert opened(call.result).size == (1024, 1024)
