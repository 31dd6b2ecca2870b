"""A server of the Model Context Protocol, made with the official SDK."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")


@server.tool()
def get_weather(city: str) -> str:
    """Tells the weather of a city"""
    return f"It is 21 degrees and sunny in {city}"


@server.tool()
def broken_radar(city: str) -> str:
    """Shows the radar of a city"""
    raise ValueError("the radar is broken")


if __name__ == "__main__":
    server.run(transport="streamable-http", port=int(sys.argv[1]))
