"""A small HTTP service of ours that answers, fails, delays, refuses and drops the reply, and remembers every call.

An order is a status, with headers if it is a pair, or DROP or SLOW.
"""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DROP, SLOW = "drop", "slow"


class Service:
    """Behaves as told, call by call; without orders it answers 200."""

    def __init__(self):
        self.orders = []
        self.calls = []
        self.times = []
        self.answered = []

    @property
    def per_key(self):
        return Counter(key for key, _ in self.calls)

    def order(self):
        return self.orders.pop(0) if self.orders else 200


@contextmanager
def service():
    """Serve on a free port of this machine; yield the service, which knows its address."""
    told = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            key = self.headers["Idempotency-Key"]
            told.calls.append((key, json.loads(body or b"null")))
            told.times.append(time.monotonic())
            order = told.order()
            if order == DROP:
                self.close_connection = True
                self.connection.close()
                return
            if order == SLOW:
                time.sleep(1)
                order = 200
            status, headers = order if isinstance(order, tuple) else (order, {})
            answer = b'{"ok": true}'
            told.answered.append(key)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # whoever asked did not wait

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}/notify"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
