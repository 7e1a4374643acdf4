"""A FastAPI application on a port of an agent."""

import socket
import threading
import time

import uvicorn
from fastapi import FastAPI

app = FastAPI()
visits = {}


@app.get('/hello/{name}')
def hello(name: str):
    visits[name] = visits.get(name, 0) + 1
    return {'message': 'Hello, %s!' % name, 'visits': visits[name]}


def initialize(context):
    server = uvicorn.Server(uvicorn.Config(app, host='127.0.0.1', port=8000))
    threading.Thread(target=server.run, daemon=True).start()
    # Waits until the application accepts connections, because the create returns after the initializer.
    while True:
        try:
            return socket.create_connection(('127.0.0.1', 8000), timeout=1).close()
        except OSError:
            time.sleep(0.02)


def handle(event, context):
    return {'visits': sum(visits.values())}
