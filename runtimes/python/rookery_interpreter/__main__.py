"""Starts the interpreter's server: `python3 -m rookery_interpreter [--host H] [--port P] [--directory D]`."""
from rookery_interpreter import server

if __name__ == '__main__':
    server.main()
