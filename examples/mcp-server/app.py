"""An MCP server with two tools. The notes are in memory until the agent stops."""

import socket
import threading
import time

from mcp.server import MCPServer

mcp = MCPServer('notes')
notes = []


@mcp.tool()
def remember(note: str) -> str:
    """Keeps a note."""
    notes.append(note)
    return 'Kept %d.' % len(notes)


@mcp.tool()
def recall(word: str) -> str:
    """Finds the notes that contain a word."""
    return '\n'.join(note for note in notes if word.lower() in note.lower()) or 'Nothing.'


def serve():
    # Listens on all addresses. The service checks the token of each request before it forwards the request.
    mcp.run('streamable-http', host='0.0.0.0', port=8000, stateless_http=True, json_response=True)


def initialize(context):
    threading.Thread(target=serve, daemon=True).start()
    # Waits until the server accepts connections, because the create returns after the initializer.
    while True:
        try:
            return socket.create_connection(('127.0.0.1', 8000), timeout=1).close()
        except OSError:
            time.sleep(0.02)


def handle(event, context):
    return {'notes': len(notes)}
