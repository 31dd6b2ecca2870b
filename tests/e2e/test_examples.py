"""The Python examples of the reference pages, run as they stand there."""

import html
import re

DEMO = re.compile(r"demo-.*")
EXAMPLE = re.compile(r'<code id="python-(\w+)">(.*?)</code>', re.DOTALL)


def test_every_example_of_every_demo_model_runs(wire, key, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PORTUNUS_KEY", key)
    monkeypatch.chdir(tmp_path)
    kinds = set()
    for entry in wire.get("/api/models", key=None).json()["data"]:
        if not DEMO.fullmatch(entry["id"]):
            continue
        page = wire.get(f"/models/{entry['id']}", key=None).body.decode()
        examples = EXAMPLE.findall(page)
        assert examples, entry["id"]
        for format, text in examples:
            name = f"{entry['id']}, {format}"
            exec(compile(html.unescape(text), name, "exec"), {})
            printed = capsys.readouterr().out.strip()
            if entry["model_type"] == "image":
                picture = tmp_path / "picture.png"
                assert picture.read_bytes().startswith(b"\x89PNG"), name
                picture.unlink()
            else:
                assert printed, name
            kinds.add((entry["model_type"], format))
    assert kinds == {
        ("chat", "chat"), ("chat", "responses"), ("chat", "messages"), ("chat", "native"),
        ("image", "images"), ("image", "native"),
        ("embedding", "embeddings"), ("embedding", "native"),
    }
