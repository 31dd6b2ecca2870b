"""What every client is asked, whatever its format: the same questions, the same tool, one picture."""

import base64
import struct
import zlib
from enum import Enum

from pydantic import BaseModel

STORY = "Tell me a story about a harbour."
LONG_STORY = "Tell me a very long and detailed story about a harbour."
WEATHER = "What is the weather in Paris, in celsius?"
TWO_CITIES = "What is the weather in Paris and in Oslo, in celsius?"
IDLE = "Good morning."
RESULT = '{"temperature": 21}'
LISBON = "Describe the harbour of Lisbon."
NEWS = "Search the web: what is the latest news about lighthouses?"

TOOL = "get_weather"
ABOUT = "Current weather in a city"
SHAPE = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
PARIS = {"city": "Paris", "unit": "celsius"}


def png(width, height):
    """A picture of one colour. The demo model tells the size of a picture it could read."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = zlib.compress((b"\0" + b"\x20\x60\xa0" * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )


PICTURE = png(24, 16)
PICTURE_64 = base64.b64encode(PICTURE).decode()
SEEN = "24 × 16 pixels"


class Mood(Enum):
    CALM = "calm"
    STORMY = "stormy"


class Ship(BaseModel):
    name: str
    masts: int
    mood: Mood


class Harbour(BaseModel):
    city: str
    open: bool
    ships: list[Ship]
